"""Triton kernels for random-feature attention."""
