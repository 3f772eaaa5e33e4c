"""The rules of the lectures' masks: causal, window, padding and document.

D10. True = may attend. `regard.masks` creates them.

    B batch   m queries   n keys   i: position of a query   j: position of a key
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.masks.algebra import Both, Mask, Pair, as_mask


@dataclass(frozen=True)
class Causal(Mask):
    """No query attends to a later key."""

    def rule(self, pair: Pair) -> Tensor:
        return pair.j <= pair.i


@dataclass(frozen=True)
class Window(Mask):
    """A query attends to its neighbours only."""

    before: int
    after: int

    def rule(self, pair: Pair) -> Tensor:
        return (pair.i - pair.j <= self.before) & (pair.j - pair.i <= self.after)

    @property
    def sparse(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Lengths(Mask):
    """Queries attend to the first `lengths` keys of their sentence."""

    lengths: Tensor  # (B,)

    def rule(self, pair: Pair) -> Tensor:
        return pair.j < self.lengths[_data_row(pair.batch, self.lengths)]

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        lengths = self.lengths.to(device)  # with None they stay on their device
        return torch.arange(n, device=lengths.device) < lengths[:, None, None, None]  # (B, 1, 1, n)

    def to(self, device: torch.device | str) -> Mask:
        return Lengths(self.lengths.to(device))

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def keys(self) -> int:
        return int(self.lengths.max())


@dataclass(frozen=True, eq=False)
class PerKey(Mask):
    """A rule with one entry for each key."""

    key_data: Tensor  # (B, n)

    def to(self, device: torch.device | str) -> Mask:
        return type(self)(self.key_data.to(device))

    def fit(self, m: int, n: int) -> None:
        if self.key_data.shape[1] != n:
            raise ValueError(
                f"{type(self).__name__.lower()} mask for {self.key_data.shape[1]} keys was used with {n} keys: give one"
                " entry for each key, including those in the cache"
            )

    @property
    def batch(self) -> int:
        return self.key_data.shape[0]

    @property
    def keys(self) -> int:
        return self.key_data.shape[1]


class Padding(PerKey):
    """Queries attend only to keys whose entry is True."""

    def rule(self, pair: Pair) -> Tensor:
        return self.key_data[_data_row(pair.batch, self.key_data), pair.j]

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        self.fit(m, n)
        return self.key_data.to(device)[:, None, None]  # (B, 1, 1, n)

    def rows_with_keys(self, matrix: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # torch.compile cannot trace a cached property
            return matrix.any(-1, keepdim=True)
        return self._sentences_with_keys.to(matrix.device)

    @functools.cached_property  # one mask serves all layers of a model
    def _sentences_with_keys(self) -> Tensor:
        return self.key_data.any(-1)[:, None, None, None]  # (B, 1, 1, 1)


class Document(PerKey):
    """A query attends only to keys of its own document; the entries are document numbers."""

    def rule(self, pair: Pair) -> Tensor:
        batch = _data_row(pair.batch, self.key_data)
        # A query before the first key (m > n) belongs to no document.
        return (self.key_data[batch, pair.i.clamp(min=0)] == self.key_data[batch, pair.j]) & (pair.i >= 0)

    @property
    def sparse(self) -> bool:
        return True


def causal_matrix(m: int, n: int, *, device: torch.device | str | None = None) -> Tensor:
    """Return the causal mask as a bool matrix (m, n), aligned to the lower right."""
    return torch.ones(m, n, dtype=torch.bool, device=device).tril(n - m)


def within_window(mask: Mask | Tensor | None, window: int, causal: bool) -> Mask:
    """Restrict a mask to the token itself and its `window` - 1 neighbours before it and, unless causal, after it."""
    neighbours = Window(window - 1, 0 if causal else window - 1)
    return neighbours if mask is None else as_mask(mask) & neighbours


def split_causal(mask: Mask) -> tuple[bool, Mask | None]:
    """Split a conjunction into (whether it contains a causal mask, the rest): kernels need no matrix for causal."""
    if not isinstance(mask, Both):
        return (True, None) if isinstance(mask, Causal) else (False, mask)
    parts = mask.parts
    rest = tuple(part for part in parts if not isinstance(part, Causal))
    if len(rest) < 2:
        return len(rest) < len(parts), rest[0] if rest else None
    return len(rest) < len(parts), Both(rest)


def _data_row(batch: Tensor, data: Tensor) -> Tensor:
    """Return the row of a mask's data (B, …) for each sentence: its own, or row 0 if there is only one."""
    return batch if data.shape[0] != 1 else torch.zeros_like(batch)
