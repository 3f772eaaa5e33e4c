"""Batches: bucketing by length, windows for language models, prefetching, and the token cache."""
