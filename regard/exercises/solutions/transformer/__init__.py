"""Solutions about the Transformer (E)."""
