"""Absolute positions: a vector for each position, combined with the embeddings before the first block.

Letters: B batch, T length, D width of the model.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import DataError, UsageError, unknown_name
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


def fraction(length: int, dim: int) -> Tensor:
    """Return the first rejected idea, (length, dim): each column runs from 0 at the first word to 1 at the last; B5.

    Rejected because one step is a different distance in sentences of different lengths, so a difference does not
    give the number of words between two positions; and the length is unknown while a sentence is being generated.
    """
    check_size("length", length, least=0)
    check_size("dim", dim)
    return torch.linspace(0, 1, length)[:, None].expand(length, dim).contiguous()


def index(length: int, dim: int) -> Tensor:
    """Return the second rejected idea, (length, dim): each column is the word's number 1, 2, 3, …; B5.

    Rejected because the numbers grow without bound, dominate the embedding they are added to, and in long sentences
    reach values that never occurred in training.
    """
    check_size("length", length, least=0)
    check_size("dim", dim)
    return torch.arange(1.0, length + 1)[:, None].expand(length, dim).contiguous()


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


class Learned(Position):
    """A trained vector for each position up to a limit, as in the OpenAI models.

    Radford et al. 2018, equation 2; B6. Undefined past max_length. mode "add" adds it to the embedding (L4),
    "concat" appends `width` columns to it (L1), which makes embeddings wider: see `out_dim`.
    """

    limited = True

    def __init__(
        self, *, max_length: int, dim: int, mode: Literal["add", "concat"] = "add", width: int | None = None
    ) -> None:
        super().__init__()
        check_size("max_length", max_length)
        check_size("dim", dim)
        if mode not in ("add", "concat"):
            raise ValueError(unknown_name("mode", mode, ("add", "concat")))
        if (mode == "concat") != (width is not None):
            raise ValueError(f"width is the number of columns that mode='concat' appends; got {mode=}, {width=}")
        if width is not None:
            check_size("width", width)
        self.max_length, self.dim, self.mode = max_length, dim, mode
        self.table = nn.Parameter(torch.empty(max_length, dim if width is None else width))
        self.reset_parameters()

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        if sizes.max_length is None:
            raise UsageError("position 'learned' needs max_length, the length of the longest sequence")
        if sizes.width is None:
            return cls(max_length=sizes.max_length, dim=sizes.dim)
        return cls(max_length=sizes.max_length, dim=sizes.dim - sizes.width, mode="concat", width=sizes.width)

    @property
    def traits(self) -> frozenset[str]:
        return super().traits | ({"learned-concat"} if self.mode == "concat" else set())

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def out_dim(self, dim: int) -> int:
        return dim + self.table.shape[1] if self.mode == "concat" else dim

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_width("x", x, self.dim)
        check_positions("positions", positions, batch=x.shape[0], length=x.shape[-2])
        self._check_limit(positions)
        rows = F.embedding(positions, self.table).to(x.dtype)  # (T, D) or (B, T, D)
        if self.mode == "add":
            return x + rows
        return torch.cat((x, rows.expand(*x.shape[:-1], -1)), -1)  # (B, T, D + width)

    def _check_limit(self, positions: Tensor) -> None:
        # Reading the values would synchronize with a GPU or break a graph. There, a position past the limit in a short
        # sequence is left to the range check of the lookup.
        length = positions.shape[-1]
        if positions.device.type == "cpu" and not torch.compiler.is_compiling() and positions.numel():
            low, high = (int(end) for end in positions.aminmax())
            if low < 0:
                raise ValueError(f"positions must count from 0, but the lowest is {low}")
            length = high + 1
        if length > self.max_length:
            raise DataError(
                f"a sequence of length {length} has no learned positions past the trained length {self.max_length}: "
                "shorten it, train with a larger max_length, or use a scheme without a limit, such as "
                "'sinusoidal' or 'rotary'"
            )

    def extra_repr(self) -> str:
        width = f", width={self.table.shape[1]}" if self.mode == "concat" else ""
        return f"max_length={self.max_length}, dim={self.dim}, mode={self.mode!r}{width}"


class Fraction(Position):
    """The first rejected idea: the relative position between the first word (0) and the last (1), added to each column.

    B5; see the function `fraction` for why it is rejected. The last word of a row is the one with the highest
    position. Rows must start at position 0, as whole sentences do. Otherwise this raises an error on the CPU and gives
    NaN in compiled code and on other devices, where checking would force a synchronization.
    """

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        check_size("dim", dim)
        self.dim = dim

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        return cls(dim=sizes.dim)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_width("x", x, self.dim)
        check_positions("positions", positions, batch=x.shape[0], length=x.shape[-2])
        if positions.numel() == 0:
            return x
        starts = positions[..., :1] == 0  # (1,) or (B, 1)
        if positions.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(starts.all()):
            raise UsageError(
                "positions must start at 0: a fraction needs the whole sentence, and its length is unknown while it is "
                "being generated, which is why this idea is rejected; decode without a cache or with another scheme"
            )
        last = positions.amax(-1, keepdim=True).clamp(min=1)
        share = torch.where(starts, positions / last, torch.nan)  # (T,) or (B, T)
        return x + share[..., None].to(x.dtype)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Index(Position):
    """The second rejected idea: the number 1, 2, 3, … of the word, added to each column.

    B5; see the function `index` for why it is rejected.
    """

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        check_size("dim", dim)
        self.dim = dim

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        return cls(dim=sizes.dim)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_width("x", x, self.dim)
        check_positions("positions", positions, batch=x.shape[0], length=x.shape[-2])
        return x + (positions + 1)[..., None].to(x.dtype)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


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
