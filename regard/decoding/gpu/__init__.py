"""Decoding on a GPU: a decoder with fixed shapes, captured as CUDA graphs."""
