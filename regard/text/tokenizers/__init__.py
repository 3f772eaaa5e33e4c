"""Tokenizers: subwords, characters, and special tokens."""
