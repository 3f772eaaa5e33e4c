"""Attention: scores, masks, `attend`, multi-head attention, caches and recording."""
