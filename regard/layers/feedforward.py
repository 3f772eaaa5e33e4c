"""The position-wise feed-forward net: two matrices with a nonlinearity between, the same at every position.

Vaswani et al. 2017, section 3.3; E2.

Shapes: any leading dimensions (B, T), p model width (dim), d_ff inner width (hidden).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import unknown_name
from regard.kernels.training.fused_dropout import draw_seed, draws
from regard.layers.checks import check_like, check_width

Activation = Literal["relu", "gelu", "gelu-tanh", "swiglu"]


class FeedForward(nn.Module):
    """f(x W_1 + b_1) W_2 + b_2, with f = ReLU, GELU (exact, or by tanh as in GPT-2), or gated: SwiGLU.

    Vaswani et al. 2017, equation 2; GELU: Hendrycks & Gimpel 2016; SwiGLU: Shazeer 2020, equation 6; E2.

    SwiGLU is (silu(x W) * (x V)) W_2, with W and V stacked in one matrix, W first. Dropout falls on the inner layer;
    the dropout on what a block adds to its residual is the block's.
    """

    def __init__(
        self,
        *,
        dim: int,
        hidden: int,
        activation: Activation = "relu",
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if dim < 1 or hidden < 1:
            raise ValueError(f"dim and hidden must be at least 1, got {dim} and {hidden}")
        if activation not in get_args(Activation):
            raise ValueError(unknown_name("activation", activation, get_args(Activation)))
        if not 0.0 <= dropout <= 1.0:
            raise ValueError(f"dropout must lie in 0..1, got {dropout}")
        self.dim = dim
        self.activation = activation
        self.dropout = dropout
        stacked = 2 if activation == "swiglu" else 1
        self.up = nn.Linear(dim, stacked * hidden, bias=bias)  # W_1, b_1
        self.down = nn.Linear(hidden, dim, bias=bias)  # W_2, b_2

    @property
    def traits(self) -> frozenset[str]:
        """What this layer computes; see regard.traits."""
        bias = {"feed-forward-bias"} if self.up.bias is not None else set()
        return frozenset({"feed-forward", f"activation {self.activation}", *bias})

    def forward(self, x: Tensor, *, constant_bias: bool = False, seed: Tensor | None = None) -> Tensor:
        """x (…, p) -> (…, p), each position alone; if `constant_bias`, b_2 gets no gradient here.

        A kernel that draws dropout itself takes it from `seed`, or else from one of its own.
        """
        check_width(x, self.dim)
        check_like("x", x, self.up.weight)
        if self.activation in ("relu", "gelu-tanh") and self.training and draws("hidden", x, self.dropout):
            from regard.kernels.training.feed_forward_triton import activated

            bias: Tensor | None = self.up.bias
            h = F.linear(x, self.up.weight, None if bias is None else bias.detach())  # (…, d_ff)
            if seed is None and self.dropout:
                seed = draw_seed(h)
            h, _ = activated(h, bias, seed, self.dropout, self.activation == "relu")
            return self._down(h, constant_bias)
        h = self.up(x)  # (…, d_ff), or (…, 2·d_ff) for SwiGLU
        if self.activation == "relu":
            h = F.relu(h)
        elif self.activation == "gelu":
            h = F.gelu(h)
        elif self.activation == "gelu-tanh":
            h = gelu_tanh(h)
        else:
            gate, value = h.chunk(2, dim=-1)  # (…, d_ff) each
            h = F.silu(gate) * value
        return self._down(F.dropout(h, self.dropout, self.training), constant_bias)

    def _down(self, h: Tensor, constant_bias: bool) -> Tensor:
        return F.linear(h, self.down.weight, self.down.bias.detach()) if constant_bias else self.down(h)

    def extra_repr(self) -> str:
        return f"activation={self.activation}, dropout={self.dropout}"


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).

    Hendrycks & Gimpel 2016, section 2. (1 + tanh(u)) / 2 = sigmoid(2u), which compiled code
    writes with one exponential. The exact GELU is costly there: 0.33 ms on an H200 to read and write 400 MB.
    """
    if torch.compiler.is_compiling():
        return x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    return F.gelu(x, approximate="tanh")
