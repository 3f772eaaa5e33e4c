"""A whole run: from a recipe to a model folder."""
