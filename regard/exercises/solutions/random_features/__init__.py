"""Solutions about random features (F)."""
