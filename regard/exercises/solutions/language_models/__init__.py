"""Solutions about language models (C2, E10)."""
