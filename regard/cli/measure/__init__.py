"""Commands that measure models: scores, comparisons and speed."""
