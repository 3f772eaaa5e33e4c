"""Commands that use a trained model: one file per command."""
