"""Exercises about recurrent networks (C)."""
