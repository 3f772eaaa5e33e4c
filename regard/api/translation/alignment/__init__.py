"""Word alignment by attention: of a translation, and of a pair of texts."""
