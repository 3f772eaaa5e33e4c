"""HTML and XML in requests: find the texts between the tags, and put the tags into their translations."""
