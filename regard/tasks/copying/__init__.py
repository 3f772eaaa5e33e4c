"""Tasks of models that copy from a text: summarization and question answering."""
