"""Solutions about training and decoding (E7, E8)."""
