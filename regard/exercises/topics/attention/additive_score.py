"""Write the additive score (Bahdanau et al. 2015; D5, D14)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def additive_scores(Q: Tensor, K: Tensor, W_q: Tensor, W_k: Tensor, w: Tensor) -> Tensor:
    """Q (m, d), K (n, d), W_q and W_k (d, hidden), w (hidden); return the scores (m, n)."""
    raise NotImplementedError
'''


def reference(
    Q: Tensor,
    K: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    w: Tensor,
    *,
    activation: bool = True,
    swap: bool = False,
    transpose: bool = False,
    normalize: bool = False,
) -> Tensor:
    """Return w · tanh(q W_q + k W_k) for each query and key."""
    if swap:
        W_q, W_k = W_k, W_q
    hidden = (Q @ W_q).unsqueeze(1) + (K @ W_k).unsqueeze(0)  # (m, n, hidden)
    scores = (torch.tanh(hidden) if activation else hidden) @ w
    scores = torch.softmax(scores, dim=-1) if normalize else scores
    return scores.T if transpose else scores


def cases(draw: Draw) -> Iterator[Case]:
    for label, m, n in (("one query", 1, 4), ("several queries", 3, 5), ("as many queries as keys", 4, 4)):
        yield Case(label, (draw(m, 3), draw(n, 3), draw(3, 6), draw(3, 6), draw(6)))


EXERCISE = CodeExercise(
    question="""
        Bahdanau's translator scores a query q against a key k with a small feed-forward net:

            score(q, k) = w · tanh(q W_q + k W_k)

        Write it for all queries and keys at once, without a loop. Hint: add a dimension to q W_q and another one to
        k W_k, and let PyTorch broadcast them to (m, n, hidden).
    """,
    function="additive_scores",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "no-tanh",
            "The tanh is missing.",
            "Without it the score is a term of the query plus one of the key. The query's term cancels in the softmax,"
            " so all queries get the same weights.",
            activation=False,
        ),
        mistake(
            "matrices-swapped",
            "W_q is applied to the keys and W_k to the queries.",
            "The shapes agree by chance, so nothing complains; weights of a trained model would give nonsense.",
            swap=True,
        ),
        mistake(
            "transposed",
            "The scores are (n, m): one row per key.",
            "The softmax over the last dimension would then go over the queries.",
            transpose=True,
        ),
        mistake(
            "softmax-included",
            "The result is the softmax of the scores.",
            "Scores and weights are two steps, because masks come between them.",
            normalize=True,
        ),
    ),
)
