"""Exercises about images, series, speech and copying (G)."""
