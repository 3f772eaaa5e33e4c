"""Augmentation of sentence pairs during training."""
