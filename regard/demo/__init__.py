"""The demo corpus: French and English sentence pairs from our own grammar, with gold word alignments."""
