"""Sinusoidal positions: the table, its properties, and the scheme that adds its rows to the embeddings.

Vaswani et al. 2017, section 3.5; B2, B3, B4.

Letters: B batch, T length, D width of the model.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import unknown_name
from regard.positions.interface import ModelSizes, Position, check_positions, check_size, check_width

Layout = Literal["interleaved", "halves"]


def sinusoidal(
    length: int,
    dim: int,
    *,
    start: int = 0,
    base: float = 10000.0,
    layout: Layout = "interleaved",
    first: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the table of sinusoidal positions, (length, dim).

    Vaswani et al. 2017, section 3.5; B2: PE(pos, 2i) = sin(pos / base^(2i/d)), PE(pos, 2i+1) = cos(the same).

    start is the first row's pos (0; L1 counts from 1), first is the first i (0; L0 starts at 1). layout
    "interleaved" is the formula's order, "halves" has all sines before all cosines. The table is computed in
    float64 and then cast. An odd dim is allowed and ends with a sine that has no cosine. Two properties of B3 then
    fail: inner products depend on more than the distance, and no rotation advances a position by k steps.

    >>> sinusoidal(length=2, dim=4)  # the rows are positions 0 and 1: sin, cos of 1 · pos, sin, cos of pos / 100
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    check_size("length", length, least=0)
    _check_sinusoidal(dim, base, layout)
    # On the CPU, because not every device has float64; the pictures and properties of B3 need it.
    positions = torch.arange(start, start + length)
    table = _waves(positions, dim=dim, base=base, layout=layout, first=first, precision=torch.float64)
    return table.to(device=device, dtype=dtype)


def inner_products(table: Tensor) -> Tensor:
    """Return the inner product of each pair of rows, (T, T), in the table's precision; B3.

    For sinusoidal rows of even width it is the sum over i of cos((t - t') / base^(2i/d)).
    """
    if table.ndim != 2:
        raise ValueError(f"table must be (length, dim), not {tuple(table.shape)}")
    return table @ table.T


def distance_variance(dim: int, distances: int = 50, *, base: float = 10000.0) -> Tensor:
    """Return the variance over distances of the inner product of the first k dimensions; B4.

    One value for each k = 2, 4, …, dim (dim / 2 values, float64): the variance of the inner product of the first k
    columns of two sinusoidal rows, over a distance |t - t'| that is uniform on 0 … distances - 1.
    """
    _check_even(dim)
    check_size("distances", distances)
    table = sinusoidal(distances, dim, base=base, dtype=torch.float64)
    # Row 0 is (0, 1, 0, 1, …): its product with row t keeps the cosines of t, which are B3's terms.
    products = table[:, 1::2].cumsum(-1)  # (distances, dim / 2), k = 2, 4, …, dim
    return products.var(0, correction=0)


def rotation(k: int, dim: int, *, base: float = 10000.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the (dim, dim) matrix R that advances positions by k steps: p_{t+k} = R p_t for every t; B3.

    It rotates each pair (sin, cos) of the interleaved table by k / base^(2i/d): the angle-addition formulas.
    """
    _check_even(dim)
    p = sinusoidal(1, dim, start=k, base=base, dtype=torch.float64)[0]
    sine, cosine = p[0::2], p[1::2]
    pairs = torch.stack((cosine, sine, -sine, cosine), -1).view(-1, 2, 2)  # (dim / 2, 2, 2)
    return torch.block_diag(*pairs).to(dtype)


class Sinusoidal(Position):
    """Sinusoidal positions added to the embeddings, with no limit on the length.

    Vaswani et al. 2017, section 3.5; B2. The arguments are those of the function `sinusoidal`.
    """

    def __init__(
        self, *, dim: int, start: int = 0, base: float = 10000.0, layout: Layout = "interleaved", first: int = 0
    ) -> None:
        super().__init__()
        _check_sinusoidal(dim, base, layout)
        self.dim, self.start, self.base, self.layout, self.first = dim, start, base, layout, first
        self._cached_rows = torch.empty(0, dim)  # rows from position 0 on

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        layout: Layout = sizes.layout  # type: ignore[assignment]  # checked by __init__
        return cls(dim=sizes.dim, start=sizes.start, first=sizes.first, base=sizes.base, layout=layout)

    @property
    def traits(self) -> frozenset[str]:
        # Not super().traits, which torch.compile cannot trace.
        options = {"sinusoidal-start"} if self.start or self.first else set()
        return frozenset({self._scheme_trait()} | options)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_width("x", x, self.dim)
        check_positions("positions", positions, batch=x.shape[0], length=x.shape[-2])
        return x + self.rows(positions, x.dtype)  # (T, D) or (B, T, D) onto (B, T, D)

    def rows(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the vectors of these positions, (T, D) or (B, T, D).

        They are computed in every call. A stored table could be too short for a longer sentence, `.to(bfloat16)` would
        round it, and a model built on the meta device would leave it empty. Only inference on a CPU caches rows for the
        next token: there, reading the positions costs nothing and computing sines is slow.
        """
        cacheable = not torch.is_grad_enabled() and not torch.compiler.is_compiling() and positions.device.type == "cpu"
        if not cacheable or not positions.numel():
            return self._waves(positions).to(dtype)
        low, high = (int(end) for end in positions.aminmax())
        if low < 0:
            return self._waves(positions).to(dtype)
        if high >= len(self._cached_rows) or dtype is not self._cached_rows.dtype:
            with torch.inference_mode(False):  # an inference tensor could not be used outside of inference mode
                self._cached_rows = self._waves(torch.arange(max(64, 2 * high))).to(dtype)
        return F.embedding(positions, self._cached_rows)

    def _waves(self, positions: Tensor) -> Tensor:
        # Apple's GPUs have no float64.
        precision = torch.float32 if positions.device.type == "mps" else torch.float64
        return _waves(
            positions + self.start,
            dim=self.dim,
            base=self.base,
            layout=self.layout,
            first=self.first,
            precision=precision,
        )

    def extra_repr(self) -> str:
        return f"dim={self.dim}, start={self.start}, base={self.base}, layout={self.layout!r}, first={self.first}"


def _waves(positions: Tensor, *, dim: int, base: float, layout: Layout, first: int, precision: torch.dtype) -> Tensor:
    """Compute B2's sines and cosines at the given positions, (…, T) -> (…, T, dim)."""
    i = torch.arange(first, first + (dim + 1) // 2, device=positions.device, dtype=precision)
    angles = positions[..., None] * base ** (-2 * i / dim)  # (…, T, ceil(dim / 2))
    sine, cosine = angles.sin(), angles.cos()
    if layout == "halves":
        return torch.cat((sine, cosine[..., : dim // 2]), -1)
    return torch.stack((sine, cosine), -1).flatten(-2)[..., :dim]


def _check_sinusoidal(dim: int, base: float, layout: str) -> None:
    check_size("dim", dim)
    if not base > 0:
        raise ValueError(f"base must be positive, not {base}")
    if layout not in ("interleaved", "halves"):
        raise ValueError(unknown_name("layout", layout, ("interleaved", "halves")))


def _check_even(dim: int) -> None:
    check_size("dim", dim)
    if dim % 2:
        raise ValueError(
            f"dim must be even, not {dim}: the last sine of an odd width has no cosine, so this fails (B3)"
        )
