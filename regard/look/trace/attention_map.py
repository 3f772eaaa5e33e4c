"""Attention weights between two axes of a trace, checked when they are made or loaded.

L layers   H heads   G heads of keys and values   m queries (rows)   n keys (columns)   d width of a head's vector
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError

MAX_JSON_NUMBERS = 4096  # arrays up to this size are written as text, larger ones as float16
TOLERANCE = {np.dtype(np.float32): 1e-5, np.dtype(np.float16): 2e-3}  # of the sum of a row
THUMBNAIL_CELLS = 32  # most cells along one side of a thumbnail


@dataclass(frozen=True, eq=False)
class Map:
    """Attention weights [L, H, m, n] between two axes; row i was used to produce token i of the query axis.

    The mask [m, n] is true where a query may attend to a key; without a mask it may attend to all. Weights of random
    features are estimates, and their rows need not sum to one. A large map that was saved has float16 numbers.
    """

    query: str  # names of axes
    key: str
    weights: NDArray[Any]
    mask: NDArray[Any] | None = None
    random_features: bool = False
    thumbnails: NDArray[Any] | None = None  # uint8 [L, H, up to 32, up to 32], of large maps
    q: NDArray[Any] | None = None  # [L, H, m, d]
    k: NDArray[Any] | None = None  # [L, G, n, d]
    v: NDArray[Any] | None = None  # [L, G, n, ·]

    def __post_init__(self) -> None:
        weights = self._numbers("weights")
        if not weights.size:
            raise DataError(f"weights of shape {shape_text(weights)} are empty")
        self._check_mask(weights)
        if not self.random_features:
            self._check_rows(weights)
        self._check_vectors(weights)
        self._check_thumbnails(weights)

    def _numbers(self, name: str) -> NDArray[Any]:
        """Convert a field to a finite, four-dimensional float16 or float32 array."""
        numbers = np.asarray(getattr(self, name))
        numbers = numbers if numbers.dtype == np.float16 else numbers.astype(np.float32)
        if numbers.ndim != 4:
            raise DataError(f"{name} must be [layer, head, token, token or width], got the shape {shape_text(numbers)}")
        if not np.isfinite(numbers).all():
            raise DataError(f"{name} must be finite numbers")
        object.__setattr__(self, name, numbers)
        return numbers

    def _check_mask(self, weights: NDArray[Any]) -> None:
        if self.mask is None:
            return
        mask = np.asarray(self.mask)
        if mask.shape != weights.shape[2:]:
            raise DataError(f"the mask has the shape {shape_text(mask)}, its map {shape_text(weights)}")
        if not np.isin(mask, (0, 1)).all():
            raise DataError("the mask must be 1 where a query may attend to a key and 0 elsewhere")
        mask = mask.astype(bool)
        object.__setattr__(self, "mask", mask)
        if (wrong := np.argwhere((weights != 0) & ~mask)).size:
            raise DataError(f"{cell_text(wrong[0])} is not 0 although it is masked")

    def _check_rows(self, weights: NDArray[Any]) -> None:
        if (wrong := np.argwhere(weights < 0)).size:
            raise DataError(f"{cell_text(wrong[0])} is below 0")
        sums = weights.sum(-1, dtype=np.float64)  # [L, H, m]
        expected: NDArray[Any] = np.ones(sums.shape[2]) if self.mask is None else np.asarray(self.mask.any(-1))  # [m]
        wrong = np.argwhere(np.abs(sums - expected) > TOLERANCE[weights.dtype])
        if wrong.size:
            row = tuple(wrong[0])
            raise DataError(f"{cell_text(wrong[0])} sums to {sums[row]:.6f} instead of {int(expected[row[2]])}")

    def _check_vectors(self, weights: NDArray[Any]) -> None:
        layers, heads, m, n = weights.shape
        for name, tokens in (("q", m), ("k", n), ("v", n)):
            if getattr(self, name) is None:
                continue
            groups = self._numbers(name).shape[1]
            shape = getattr(self, name).shape
            shared = groups == heads if name == "q" else groups > 0 and heads % groups == 0
            if (shape[0], shape[2]) != (layers, tokens) or not shared:
                raise DataError(
                    f"{name} has the shape {shape_text(shape)}, which does not fit a map of {shape_text(weights)}"
                )
        if self.q is not None and self.k is not None and self.q.shape[3] != self.k.shape[3]:
            raise DataError(f"q and k have vectors of different widths, {self.q.shape[3]} and {self.k.shape[3]}")

    def _check_thumbnails(self, weights: NDArray[Any]) -> None:
        if weights.size <= MAX_JSON_NUMBERS and self.thumbnails is None:
            return
        computed = make_thumbnails(weights)
        if self.thumbnails is None:
            object.__setattr__(self, "thumbnails", computed)
            return
        saved = np.asarray(self.thumbnails)
        # Rounding to float16 may change a value by one shade.
        if saved.shape != computed.shape or np.abs(saved.astype(np.float32) - computed).max() > 1:
            raise DataError(f"the thumbnails, of shape {shape_text(saved)}, do not match the weights")
        object.__setattr__(self, "thumbnails", saved.astype(np.uint8))


def make_thumbnails(weights: NDArray[Any]) -> NDArray[np.uint8]:
    """[L, H, m, n] -> [L, H, up to 32, up to 32]: the largest weight of each region, from 0 to 255."""
    for side in (2, 3):
        length = weights.shape[side]
        if length > THUMBNAIL_CELLS:
            starts = np.arange(THUMBNAIL_CELLS) * length // THUMBNAIL_CELLS
            weights = np.maximum.reduceat(weights, starts, axis=side)
    return np.rint(np.clip(weights.astype(np.float32), 0, 1) * 255).astype(np.uint8)


def unit_rows(weights: NDArray[Any]) -> NDArray[np.float32]:
    """Scale rounded weights so that rows sum to one again, in float32; rows of zeros stay zero."""
    wide = weights.astype(np.float64)
    sums = wide.sum(-1, keepdims=True)
    return (wide / np.where(sums > 0, sums, 1.0)).astype(np.float32)


def shape_text(shape: NDArray[Any] | tuple[int, ...]) -> str:
    """Format a shape for a message."""
    return str(list(shape if isinstance(shape, tuple) else shape.shape))


def cell_text(index: NDArray[Any]) -> str:
    """Format the index of a row or a weight for a message."""
    names = ("layer", "head", "row", "column")
    return ", ".join(f"{name} {i}" for name, i in zip(names, index.tolist(), strict=False))
