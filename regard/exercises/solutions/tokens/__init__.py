"""Solutions about tokens and embeddings (A)."""
