"""Scores: how well a key matches a query.

D5. A score is any callable (q, k) -> (…, m, n). Those with parameters are modules; each splits its work into
`keys`, done once per sentence, and `compare`, done for each new query, so that a recurrent decoder does not
project the source again at every step.

    … batch and heads   m queries   n keys   q: (…, m, query_dim)   k: (…, n, key_dim)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.registry import Registry

Score = Callable[[Tensor, Tensor], Tensor]
TINY = 1e-30  # sin x / x is 0 at multiples of pi, where its logarithm would be -inf and have no gradient


class ScoreModule(Protocol):
    """The interface that a recurrent decoder needs; the modules below have it."""

    def keys(self, k: Tensor) -> Tensor: ...
    def compare(self, q: Tensor, keys: Tensor) -> Tensor: ...
    def __call__(self, q: Tensor, k: Tensor) -> Tensor: ...


class DotScore(nn.Module):
    """q . k, times `scale`.

    Luong et al. 2015, eq. 8 (scale 1); Vaswani et al. 2017, eq. 1 (scale 1/sqrt(d_k)); D5, D9.
    """

    def __init__(self, *, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"score dot"})

    def keys(self, k: Tensor) -> Tensor:
        return k

    def compare(self, q: Tensor, keys: Tensor) -> Tensor:
        return (q * self.scale) @ keys.transpose(-2, -1)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(q, self.keys(k))


class BilinearScore(nn.Module):
    """q W k.

    Luong et al. 2015, eq. 8 ("general"); D5.
    """

    def __init__(self, *, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(query_dim, key_dim))
        nn.init.xavier_uniform_(self.weight)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"score bilinear"})

    def keys(self, k: Tensor) -> Tensor:
        return k @ self.weight.T  # (…, n, query_dim)

    def compare(self, q: Tensor, keys: Tensor) -> Tensor:
        return q @ keys.transpose(-2, -1)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(q, self.keys(k))


class AdditiveScore(nn.Module):
    """w . tanh(W_q q + W_k k).

    Bahdanau et al. 2015, appendix A.1.2; D5.

    >>> import regard
    >>> q, k = torch.randn(3, 8), torch.randn(5, 6)  # of different widths
    >>> regard.attend(q, k, k, score=AdditiveScore(query_dim=8, key_dim=6, hidden=16)).shape
    torch.Size([3, 6])
    """

    def __init__(self, *, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_dim, hidden, bias=False)
        self.key = nn.Linear(key_dim, hidden, bias=False)
        self.weight = nn.Parameter(torch.empty(hidden))
        nn.init.uniform_(self.weight, -(hidden**-0.5), hidden**-0.5)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"score additive"})

    def keys(self, k: Tensor) -> Tensor:
        return self.key(k)  # (…, n, hidden)

    def compare(self, q: Tensor, keys: Tensor) -> Tensor:
        pairs = self.query(q).unsqueeze(-2) + keys.unsqueeze(-3)  # (…, m, n, hidden)
        return pairs.tanh() @ self.weight

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(q, self.keys(k))


class ConcatScore(nn.Module):
    """w . tanh(W [q; k]).

    Luong et al. 2015, eq. 8 ("concat"); D5. W [q; k] = W_q q + W_k k, so the pairs are never concatenated:
    the additive score with its two matrices stored as one.
    """

    def __init__(self, *, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__()
        self.stacked = nn.Linear(query_dim + key_dim, hidden, bias=False)
        self.weight = nn.Parameter(torch.empty(hidden))
        self.query_dim = query_dim
        nn.init.uniform_(self.weight, -(hidden**-0.5), hidden**-0.5)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"score concat"})

    def keys(self, k: Tensor) -> Tensor:
        return k @ self.stacked.weight[:, self.query_dim :].T  # (…, n, hidden)

    def compare(self, q: Tensor, keys: Tensor) -> Tensor:
        queries = q @ self.stacked.weight[:, : self.query_dim].T  # (…, m, hidden)
        return (queries.unsqueeze(-2) + keys.unsqueeze(-3)).tanh() @ self.weight

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(q, self.keys(k))


class FourierScore(nn.Module):
    """log prod_c phi(sin(R (q_c - k_c)) / (R (q_c - k_c))) with phi(z) = z^power: Fourier integral attention.

    Nguyen et al. 2022 (FourierFormer), definition 1; F4. The softmax of this logarithm divides the products by their
    sum, as the paper does. The product is small as soon as one dimension differs, whereas in a dot product another
    dimension can compensate. The learned radius R sets the scale of the distances. It is exact and quadratic: it uses
    no random features.
    """

    def __init__(self, *, radius: float = 1.0, power: int = 4) -> None:
        super().__init__()
        if not radius > 0:
            raise ValueError(f"radius must be greater than 0, got {radius}")
        if power < 2 or power % 2:
            raise ValueError(
                f"power must be even, since the products are weights and sin x / x is negative: got {power}"
            )
        self.radius = nn.Parameter(torch.tensor(float(radius)))
        self.power = power

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"score fourier"})

    def keys(self, k: Tensor) -> Tensor:
        return k

    def compare(self, q: Tensor, keys: Tensor) -> Tensor:
        distance = self.radius * (q.unsqueeze(-2) - keys.unsqueeze(-3))  # (…, m, n, d)
        waves = torch.sinc(distance / math.pi)  # torch's sinc(x) is sin(pi x) / (pi x)
        return self.power * waves.abs().clamp(min=TINY).log().sum(-1)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(q, self.keys(k))


class FunctionScore(nn.Module):
    """A function of queries and keys as a module, with the interface of the scores above."""

    def __init__(self, function: Score, name: str | None = None) -> None:
        super().__init__()
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({f"score {self.name}"})

    def keys(self, k: Tensor) -> Tensor:
        return k

    def compare(self, q: Tensor, keys: Tensor) -> Tensor:
        return self.function(q, keys)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.function(q, k)

    def extra_repr(self) -> str:
        return self.name


def _dot(query_dim: int, key_dim: int, scale: float, name: str) -> DotScore:
    _check_one_width(query_dim, key_dim, name)
    return DotScore(scale=scale)


def _fourier(query_dim: int, key_dim: int) -> FourierScore:
    _check_one_width(query_dim, key_dim, "fourier")
    return FourierScore()


def _check_one_width(query_dim: int, key_dim: int, name: str) -> None:
    if query_dim != key_dim:
        raise ValueError(
            f"score {name!r} compares queries and keys of one width, got query_dim={query_dim} and "
            f"key_dim={key_dim}; bilinear, additive and concat take two widths"
        )


# How a model makes the score of each name, from the widths of queries and keys and a hidden width.
BUILT_IN: dict[str, Callable[[int, int, int], Any]] = {
    "dot": lambda query, key, hidden: _dot(query, key, 1.0, "dot"),
    "scaled": lambda query, key, hidden: _dot(query, key, 1 / math.sqrt(key), "scaled"),
    "bilinear": lambda query, key, hidden: BilinearScore(query_dim=query, key_dim=key),
    "additive": lambda query, key, hidden: AdditiveScore(query_dim=query, key_dim=key, hidden=hidden),
    "concat": lambda query, key, hidden: ConcatScore(query_dim=query, key_dim=key, hidden=hidden),
    "fourier": lambda query, key, hidden: _fourier(query, key),
}
SCORES = Registry("score", "regard.register_score", BUILT_IN)


def register_score(name: str, score: Score | type[nn.Module]) -> None:
    """Give a score of your own a name, for configs, recipes and model folders.

    `score` is a function (q, k) -> (…, m, n), or a class of modules: each layer then makes one with
    `score(query_dim=…, key_dim=…)`, whose parameters are trained and saved with the model. Register it before you load
    a model folder with this name.
    """
    if name == "none":
        raise UsageError("'none' is a recurrent translator without attention: give your score another name")
    if isinstance(score, type) and issubclass(score, nn.Module):
        SCORES.register(name, lambda query, key, hidden: score(query_dim=query, key_dim=key))
    elif callable(score) and not isinstance(score, nn.Module | type):
        SCORES.register(name, lambda query, key, hidden: FunctionScore(score, name))
    else:
        raise UsageError(f"score must be a function (q, k) -> (…, m, n) or a class of modules, got {score!r}")


def unregister_score(name: str) -> None:
    """Remove a registered score."""
    SCORES.unregister(name)


def make_score(name: str, *, query_dim: int, key_dim: int, hidden: int) -> ScoreModule:
    """Make the score of that name (D5), with parameters of the given widths."""
    return SCORES[name](query_dim, key_dim, hidden)


def make_layer_score(score: str | Score | None, width: int) -> Any:
    """Return the score of an attention layer as a module, for keys of that width; None: the scaled dot product."""
    if score is None or score == "scaled":
        return None
    if isinstance(score, str):
        return make_score(score, query_dim=width, key_dim=width, hidden=width)
    if not callable(score) or isinstance(score, type):
        raise TypeError(f"score must be a name or a callable (q, k) -> (…, m, n), got {score!r}")
    return score if isinstance(score, nn.Module) else FunctionScore(score)
