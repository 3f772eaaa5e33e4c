"""Recipes: the schema, TOML files, and defaults chosen from the data and the machine."""
