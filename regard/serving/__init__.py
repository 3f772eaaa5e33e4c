"""The HTTP servers of `regard explore` (the page) and `regard serve` (the APIs of existing clients)."""
