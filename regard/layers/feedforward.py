"""The position-wise feed-forward network: two matrices with a nonlinearity between, the same at every position.

Vaswani et al. 2017, section 3.3; E2.

Shapes: any leading dimensions (B, T), p model width (dim), d_ff inner width (hidden).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import unknown_name
from regard.layers.checks import check_like, check_width

Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu-tanh"]
GATED = ("swiglu", "geglu-tanh")


class FeedForward(nn.Module):
    """f(x W_1 + b_1) W_2 + b_2, with f = ReLU, GELU (exact, or the tanh approximation of GPT-2), SiLU, or gated.

    Vaswani et al. 2017, equation 2; GELU: Hendrycks & Gimpel 2016; SwiGLU: Shazeer 2020, equation 6; E2.

    SwiGLU is (silu(x W) * (x V)) W_2, with W and V stacked in one matrix, W first; in "geglu-tanh" the gate W goes
    through the approximated GELU. `dropout` acts on the inner layer;
    the dropout on the residual belongs to the block.
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
        stacked = 2 if activation in GATED else 1
        self.up = nn.Linear(dim, stacked * hidden, bias=bias)  # W_1, b_1
        self.down = nn.Linear(hidden, dim, bias=bias)  # W_2, b_2

    @property
    def traits(self) -> frozenset[str]:
        """What this layer computes; see regard.traits."""
        bias = {"feed-forward-bias"} if self.up.bias is not None else set()
        return frozenset({"feed-forward", f"activation {self.activation}", *bias})

    def forward(self, x: Tensor) -> Tensor:
        """x (…, p) -> (…, p), each position alone."""
        h = self._activate(self._project_up(x))
        return self.down(F.dropout(h, self.dropout, self.training))

    def _project_up(self, x: Tensor) -> Tensor:
        """x W_1 + b_1, (…, d_ff), or (…, 2·d_ff) if gated."""
        check_width(x, self.dim)
        check_like("x", x, self.up.weight)
        return self.up(x)

    def _activate(self, h: Tensor) -> Tensor:
        """f(h), (…, d_ff)."""
        if self.activation == "relu":
            return F.relu(h)
        if self.activation == "gelu":
            return F.gelu(h)
        if self.activation == "gelu-tanh":
            return gelu_tanh(h)
        if self.activation == "silu":
            return F.silu(h)
        gate, value = h.chunk(2, dim=-1)  # (…, d_ff) each
        return (F.silu(gate) if self.activation == "swiglu" else gelu_tanh(gate)) * value

    def extra_repr(self) -> str:
        return f"activation={self.activation}, dropout={self.dropout}"


def gelu_tanh(x: Tensor) -> Tensor:
    """Approximate GELU by 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).

    Hendrycks & Gimpel 2016, section 2. Compiled code uses (1 + tanh(u)) / 2 = sigmoid(2u), which takes a single
    exponential. The exact GELU is expensive there: 0.33 ms on an H200 to read and write 400 MB.
    """
    if torch.compiler.is_compiling():
        return x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    return F.gelu(x, approximate="tanh")
