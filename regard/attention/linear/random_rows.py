"""The random rows w_1 … w_M of feature maps: independent or orthogonal, and reproducible.

Rahimi & Recht 2007 (independent), Yu et al. 2016 (orthogonal); F2. Each single row is N(0, I) in both cases, so both
give unbiased features. Orthogonal rows are never similar, which lowers the variance where M <= d.

    H heads   M rows   d width of queries and keys
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from regard.errors import unknown_name

KINDS = ("orthogonal", "independent")


def draw_rows(
    rows: int, dim: int, *, heads: int = 1, kind: str = "orthogonal", seed: int = 0, number: int = 0
) -> Tensor:
    """Return W (heads, rows, dim) in float64: draw `number` of `seed`, which depends on the arguments only.

    W is drawn on the CPU, whatever the device of the model, so all processes of a training run draw the same W.
    """
    if kind not in KINDS:
        raise ValueError(unknown_name("draw", kind, KINDS))
    name = hashlib.sha256(f"random features, seed {seed}, draw {number}".encode()).digest()
    generator = torch.Generator(device="cpu").manual_seed(int.from_bytes(name[:8], "big", signed=True))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")

    if kind == "independent":
        return normal(heads, rows, dim)
    blocks = -(-rows // dim)
    q, r = torch.linalg.qr(normal(heads, blocks, dim, dim))
    # qr leaves the signs of the columns open. Without this line they are skewed, and positive features are biased.
    q = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    # The length of a row of N(0, I) has a chi distribution; it must be independent of q.
    lengths = normal(heads, blocks * dim, dim).norm(dim=-1, keepdim=True)
    return (lengths * q.flatten(1, 2))[:, :rows]
