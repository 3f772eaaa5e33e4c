"""The training loop, its step, loss, optimizer, schedule and validation."""
