"""The data doctor: find problems in training data."""
