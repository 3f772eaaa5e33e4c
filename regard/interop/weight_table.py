"""A table of weights: their names, our names, and how one becomes the other. One table serves both directions.

o, i   rows and columns of a matrix
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.models.folder.config_file import shortened

# The bias of a token that the probabilities leave out. exp of it is 0 in every type, and float16 can store it.
EXCLUDED = -60000.0
Shapes = Mapping[str, tuple[int, ...]]


class Part(NamedTuple):
    """One of their weights, with as many rows of ours."""

    name: str | None  # None: they have none, and ours is zero, such as a bias that only our layer has
    rows: int
    skipped: int = 0  # rows of theirs before these
    scale: float = 1.0  # ours is theirs, times this
    value: float = 0.0  # of ours, if they have none


@dataclass(frozen=True)
class Row:
    """One of our weights, and their weights of which it is stacked."""

    ours: str
    parts: tuple[Part, ...]
    transposed: bool = False  # theirs is (i, o)
    in_row: bool = False  # theirs is (1, o), a matrix of one row
    first_row_of: Part | None = None  # another weight of theirs, whose first row is added to each of ours


class WeightTable:
    """The rows of a model, checked against the names and shapes of both sides before a weight is read."""

    def __init__(self, rows: Iterable[Row], *, ours: Shapes, unused: str = "", excluded: Sequence[int] = ()) -> None:
        """`ours` are the shapes of our weights; `unused` is a pattern of their weights that regard does not need.

        `excluded` are tokens whose output bias becomes EXCLUDED, so that their probability is 0.
        """
        self.rows, self.ours, self.excluded = {row.ours: row for row in rows}, ours, list(excluded)
        self.unused = re.compile(unused or "(?!)")
        if missing := ours.keys() ^ self.rows.keys():
            raise ModelError(f"the table of weights and the model differ in {min(missing)!r}")

    def check(self, path: object, theirs: Shapes) -> None:
        """Raise ModelError unless their weights are exactly those of the table."""
        known: set[str] = set()
        for row in self.rows.values():
            for part, shape in zip(row.parts, self.their_shapes(row), strict=True):
                if part.name is None:
                    continue
                known.add(part.name)
                if part.name not in theirs:
                    raise ModelError(f"{path}: the weight {part.name!r} is missing")
                if theirs[part.name] != shape:
                    stored = shortened(theirs[part.name])
                    raise ModelError(
                        f"{path}: the weight {part.name!r} has shape {stored}, the settings ask for {shape}"
                    )
            extra = row.first_row_of
            if extra is not None and extra.name is not None:
                known.add(extra.name)
                shape = (extra.rows, *self.ours[row.ours][1:])
                if not extra.rows or theirs.get(extra.name) != shape:
                    raise ModelError(f"{path}: the weight {extra.name!r} is missing, or its shape is not {shape}")
        unknown = [name for name in theirs if name not in known and not self.unused.fullmatch(name)]
        if unknown:
            raise ModelError(f"{path}: the weight {shortened(repr(min(unknown)))} belongs to no part of the model")

    def their_shapes(self, row: Row) -> list[tuple[int, ...]]:
        """Return the shape of each of their weights of a row."""
        shapes = [(part.skipped + part.rows, *self.ours[row.ours][1:]) for part in row.parts]
        if row.in_row:
            return [(1, *shape) for shape in shapes]
        return [shape[::-1] for shape in shapes] if row.transposed else shapes

    def read(self, get: Callable[[str], Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield our weights by name, one at a time; `get` returns one of theirs."""
        for row in self.rows.values():
            shapes = self.their_shapes(row)
            weights = [
                torch.full(shape, part.value) if part.name is None else get(part.name)[part.skipped :]
                for part, shape in zip(row.parts, shapes, strict=True)
            ]
            weights = [weight[0] for weight in weights] if row.in_row else weights
            weights = [
                weight if part.scale == 1 else weight * part.scale
                for part, weight in zip(row.parts, weights, strict=True)
            ]
            weight = stack(weights, transposed=row.transposed)
            if row.first_row_of is not None and row.first_row_of.name is not None:
                weight = weight.double() + get(row.first_row_of.name)[0]
            if self.excluded and row.ours == "output_bias":
                weight = weight.index_fill(0, torch.tensor(self.excluded), EXCLUDED)
            yield row.ours, weight

    def write(self, get: Callable[[str], Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield their weights by name; `get` returns one of ours. Weights that they do not have must be zero.

        Rows that an import skips, and those of `first_row_of`, are zero.
        """
        for row in self.rows.values():
            weight = get(row.ours)
            if self.excluded and row.ours == "output_bias":
                weight = weight.index_fill(0, torch.tensor(self.excluded), 0.0)
            parts = weight.split([part.rows for part in row.parts])
            for part, weight in zip(row.parts, parts, strict=True):
                if part.name is None:
                    if bool((weight != part.value).any()):
                        raise ModelError(f"their model has no weight for {row.ours!r}, which is not {part.value:g}")
                    continue
                weight = torch.cat([weight.new_zeros(part.skipped, *weight.shape[1:]), weight])
                weight = weight if part.scale == 1 else weight / part.scale
                weight = weight[None] if row.in_row else weight
                yield part.name, (weight.T if row.transposed else weight).contiguous()
            if row.first_row_of is not None and row.first_row_of.name is not None:
                yield row.first_row_of.name, get(row.ours).new_zeros(row.first_row_of.rows, *self.ours[row.ours][1:])


def stack(weights: Sequence[Tensor], *, transposed: bool) -> Tensor:
    """Return the rows of some weights, one below the other."""
    weights = [weight.T for weight in weights] if transposed else weights
    if len(weights) == 1:
        return weights[0].contiguous()
    dtype = weights[0].dtype
    return torch.cat([weight.to(dtype) for weight in weights])
