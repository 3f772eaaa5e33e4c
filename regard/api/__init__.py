"""The Python face of trained models: load one, and translate, write or embed with it."""
