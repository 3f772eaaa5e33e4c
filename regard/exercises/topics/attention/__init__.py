"""Exercises about attention (D)."""
