"""The demo corpus: French and English sentence pairs from the project's grammar, with gold word alignments."""
