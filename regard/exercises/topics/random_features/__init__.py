"""Exercises about random features (F)."""
