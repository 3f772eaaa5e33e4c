"""Solution of beam-step."""

from torch import Tensor


def beam_step(scores: Tensor, logp: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (k) of the hypotheses, log-probabilities (k, V) of each next token.

    Return the k best continuations, best first: new scores (k), the hypothesis that each continues (k), its token (k).
    """
    k, V = logp.shape
    totals = scores[:, None] + logp  # (k, V)
    best, index = totals.reshape(-1).topk(k)
    return best, index // V, index % V
