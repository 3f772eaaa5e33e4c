"""The server of `regard serve`: models, batches over all clients, limits, metrics, and its life."""
