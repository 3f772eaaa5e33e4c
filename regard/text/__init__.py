"""Text files to sentences to tokens to batches."""
