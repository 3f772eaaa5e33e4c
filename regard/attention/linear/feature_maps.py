"""Feature maps phi with E[phi(x).phi(y)] = exp(x.y), and three that estimate something else.

F2, F3. Features may be as large as e^1000. So a map returns them in two parts, values that do not overflow and the
logarithm of a factor for each row: phi = values * e^log_scale. The factor of a query cancels in attention's quotient;
that of a key is a weight, and the rest of the computation works with logarithms of weights.

    … batch, heads, length   d width of x   M rows of W   F features   u = W x
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from regard.errors import unknown_name

USUAL = 128  # features by default
TINY = 1e-20  # a sum of positive features is smaller only where there is no key
NOISE = 1e-3  # sums of sines and cosines may be close to 0 by chance, and a quotient by them would be noise
MAPS = ("trig", "plain", "positive", "hyperbolic", "optimal", "elu")
WHOLE = (*MAPS, "rows")  # all maps, with those for attention that is not causal


class FeatureMap(Protocol):
    """The interface of a feature map; write your own with these members.

    raw    True: the map takes queries and keys as they are; False: they are normalised and scaled first
    floor  denominators closer to 0 than this are replaced by it: they are only rounding errors, or noise
    """

    raw: ClassVar[bool]
    floor: ClassVar[float]

    def sizes(self, features: int | None, dim: int) -> tuple[int, int]:
        """Return (F, M) for a number of features (None: the default) of vectors of width `dim`, or raise ValueError."""
        ...

    def __call__(self, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        """Map x (…, L, d) with W (…, M, d) to (values (…, L, F), log_scale (…, L)): phi = values * e^log_scale."""
        ...


@dataclass(frozen=True)
class Trig:
    """phi(x) = M^-1/2 e^{|x|²/2} [sin u, cos u].

    Rahimi & Recht 2007; F2, F3. The factor turns the Gaussian exp(-|x-y|²/2) into exp(x.y). It cancels for
    queries but not for keys, and the lecture's formula leaves it out: see Plain. A single estimate may be negative.
    """

    raw: ClassVar[bool] = False
    floor: ClassVar[float] = NOISE

    def sizes(self, features: int | None, dim: int) -> tuple[int, int]:
        return _two_features_per_row(features, "a sine and a cosine")

    def __call__(self, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        return _waves(x @ W.mT), _half_square(x)


@dataclass(frozen=True)
class Plain:
    """phi(x) = M^-1/2 [sin u, cos u], as the lecture prints it.

    Rahimi & Recht 2007; F2, F3. E[phi(x).phi(y)] = exp(-|x-y|²/2), so attention with it is softmax(x.y - |y|²/2): long
    keys get too little weight. It is softmax attention only where all keys have the same length. Normalised and with a
    learned scale it is the attention of Peng et al. 2021.
    """

    raw: ClassVar[bool] = False
    floor: ClassVar[float] = NOISE

    def sizes(self, features: int | None, dim: int) -> tuple[int, int]:
        return _two_features_per_row(features, "a sine and a cosine")

    def __call__(self, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        return _waves(x @ W.mT), torch.zeros_like(x[..., 0])


@dataclass(frozen=True)
class Positive:
    """phi(x) = M^-1/2 exp(u - |x|²/2); every estimate is positive.

    Choromanski et al. 2021, lemma 1.
    """

    raw: ClassVar[bool] = False
    floor: ClassVar[float] = TINY

    def sizes(self, features: int | None, dim: int) -> tuple[int, int]:
        return _one_feature_per_row(features)

    def __call__(self, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        values, log_scale = _exponentials(x @ W.mT, W.shape[-2] ** -0.5)
        return values, log_scale - _half_square(x)


@dataclass(frozen=True)
class Hyperbolic:
    """phi(x) = (2M)^-1/2 e^{-|x|²/2} [exp u, exp -u]; each row is used twice.

    Choromanski et al. 2021, lemma 1.
    """

    raw: ClassVar[bool] = False
    floor: ClassVar[float] = TINY

    def sizes(self, features: int | None, dim: int) -> tuple[int, int]:
        return _two_features_per_row(features, "exp(u) and exp(-u)")

    def __call__(self, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        u = x @ W.mT
        values, log_scale = _exponentials(torch.cat([u, -u], dim=-1), (2 * W.shape[-2]) ** -0.5)
        return values, log_scale - _half_square(x)


@dataclass(frozen=True)
class OptimalPositive:
    """phi(x) = M^-1/2 (1-4A)^{d/4} exp(A|w|² + sqrt(1-4A) u - |x|²/2), the map of least variance in its family.

    Likhosherstov et al. 2022 (Chefs' Random Tables), theorem 3. A < 0 damps the long rows w, which make Positive
    noisy. The best A depends on `spread`, the mean of |x+y|²: about 2 for normalised queries and keys.
    """

    spread: float = 2.0

    raw: ClassVar[bool] = False
    floor: ClassVar[float] = TINY

    def __post_init__(self) -> None:
        if not self.spread > 0:
            raise ValueError(f"spread is the mean of |x+y|² and must be greater than 0, got {self.spread}")

    def sizes(self, features: int | None, dim: int) -> tuple[int, int]:
        return _one_feature_per_row(features)

    def best_a(self, dim: int) -> float:
        """A = (1 - 1/r) / 8 with r = (sqrt((2s+d)² + 8ds) - 2s - d) / 4s for the spread s; below 0."""
        s, d = self.spread, dim
        r = (math.sqrt((2 * s + d) ** 2 + 8 * d * s) - 2 * s - d) / (4 * s)
        return (1 - 1 / r) / 8

    def __call__(self, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        M, d = W.shape[-2:]
        a = self.best_a(d)
        lengths = W.square().sum(-1).unsqueeze(-2)  # |w|², (…, 1, M)
        exponents = x @ (math.sqrt(1 - 4 * a) * W).mT + a * lengths
        values, log_scale = _exponentials(exponents, M**-0.5 * (1 - 4 * a) ** (d / 4))
        return values, log_scale - _half_square(x)


@dataclass(frozen=True)
class EluPlusOne:
    """phi(x) = elu(x) + 1, without randomness: the baseline of linear attention.

    Katharopoulos et al. 2020, eq. 7. It does not estimate softmax attention.
    """

    raw: ClassVar[bool] = True
    floor: ClassVar[float] = TINY

    def sizes(self, features: int | None, dim: int) -> tuple[int, int]:
        if features not in (None, dim):
            raise ValueError(f"elu has one feature for each of the {dim} dimensions: features={dim}, got {features}")
        return dim, 0

    def __call__(self, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        return functional.elu(x) + 1, torch.zeros_like(x[..., 0])


@dataclass(frozen=True)
class Rows:
    """phi(x) = exp(u) with one quotient per feature: y = sum_f p_f S_f / z_f with p = phi(q) / sum phi(q).

    Shen et al. 2021 (Efficient Attention), eq. 5, with random rows W before the two softmaxes. S_f / z_f = sum_j
    softmax_j(w_f.k_j) v_j: each row of W attends to the text exactly, like a query, and a query mixes their outputs. It
    does not estimate the softmax of q.k, but it can attend to single words, where estimates are noise. Each causal
    query would need other sums S / z, so this map is for attention that is not causal.
    """

    raw: ClassVar[bool] = False
    floor: ClassVar[float] = TINY

    def sizes(self, features: int | None, dim: int) -> tuple[int, int]:
        return _one_feature_per_row(features)

    def __call__(self, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        return _exponentials(x @ W.mT, 1.0)


NAMES: dict[type, str] = {
    Trig: "trig",
    Plain: "plain",
    Positive: "positive",
    Hyperbolic: "hyperbolic",
    OptimalPositive: "optimal",
    EluPlusOne: "elu",
    Rows: "rows",
}


def make_map(name: str | FeatureMap) -> FeatureMap:
    """Return the map of this name; a map that is already an object is returned unchanged."""
    if isinstance(name, str):
        kinds = {known: kind for kind, known in NAMES.items()}
        if name not in kinds:
            raise ValueError(unknown_name("feature map", name, WHOLE))
        return kinds[name]()
    missing = [part for part in ("raw", "floor", "sizes", "__call__") if not hasattr(name, part)]
    if missing or isinstance(name, type):
        reason = "is a class: pass an instance" if isinstance(name, type) else f"has no {', '.join(missing)}"
        raise TypeError(f"map must be a name ({', '.join(WHOLE)}) or a FeatureMap; this one {reason}: got {name!r}")
    return name


def map_trait(map: FeatureMap) -> str:
    """Return the trait of a map (see regard.traits): the name of one of ours, the class of anyone else's."""
    kind = type(map)
    return f"map {NAMES.get(kind, f'{kind.__module__}.{kind.__qualname__}')}"


def _waves(u: Tensor) -> Tensor:
    return torch.cat([u.sin(), u.cos()], dim=-1) * u.shape[-1] ** -0.5


def _exponentials(exponents: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """Split factor * exp(exponents (…, L, F)) into values and log_scale, the largest exponent of each row.

    log_scale is a constant for autograd: the gradient of values * e^log_scale is the same.
    """
    log_scale = exponents.detach().amax(-1)
    # a e^x = e^{x + log a} saves a pass; in place, because on a CPU allocating costs as much as computing.
    return exponents.sub_((log_scale - math.log(factor)).unsqueeze(-1)).exp_(), log_scale


def _half_square(x: Tensor) -> Tensor:
    return x.square().sum(-1) / 2  # |x|²/2, (…, L)


def _one_feature_per_row(features: int | None) -> tuple[int, int]:
    features = USUAL if features is None else features
    if features < 1:
        raise ValueError(f"features must be at least 1, got {features}")
    return features, features


def _two_features_per_row(features: int | None, pair: str) -> tuple[int, int]:
    features = USUAL if features is None else features
    if features < 2 or features % 2:
        raise ValueError(f"features must be even, {pair} for each row of W: got {features}")
    return features, features // 2
