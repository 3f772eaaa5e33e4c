"""Solutions about positions (B)."""
