"""Solution of length-normalization."""

from torch import Tensor


def normalized_scores(logp: list[Tensor], alpha: float) -> list[float]:
    """Log-probabilities of the tokens of each hypothesis; return the score of each hypothesis."""
    return [tokens.sum().item() / len(tokens) ** alpha for tokens in logp]
