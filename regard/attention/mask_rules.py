"""Masks as rules: who may attend to whom, combined with & and |, turned into a matrix only on demand.

D10. True = may attend. Queries are the last m of n positions (lower-right alignment), so the same mask is
right for a whole sentence (m = n) and for one new token behind a cache (m = 1).

    B batch   H heads   m queries   n keys   row: query number 0..m-1   i: its position, row + n - m   j: key position
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Place(NamedTuple):
    """The indices of a pair (query, key); tensors that broadcast against each other."""

    batch: Tensor
    head: Tensor
    row: Tensor
    i: Tensor
    j: Tensor


class Mask:
    """A rule that says for each pair whether the query may attend to the key."""

    def rule(self, at: Place) -> Tensor:
        """Bool tensor: may the query at `at` attend to the key at `at`? One definition serves every backend."""
        raise NotImplementedError

    def fit(self, m: int, n: int) -> None:
        """Raise ValueError when the rule holds data that cannot belong to m queries and n keys."""

    def to(self, device: torch.device | str) -> Mask:
        """The same rule with its data on that device, where the rule will be asked."""
        return self

    @property
    def batch(self) -> int | None:
        """How many sentences the rule tells apart; None when it is the same for all."""
        return None

    @property
    def heads(self) -> int | None:
        """How many heads the rule tells apart; None when it is the same for all."""
        return None

    @property
    def queries(self) -> int | None:
        """The number of queries that the rule's data fixes; None when any number fits."""
        return None

    @property
    def keys(self) -> int | None:
        """The number of keys that the rule's data fixes; None when any number fits."""
        return None

    @property
    def sparse(self) -> bool:
        """True when whole blocks of a long matrix are empty, so that a block-sparse kernel pays."""
        return False

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """The mask as a bool tensor that broadcasts to (B, H, m, n).

        The queries are the last m of the n positions, unless `positions` (B, m) says where each of them stands.
        """
        self.fit(m, n)
        row = torch.arange(m, device=device)[:, None]  # (m, 1)
        if n == 0:
            return torch.ones_like(row, dtype=torch.bool).expand(m, 0)  # no keys, nothing to ask the rule
        batch = torch.arange(1 if self.batch is None else self.batch, device=device)[:, None, None, None]
        head = torch.arange(1 if self.heads is None else self.heads, device=device)[:, None, None]
        i = row + (n - m) if positions is None else positions[:, None, :, None]
        return self.to(row.device).rule(Place(batch, head, row, i, torch.arange(n, device=device)))

    def rows_with_keys(self, matrix: Tensor) -> Tensor:
        """Which queries may attend to anything, given the matrix: broadcasts to (B, H, m, 1)."""
        return matrix.any(-1, keepdim=True)

    def picture(self, m: int | None = None, n: int | None = None) -> str:
        """The matrix in the terminal, queries down, keys across: ■ may attend, · may not."""
        n = n or self.keys or 8
        m = m or self.queries or n
        matrix = self.matrix(m, n, device="cpu")
        sheets = matrix.expand(*(1, 1, *matrix.shape)[-4:-2], m, n).flatten(0, -3).tolist()  # (B · H, m, n)
        return "\n\n".join("\n".join(" ".join("■" if may else "·" for may in row) for row in one) for one in sheets)

    def __str__(self) -> str:
        return self.picture()

    def __and__(self, other: Mask | Tensor) -> Mask:
        return Both(_parts(self, Both) + _parts(as_mask(other), Both))

    def __or__(self, other: Mask | Tensor) -> Mask:
        return Either(_parts(self, Either) + _parts(as_mask(other), Either))

    __rand__ = __and__
    __ror__ = __or__

    def __bool__(self) -> bool:
        raise TypeError("a mask is neither true nor false: combine masks with & and |, not with `and` and `or`")

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Sequence, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let `tensor & mask` and `tensor | mask` mean the same as `mask & tensor` and `mask | tensor`."""
        if func not in (Tensor.__and__, Tensor.__or__, Tensor.bitwise_and, Tensor.bitwise_or):  # the latter in compile
            return NotImplemented
        mask, tensor = args if isinstance(args[0], Mask) else args[::-1]
        both = func in (Tensor.__and__, Tensor.bitwise_and)
        return Mask.__and__(mask, tensor) if both else Mask.__or__(mask, tensor)


@dataclass(frozen=True)
class Causal(Mask):
    def rule(self, at: Place) -> Tensor:
        return at.j <= at.i


@dataclass(frozen=True)
class Window(Mask):
    before: int
    after: int

    def rule(self, at: Place) -> Tensor:
        return (at.i - at.j <= self.before) & (at.j - at.i <= self.after)

    @property
    def sparse(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Lengths(Mask):
    lengths: Tensor  # (B,)

    def rule(self, at: Place) -> Tensor:
        return at.j < self.lengths[_row(at.batch, self.lengths)]

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        lengths = self.lengths.to(device)  # None leaves them where they are
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
    """A rule that knows something about each key."""

    about: Tensor  # (B, n)

    def to(self, device: torch.device | str) -> Mask:
        return type(self)(self.about.to(device))

    def fit(self, m: int, n: int) -> None:
        if self.about.shape[1] != n:
            raise ValueError(
                f"{type(self).__name__.lower()} mask for {self.about.shape[1]} keys was used with {n} keys: give one "
                "entry for each key, those in the cache included"
            )

    @property
    def batch(self) -> int:
        return self.about.shape[0]

    @property
    def keys(self) -> int:
        return self.about.shape[1]


class Padding(PerKey):
    def rule(self, at: Place) -> Tensor:
        return self.about[_row(at.batch, self.about), at.j]

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        self.fit(m, n)
        return self.about.to(device)[:, None, None]  # (B, 1, 1, n): the rule at all places is the data itself

    def rows_with_keys(self, matrix: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # there the look costs nothing, and a cached property cannot be traced
            return matrix.any(-1, keepdim=True)
        return self._sentences_with_keys.to(matrix.device)

    @functools.cached_property  # one mask serves all layers of a model
    def _sentences_with_keys(self) -> Tensor:
        return self.about.any(-1)[:, None, None, None]  # (B, 1, 1, 1)


class Document(PerKey):
    def rule(self, at: Place) -> Tensor:
        batch = _row(at.batch, self.about)
        # A query before the first key (m > n) belongs to no document.
        return (self.about[batch, at.i.clamp(min=0)] == self.about[batch, at.j]) & (at.i >= 0)

    @property
    def sparse(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Explicit(Mask):
    allowed: Tensor  # broadcasts to (B, H, m, n)

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape with the axes that it leaves out, (B, H, m, n); 1 where it is the same for all."""
        return (1,) * (4 - self.allowed.dim()) + tuple(self.allowed.shape)

    def rule(self, at: Place) -> Tensor:
        index = [
            where if size != 1 else torch.zeros_like(where)
            for where, size in zip((at.batch, at.head, at.row, at.j), self.shape, strict=True)
        ]
        return self.allowed.reshape(self.shape)[tuple(index)]

    def to(self, device: torch.device | str) -> Mask:
        return Explicit(self.allowed.to(device))

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        # Its rows are the queries, wherever they stand.
        self.fit(m, n)
        return self.allowed if device is None else self.allowed.to(device)

    def fit(self, m: int, n: int) -> None:
        rows, columns = self.shape[2:]
        if rows not in (1, m) or columns not in (1, n):
            raise ValueError(
                f"mask of shape {tuple(self.allowed.shape)} does not broadcast to (…, m, n) = (…, {m}, {n})"
            )

    @property
    def batch(self) -> int | None:
        return None if self.shape[0] == 1 else self.shape[0]

    @property
    def heads(self) -> int | None:
        return None if self.shape[1] == 1 else self.shape[1]

    @property
    def queries(self) -> int | None:
        return None if self.shape[2] == 1 else self.shape[2]

    @property
    def keys(self) -> int | None:
        return None if self.shape[3] == 1 else self.shape[3]


@dataclass(frozen=True, eq=False)
class Combined(Mask):
    parts: tuple[Mask, ...]

    def __post_init__(self) -> None:
        _agreed("batch sizes", [part.batch for part in self.parts])
        _agreed("numbers of heads", [part.heads for part in self.parts])

    @staticmethod
    def join(left: Tensor, right: Tensor) -> Tensor:
        raise NotImplementedError

    def rule(self, at: Place) -> Tensor:
        return functools.reduce(self.join, (part.rule(at) for part in self.parts))

    def to(self, device: torch.device | str) -> Mask:
        return type(self)(tuple(part.to(device) for part in self.parts))

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        # Part by part, so that a part that is the same for all sentences stays small until it is joined.
        parts = (part.matrix(m, n, positions=positions, device=device) for part in self.parts)
        return functools.reduce(self.join, parts)

    def fit(self, m: int, n: int) -> None:
        for part in self.parts:
            part.fit(m, n)

    @property
    def batch(self) -> int | None:
        return _agreed("batch sizes", [part.batch for part in self.parts])

    @property
    def heads(self) -> int | None:
        return _agreed("numbers of heads", [part.heads for part in self.parts])

    @property
    def queries(self) -> int | None:
        return max((size for part in self.parts if (size := part.queries) is not None), default=None)

    @property
    def keys(self) -> int | None:
        return max((size for part in self.parts if (size := part.keys) is not None), default=None)


class Both(Combined):
    """Every part must allow the pair: a & b."""

    @staticmethod
    def join(left: Tensor, right: Tensor) -> Tensor:
        return left & right

    @property
    def sparse(self) -> bool:
        return any(part.sparse for part in self.parts)


class Either(Combined):
    """One part that allows the pair is enough: a | b."""

    @staticmethod
    def join(left: Tensor, right: Tensor) -> Tensor:
        return left | right

    @property
    def sparse(self) -> bool:
        return all(part.sparse for part in self.parts)


def as_mask(mask: Mask | Tensor) -> Mask:
    """A bool tensor as a mask of the algebra; a mask stays what it is."""
    if isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(wrong_mask(mask))
    if mask.dim() > 4:
        raise ValueError(f"mask must broadcast to (B, H, m, n), got shape {tuple(mask.shape)}")
    return Explicit(mask)


def wrong_mask(mask: object) -> str:
    if not isinstance(mask, Tensor):
        return f"mask must be a regard mask or a bool tensor, got {type(mask).__name__}"
    return f"mask must be bool with True = may attend, got {mask.dtype}; numbers to add to the scores go into bias="


def causal_matrix(m: int, n: int, *, device: torch.device | str | None = None) -> Tensor:
    """The causal mask as a bool matrix (m, n), aligned to the lower right."""
    return torch.ones(m, n, dtype=torch.bool, device=device).tril(n - m)


def split_causal(mask: Mask) -> tuple[bool, Mask | None]:
    """(is a causal mask part of the conjunction, what remains): kernels know causal without a matrix."""
    if not isinstance(mask, Both):
        return (True, None) if isinstance(mask, Causal) else (False, mask)
    parts = mask.parts
    rest = tuple(part for part in parts if not isinstance(part, Causal))
    if len(rest) < 2:
        return len(rest) < len(parts), rest[0] if rest else None
    return len(rest) < len(parts), Both(rest)


def _row(batch: Tensor, data: Tensor) -> Tensor:
    """Which row of a mask's data (B, …) is about each sentence: its own, or the only one there is."""
    return batch if data.shape[0] != 1 else torch.zeros_like(batch)


def _agreed(what: str, sizes: Sequence[int | None]) -> int | None:
    """The one size of the parts of a combination, where 1 goes with any; None when no part has one."""
    known = {size for size in sizes if size is not None}
    if len(known - {1}) > 1:
        raise ValueError(f"masks for different {what} were combined: {sorted(known)}")
    return next(iter(known - {1}), 1 if known else None)


def _parts(mask: Mask, kind: type[Combined]) -> tuple[Mask, ...]:
    return mask.parts if isinstance(mask, kind) else (mask,)
