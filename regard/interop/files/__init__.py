"""Read the files of other libraries. Their content is not trusted, and nothing in them runs."""
