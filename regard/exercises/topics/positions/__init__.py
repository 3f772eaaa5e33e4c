"""Exercises about positions (B)."""
