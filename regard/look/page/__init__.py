"""The explorer page as a single file and inside a notebook."""
