"""The lexicon of the demo grammar, and how its verbs conjugate."""
