"""Models that compute one vector, or one class, for a text."""
