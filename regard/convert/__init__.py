"""`regard convert`: replace attention heads of a trained model by random features."""
