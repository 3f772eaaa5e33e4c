"""Fused modules and Triton kernels for training on a GPU."""
