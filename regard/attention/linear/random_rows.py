"""The random rows w_1 … w_M that features are made with: independent or orthogonal, and always the same ones again.

Rahimi & Recht 2007 (independent), Yu et al. 2016 (orthogonal); F2. Each row by itself is N(0, I) in both kinds, so
both give features without bias. Orthogonal rows are never alike, which lowers the variance where M <= d.

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
    """W, (heads, rows, dim) in float64: draw `number` of `seed`, a function of its arguments and of nothing else.

    It is made on the CPU, whatever the device of the model, so all processes of a training draw the same.
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
    # qr fixes the sign of no column. Without this line the columns lean to one side, and positive features are biased.
    q = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    # A row of N(0, I) has a length of its own, from the chi distribution: taken from other numbers than q.
    lengths = normal(heads, blocks * dim, dim).norm(dim=-1, keepdim=True)
    return (lengths * q.flatten(1, 2))[:, :rows]
