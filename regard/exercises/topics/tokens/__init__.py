"""Exercises about tokens and embeddings (A)."""
