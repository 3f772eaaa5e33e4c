"""Matrix products of 8-bit floating-point numbers in training; see `linear` and docs/training/train.md."""
