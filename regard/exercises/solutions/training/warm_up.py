"""Solution of warm-up."""


def learning_rate(step: int, d: int, warmup: int) -> float:
    """Return the learning rate of a training step, counted from 1."""
    return 1000 * d**-0.5 * min(step**-0.5, step * warmup**-1.5)
