"""The interface of all position schemes: a scheme acts at one stage of the model; its other methods do nothing.

Letters: B batch, H heads, T length, D width (of the model in `embed`, of a head elsewhere), m queries, n keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """The model that a scheme is made for."""

    dim: int
    heads: int
    head_dim: int
    value_dim: int
    max_length: int | None = None  # tokens of the longest text
    causal: bool = False
    start: int = 0  # the number of the first position, for sinusoidal ones; L1 counts from 1
    first: int = 0  # the first i of their frequencies; L0 starts at 1
    base: float = 10000.0  # of their wavelengths
    layout: str = "interleaved"  # of their sines and cosines
    width: int | None = None  # columns of learned positions that are appended to the embedding (L1); None: added
    rotary: Mapping[str, Any] = field(default_factory=dict)  # the options of Rotary beside head_dim


class Position(nn.Module):
    """Base class of position schemes. A scheme overrides the stage at which it acts; this class does nothing.

    The stages in the order of a forward pass: `embed` once, before the first block; then, in every attention layer,
    `rotate` on queries and keys, `bias` on the scores and `mix` on the output; B1 to B8. Positions are integers from 0:
    (T,) if all rows of a batch have the same ones, (B, T) otherwise.
    """

    acts_on: ClassVar[Literal["embedding", "attention"]] = "embedding"
    # True if `mix` adds a term, so that attention must compute its weights.
    needs_weights: bool = False
    # True if the layers of a stack use one module together, with its parameters.
    shared: ClassVar[bool] = True
    # True if a text must not be longer than the model's max_length.
    limited: ClassVar[bool] = False

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        """Make the scheme, with its default options, for a model of these sizes."""
        return cls()

    @classmethod
    def adds_to_scores(cls) -> bool:
        """Whether the scheme changes what attention computes from queries and keys, beyond rotating them."""
        return cls.bias is not Position.bias or cls.mix is not Position.mix

    def __init_subclass__(cls) -> None:
        """Let every scheme declare traits, because the default below names the scheme itself."""
        super().__init_subclass__()
        cls.traits = cls.traits  # type: ignore[method-assign]

    @property
    def traits(self) -> frozenset[str]:
        """The scheme's name, and its options where they change the computation; see regard.traits."""
        return frozenset({self._scheme_trait()})

    def _scheme_trait(self) -> str:
        """Return the trait with the scheme's name.

        The name of a scheme from outside this package includes its module, so no backend takes it for one of these.
        """
        kind = type(self)
        ours = kind.__module__.startswith("regard.positions.")
        return f"position {kind.__name__ if ours else f'{kind.__module__}.{kind.__qualname__}'}"

    def out_dim(self, dim: int) -> int:
        """Return the width that `embed` gives to an embedding of width dim; only concatenation changes it."""
        return dim

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the positions to the embeddings x (B, T, D) -> (B, T, out_dim(D)); for absolute schemes."""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate the queries or keys x (B, H, T, D) by their positions; for rotary schemes."""
        return x

    def bias(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor | None:
        """Return what is added to the scaled scores, broadcastable to (B, H, m, n), or None; for relative schemes.

        q (B, H, m, D) are the queries, not scaled; i (m,) or (B, m) their positions; j (n,) or (B, n) the keys'.
        """
        return None

    def mix(self, weights: Tensor, i: Tensor, j: Tensor) -> Tensor | None:
        """Return what is added to the output (B, H, m, D) for weights (B, H, m, n), or None; for Shaw's value term."""
        return None


def distance(like: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Return the distance j - i of each key from each query, negative for earlier keys: (m, n) or (B, m, n); B8.

    like is a tensor (B, H, m, …) whose shape the positions must match.
    """
    check_positions("i", i, batch=like.shape[0], length=like.shape[-2])
    check_positions("j", j, batch=like.shape[0], length=j.shape[-1] if j.ndim else 0)
    return j[..., None, :] - i[..., :, None]


def check_positions(name: str, positions: Tensor, *, batch: int, length: int) -> None:
    """Raise unless positions are integers of shape (length,) or (batch, length)."""
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise TypeError(f"{name} must be whole numbers such as torch.long, not {positions.dtype}")
    if positions.shape not in ((length,), (batch, length)):
        valid = f"({length},) or ({batch}, {length})"
        raise ValueError(f"{name} must have shape {valid}, not {tuple(positions.shape)}")


def check_width(name: str, x: Tensor, width: int) -> None:
    """Raise unless the last axis of x has the width that the scheme was made for."""
    if x.shape[-1] != width:
        raise ValueError(f"{name} of shape {tuple(x.shape)} has width {x.shape[-1]}; this scheme was made for {width}")


def check_heads(q: Tensor, heads: int) -> None:
    """Raise unless q (B, H, m, D) has the number of heads that the scheme was made for."""
    if q.ndim != 4 or q.shape[1] != heads:
        raise ValueError(f"q has shape {tuple(q.shape)}; this scheme was made for (B, {heads}, m, D)")


def check_size(name: str, value: int, least: int = 1) -> None:
    """Raise unless value is an integer that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
