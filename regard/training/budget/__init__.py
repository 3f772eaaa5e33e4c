"""Memory and time: what a training run needs, measured before it starts."""
