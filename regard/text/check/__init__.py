"""The data doctor: find what is wrong with training data."""
