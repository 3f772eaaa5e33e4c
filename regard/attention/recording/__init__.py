"""Record attention weights: of our own models, and of torch and `transformers` modules."""
