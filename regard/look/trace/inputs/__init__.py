"""Traces of models whose input is no text: images, videos, series of numbers and recordings."""
