"""Memory and time: what a training needs, measured before it starts."""
