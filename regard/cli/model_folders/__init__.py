"""Commands for model folders: what is in them, and other formats."""
