"""Whole networks, their settings, and the model folder that holds them."""
