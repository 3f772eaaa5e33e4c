"""The sentences of the lectures with vectors of meaning, so that their attention can be computed.

D16 (Bahdanau et al. 2015, figure 3) and E9. A small bilingual dictionary maps a word to concepts; the vector of a
word is the mean of the vectors of its concepts, so a word and its translation point in the same direction.

    m target words   n source words   d width of a vector
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention import masks
from regard.attention.dispatch import attend
from regard.errors import unknown_name
from regard.positions.sinusoids import sinusoidal

# Word -> concepts. A word and its translation share concepts.
ENGLISH = {
    "It": ("it",), "should": ("ought",), "be": ("be", "infinitive"), "noted": ("note",), "that": ("that",),
    "the": ("the",), "marine": ("sea",), "environment": ("surroundings",), "is": ("be", "present"),
    "least": ("least",), "known": ("know",), "of": ("of",), "environments": ("surroundings", "many"),
    ".": ("stop",), "<end>": ("end",),
    "Jane": ("Jane",), "visits": ("visit", "present"), "Africa": ("Africa",), "in": ("during",),
    "September": ("September",),
}  # fmt: skip
FRENCH = {
    "Il": ("it",), "convient": ("ought",), "de": ("of", "infinitive"), "noter": ("note", "infinitive"),
    "que": ("that",), "l'": ("the",), "environnement": ("surroundings",), "marin": ("sea",),
    "est": ("be", "present"), "le": ("the",), "moins": ("least",), "connu": ("know",), ".": ("stop",),
    "<end>": ("end",),
    "Jane": ("Jane",), "visite": ("visit", "present"), "l'Afrique": ("the", "Africa"), "en": ("during",),
    "septembre": ("September",),
}  # fmt: skip

MARINE_SOURCE = [
    "It", "should", "be", "noted", "that", "the", "marine", "environment", "is", "the", "least", "known", "of",
    "environments", ".", "<end>",
]  # fmt: skip
MARINE_TARGET = [
    "Il", "convient", "de", "noter", "que", "l'", "environnement", "marin", "est", "le", "moins", "connu", "de",
    "l'", "environnement", ".", "<end>",
]  # fmt: skip
JANE_SOURCE = ["Jane", "visite", "l'Afrique", "en", "septembre", "<end>"]
JANE_TARGET = ["Jane", "visits", "Africa", "in", "September", "<end>"]


@dataclass(frozen=True)
class LabelledWeights:
    """Weights (m, n) with the words of their rows and columns; `made` says how they were computed."""

    weights: Tensor
    source: list[str]
    target: list[str]
    made: str


def concept_vectors(words: list[str], dictionary: dict[str, tuple[str, ...]], *, dim: int = 64) -> Tensor:
    """Return a unit vector for every word: the normalized sum of the random directions of its concepts."""
    concepts = sorted({c for entry in (*ENGLISH.values(), *FRENCH.values()) for c in entry})
    random = torch.Generator().manual_seed(16)
    table = torch.nn.functional.normalize(torch.randn(len(concepts), dim, generator=random), dim=-1)
    sums = [table[[concepts.index(c) for c in dictionary[word]]].sum(dim=0) for word in words]
    return torch.nn.functional.normalize(torch.stack(sums), dim=-1)  # (words, d)


def dictionary_alignment(source: list[str], target: list[str], *, to_french: bool) -> LabelledWeights:
    """Compute cross-attention (D13) of target to source words, by meaning, and by position (B2) for equal meanings.

    The position decides which of two equal words is meant, since p_t . p_t' falls with |t - t'| (B3).
    """
    dim = 64
    keys = concept_vectors(source, ENGLISH if to_french else FRENCH, dim=dim)  # (n, d)
    queries = concept_vectors(target, FRENCH if to_french else ENGLISH, dim=dim)  # (m, d)
    # |p_t|^2 = d/2. p_t . p_t' falls slowly, so positions are scaled to 1.5 times the length of the vectors of meaning.
    share = 1.5 / (dim / 2) ** 0.5
    q = queries + share * sinusoidal(len(target), dim)
    k = keys + share * sinusoidal(len(source), dim)
    _, weights = attend(q, k, k, score="scaled", scale=5.0, return_weights=True)
    made = "No trained model: regard.attend on meanings from a dictionary made by hand, plus sinusoidal positions."
    return LabelledWeights(weights.reshape(len(target), len(source)), list(source), list(target), made)


def marine_alignment() -> LabelledWeights:
    """Align English with French: "marine environment" and "environnement marin" cross over (D16)."""
    return dictionary_alignment(MARINE_SOURCE, MARINE_TARGET, to_french=True)


def jane_alignment() -> LabelledWeights:
    """Align French with English: the running example (E9)."""
    return dictionary_alignment(JANE_SOURCE, JANE_TARGET, to_french=False)


@dataclass(frozen=True)
class Flow:
    """All intermediate results of self-attention on a sentence; rows are words."""

    words: list[str]
    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    scores: Tensor
    weights: Tensor
    y: Tensor


def jane_flow() -> Flow:
    """Compute self-attention on the French sentence of E9, with matrices small enough to check by hand (D8, D9).

    A word is (person, action, place, time). W_K encodes what a word offers: who, what, or when and where; W_Q
    what it asks for: a place asks "what is happening here?", and a little "who is there?".
    """
    words = JANE_SOURCE[:-1]
    x = torch.tensor(
        [[1.0, 0.1, 0.0, 0.0], [0.1, 1.0, 0.1, 0.0], [0.0, 0.1, 1.0, 0.0], [0.0, 0.0, 0.4, 0.4], [0.0, 0.0, 0.1, 1.0]]
    )
    W_Q = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 1.0], [1.0, 2.0, 0.0], [0.0, 1.0, 0.0]])
    W_K = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 2.0]])
    W_V = torch.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 1.0, 3.0]])
    q, k, v = x @ W_Q, x @ W_K, x @ W_V  # (5, 3) each
    y, weights = attend(q, k, v, score="scaled", return_weights=True)
    scores = q @ k.T / k.shape[-1] ** 0.5  # the argument of the softmax (D9), for display
    return Flow(words, x, q, k, v, scores, weights.reshape(5, 5), y.reshape(5, 3))


def example_mask(kind: str, size: int) -> Tensor:
    """Return an example mask (size, size): causal, a quarter padding, a window, or three documents; D10."""
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    quarter = max(1, size // 4)
    kinds = {
        "causal": masks.causal(),
        "padding": masks.padding([size - size // 4]),
        "window": masks.window(quarter),
        "document": masks.document([3 * i // size for i in range(size)]),
    }
    if kind not in kinds:
        raise ValueError(unknown_name("kind of mask", kind, list(kinds)))
    return kinds[kind].matrix(size, size).expand(1, 1, size, size)[0, 0]
