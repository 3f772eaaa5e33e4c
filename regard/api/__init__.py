"""The Python interface to trained models: translate, write or embed text."""
