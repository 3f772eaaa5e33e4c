"""From weights to text: one file a search, and the engine that runs them."""
