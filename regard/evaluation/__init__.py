"""How good it is: BLEU and chrF, perplexity, alignment error, quality by length, and whether a difference is real."""
