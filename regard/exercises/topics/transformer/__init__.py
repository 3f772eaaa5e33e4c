"""Exercises about the Transformer (E)."""
