"""The explorer as a site without a server: `regard explore --export`."""
