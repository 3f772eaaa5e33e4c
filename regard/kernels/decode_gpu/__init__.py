"""Triton kernels for one decoding step on a GPU."""
