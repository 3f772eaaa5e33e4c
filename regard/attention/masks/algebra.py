"""The algebra of masks: rules for pairs of a query and a key, combined with & and |.

D10. True = may attend. A mask becomes a matrix only where an implementation of attention needs one. The queries are the
last m of n positions (lower-right alignment), so the same mask is right for a whole sentence (m = n) and for one new
token after a cache (m = 1). The rules themselves are in rules.py.

    B batch   H heads   m queries   n keys   row: query number 0..m-1   i: its position, row + n - m   j: key position
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Pair(NamedTuple):
    """The indices of pairs of a query and a key, as tensors that broadcast against each other."""

    batch: Tensor
    head: Tensor
    row: Tensor
    i: Tensor
    j: Tensor


class Mask:
    """A rule that decides for each pair whether the query may attend to the key."""

    def rule(self, pair: Pair) -> Tensor:
        """Return True where the query of a pair may attend to its key. All backends use this method."""
        raise NotImplementedError

    def fit(self, m: int, n: int) -> None:
        """Raise ValueError if the data of the rule cannot belong to m queries and n keys."""

    def to(self, device: torch.device | str) -> Mask:
        """Return the same rule with its data on that device."""
        return self

    @property
    def batch(self) -> int | None:
        """The number of sentences with rules of their own; None if the rule is the same for all."""
        return None

    @property
    def heads(self) -> int | None:
        """The number of heads with rules of their own; None if the rule is the same for all."""
        return None

    @property
    def queries(self) -> int | None:
        """The number of queries that the data of the rule requires; None if any number fits."""
        return None

    @property
    def keys(self) -> int | None:
        """The number of keys that the data of the rule requires; None if any number fits."""
        return None

    @property
    def sparse(self) -> bool:
        """Whether whole blocks of a long matrix are empty, so that a block-sparse kernel is faster."""
        return False

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """Return the mask as a bool tensor that broadcasts to (B, H, m, n).

        The queries are the last m of the n positions, unless `positions` (B, m) gives the position of each.
        """
        self.fit(m, n)
        row = torch.arange(m, device=device)[:, None]  # (m, 1)
        if n == 0:
            return torch.ones_like(row, dtype=torch.bool).expand(m, 0)  # no keys, so the rule has nothing to decide
        batch = torch.arange(1 if self.batch is None else self.batch, device=device)[:, None, None, None]
        head = torch.arange(1 if self.heads is None else self.heads, device=device)[:, None, None]
        i = row + (n - m) if positions is None else positions[:, None, :, None]
        return self.to(row.device).rule(Pair(batch, head, row, i, torch.arange(n, device=device)))

    def rows_with_keys(self, matrix: Tensor) -> Tensor:
        """Return which queries may attend to at least one key, given the matrix: broadcasts to (B, H, m, 1)."""
        return matrix.any(-1, keepdim=True)

    def picture(self, m: int | None = None, n: int | None = None) -> str:
        """Draw the matrix as text, one row per query, one column per key: ■ may attend, · may not."""
        n = n or self.keys or 8
        m = m or self.queries or n
        matrix = self.matrix(m, n, device="cpu")
        matrices = matrix.expand(*(1, 1, *matrix.shape)[-4:-2], m, n).flatten(0, -3).tolist()  # (B · H, m, n)
        drawings = ("\n".join(" ".join("■" if may else "·" for may in row) for row in rows) for rows in matrices)
        return "\n\n".join(drawings)

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
        """Make `tensor & mask` and `tensor | mask` equal to `mask & tensor` and `mask | tensor`."""
        # Compiled code calls bitwise_and and bitwise_or.
        if func not in (Tensor.__and__, Tensor.__or__, Tensor.bitwise_and, Tensor.bitwise_or):
            return NotImplemented
        mask, tensor = args if isinstance(args[0], Mask) else args[::-1]
        both = func in (Tensor.__and__, Tensor.bitwise_and)
        return Mask.__and__(mask, tensor) if both else Mask.__or__(mask, tensor)


@dataclass(frozen=True, eq=False)
class Explicit(Mask):
    """A mask given as a bool tensor."""

    allowed: Tensor  # broadcasts to (B, H, m, n)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor as (B, H, m, n), with 1 for each axis that it omits."""
        return (1,) * (4 - self.allowed.dim()) + tuple(self.allowed.shape)

    def rule(self, pair: Pair) -> Tensor:
        index = [
            indices if size != 1 else torch.zeros_like(indices)
            for indices, size in zip((pair.batch, pair.head, pair.row, pair.j), self.shape, strict=True)
        ]
        return self.allowed.reshape(self.shape)[tuple(index)]

    def to(self, device: torch.device | str) -> Mask:
        return Explicit(self.allowed.to(device))

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        # Its rows are the queries, whatever their positions.
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
    """Several masks joined by one operation."""

    parts: tuple[Mask, ...]

    def __post_init__(self) -> None:
        _common_size("batch sizes", [part.batch for part in self.parts])
        _common_size("numbers of heads", [part.heads for part in self.parts])

    @staticmethod
    def join(left: Tensor, right: Tensor) -> Tensor:
        raise NotImplementedError

    def rule(self, pair: Pair) -> Tensor:
        return functools.reduce(self.join, (part.rule(pair) for part in self.parts))

    def to(self, device: torch.device | str) -> Mask:
        return type(self)(tuple(part.to(device) for part in self.parts))

    def matrix(
        self, m: int, n: int, *, positions: Tensor | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        # Join matrices, not rules: the matrix of a mask that is the same for all sentences is small.
        parts = (part.matrix(m, n, positions=positions, device=device) for part in self.parts)
        return functools.reduce(self.join, parts)

    def fit(self, m: int, n: int) -> None:
        for part in self.parts:
            part.fit(m, n)

    @property
    def batch(self) -> int | None:
        return _common_size("batch sizes", [part.batch for part in self.parts])

    @property
    def heads(self) -> int | None:
        return _common_size("numbers of heads", [part.heads for part in self.parts])

    @property
    def queries(self) -> int | None:
        return max((size for part in self.parts if (size := part.queries) is not None), default=None)

    @property
    def keys(self) -> int | None:
        return max((size for part in self.parts if (size := part.keys) is not None), default=None)


class Both(Combined):
    """A mask that allows a pair if all parts allow it: a & b."""

    @staticmethod
    def join(left: Tensor, right: Tensor) -> Tensor:
        return left & right

    @property
    def sparse(self) -> bool:
        return any(part.sparse for part in self.parts)


class Either(Combined):
    """A mask that allows a pair if at least one part allows it: a | b."""

    @staticmethod
    def join(left: Tensor, right: Tensor) -> Tensor:
        return left | right

    @property
    def sparse(self) -> bool:
        return all(part.sparse for part in self.parts)


def as_mask(mask: Mask | Tensor) -> Mask:
    """Return a bool tensor as a mask; a mask is returned unchanged."""
    if isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(wrong_mask(mask))
    if mask.dim() > 4:
        raise ValueError(f"mask must broadcast to (B, H, m, n), got shape {tuple(mask.shape)}")
    return Explicit(mask)


def wrong_mask(mask: object) -> str:
    """Return the message for an argument that is no mask."""
    if not isinstance(mask, Tensor):
        return f"mask must be a regard mask or a bool tensor, got {type(mask).__name__}"
    return f"mask must be bool with True = may attend, got {mask.dtype}; numbers to add to the scores go into bias="


def _common_size(what: str, sizes: Sequence[int | None]) -> int | None:
    """Return the size that all parts share, where 1 broadcasts; None if no part has a size."""
    known = {size for size in sizes if size is not None}
    if len(known - {1}) > 1:
        raise ValueError(f"masks for different {what} were combined: {sorted(known)}")
    return next(iter(known - {1}), 1 if known else None)


def _parts(mask: Mask, kind: type[Combined]) -> tuple[Mask, ...]:
    """Return the parts of a combination of this kind, so that chains of & or | stay flat."""
    return mask.parts if isinstance(mask, kind) else (mask,)
