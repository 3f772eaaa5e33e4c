"""What random_features.py times: causal attention of one size by regard's random features and by others.

B batch   H heads   L length   d width of queries, keys and values   F features
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.timing import Run
from regard.attention.linear.features import RandomFeatures
from regard.kernels.linear.attend import attend_features

d = 64
SDPA = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
MATH_UP_TO = 2048  # its scores are as many as L² for each head
COMPILED_AT = (2048, 65536)  # lengths for which the chunked form is compiled: each takes a while
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Cell:
    """One line of the table."""

    work: str  # "forward" or "backward" (forward and backward)
    L: int
    B: int
    H: int
    device: str

    def inputs(self) -> list[Tensor]:
        """q, k, v as a layer cuts them from one product: (B, H, L, d), the heads of a token side by side."""
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        draw = torch.Generator(self.device).manual_seed(self.L)
        rows = [torch.randn(self.B, self.L, self.H, d, device=self.device, generator=draw) for _ in range(3)]
        return [x.to(dtype).transpose(1, 2).requires_grad_(self.work == "backward") for x in rows]


def contenders(cell: Cell, counts: Sequence[int]) -> Iterator[tuple[str, Callable[[], Attention]]]:
    """Names, and how to make each; making or trying one may raise, which is what will be said of it."""
    fast = "triton" if cell.device == "cuda" else "chunked"
    for F in counts:
        yield f"regard {F}", lambda F=F: ours(cell, F, fast)
    if cell.device == "cuda":
        if cell.L in COMPILED_AT:
            yield "chunked 128", lambda: torch.compile(ours(cell, 128, "chunked"), fullgraph=True, dynamic=False)
        for name, backend in SDPA.items():
            if name != "math" or cell.L <= MATH_UP_TO:
                yield f"sdpa {name}", lambda backend=backend: sdpa(backend)
        yield "fla 128", lambda: linear(cell)
        yield "fla 128, features given", lambda: linear(cell, given=True)
    else:
        yield "sdpa", lambda: sdpa(None)
    yield "performer 128", lambda: performer(cell)


def ours(cell: Cell, F: int, backend: str) -> Attention:
    features = RandomFeatures(dim=d, features=F).to(cell.device)
    return lambda q, k, v: attend_features(q, k, v, features=features, causal=True, backend=backend)


def sdpa(backend: SDPBackend | None) -> Attention:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if backend is None:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return run


def phi(x: Tensor, W: Tensor) -> Tensor:
    """The features of `regard 128` of x (B, H, L, d), as (B, L, H, F)."""
    u = functional.normalize(x.transpose(1, 2).float(), dim=-1).to(x.dtype) @ W.mT  # of length 1: e^u is no danger
    return torch.cat([u.exp(), (-u).exp()], dim=-1)


@cache
def compiled_phi() -> Callable[..., Tensor]:
    return torch.compile(phi, dynamic=True)


def linear(cell: Cell, precomputed: bool = False) -> Attention:
    """flash-linear-attention, which wants (B, L, H, F), with the features of `regard 128`.

    They are made by compiled code, or once for all, before the clock starts.
    """
    chunk_linear_attn = importlib.import_module("fla.ops.linear_attn").chunk_linear_attn
    features = RandomFeatures(dim=d, features=128).to(cell.device)
    W = features.W[0].to(torch.bfloat16)
    if precomputed:
        cached: dict[int, Tensor] = {}

        def make(x: Tensor) -> Tensor:
            if id(x) not in cached:
                cached[id(x)] = phi(x.detach(), W).requires_grad_(x.requires_grad)
            return cached[id(x)]
    else:
        make = partial(compiled_phi(), W=W)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y, _ = chunk_linear_attn(make(q), make(k), v.transpose(1, 2), scale=1.0, normalize=True)
        return y.transpose(1, 2)

    return run


def performer(cell: Cell) -> Attention:
    """performer-pytorch, whose causal form without its extension in C++ is a loop over 128 parts of the text."""
    module = importlib.import_module("performer_pytorch.performer_pytorch")
    attention = module.FastAttention(dim_heads=d, nb_features=128, causal=True).to(cell.device)
    return attention.__call__


def timed(cell: Cell, attention: Attention, inputs: list[Tensor]) -> Run:
    """A call of the cell's work: the output, then the gradients of what it is computed from."""
    if cell.work == "forward":

        def run() -> Tensor:
            with torch.no_grad():
                return attention(*inputs)

        return run
    gradient = torch.randn_like(inputs[2])

    def both() -> tuple[Tensor, ...]:
        y = attention(*inputs)
        return y, *torch.autograd.grad(y, inputs, gradient, allow_unused=True)  # given features leave q and k out

    return both
