"""The task "word vectors": its data and settings, and one update of the vectors."""
