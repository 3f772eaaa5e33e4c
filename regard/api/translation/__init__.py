"""The steps of a translation, from a source text to the text and the alignment of its translation."""
