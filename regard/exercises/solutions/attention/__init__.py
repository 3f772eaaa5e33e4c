"""Solutions about attention (D)."""
