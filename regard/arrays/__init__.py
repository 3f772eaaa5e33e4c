"""Data that is no text: images and series of numbers, from files to arrays to batches."""
