"""Pictures that move: a recurrent net unrolled, attention row by row, beam search, random features converging."""
