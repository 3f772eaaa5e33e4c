"""The feed-forward network with activation, dropout and the gradient of b_1 in one kernel."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels.fp8.linear import Fp8Linear, linear_with_constant_bias
from regard.kernels.fused_class import FusedClass
from regard.kernels.training.fused_dropout import draw_seed, is_plain, why_not_train
from regard.layers.checks import check_like, check_width
from regard.layers.feedforward import FeedForward

ACTIVATIONS = ("relu", "gelu-tanh")  # of the kernel
KNOWN = frozenset(
    {
        "feed-forward",
        "feed-forward-bias",
        "activation relu",
        "activation gelu",
        "activation gelu-tanh",
        "activation swiglu",
    }
)


class FusedFeedForward(FusedClass, FeedForward):
    """FeedForward in training on NVIDIA GPUs."""

    traits = FeedForward.traits

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.why_not(x) is not None else self.down(self._inner(x, seed=None))

    def why_not(self, x: Tensor) -> str | None:
        """Return the reason why the kernel cannot compute the inner layer, or None if it can."""
        if self.activation not in ACTIVATIONS:
            return "the kernel has ReLU and GELU by tanh only"
        if not is_plain(self.up, nn.Linear, Fp8Linear):
            return "the first matrix was replaced or hooked"
        return why_not_train(self, KNOWN, x, self.dropout)

    def _inner(self, x: Tensor, seed: Tensor | None) -> Tensor:
        """dropout(f(x W_1 + b_1)), (…, d_ff). The kernel computes the gradient of b_1, so the product detaches b_1."""
        from regard.kernels.training.feed_forward_triton import activated

        check_width(x, self.dim)
        check_like("x", x, self.up.weight)
        bias: Tensor | None = self.up.bias
        h = linear_with_constant_bias(self.up, x)
        if seed is None and self.dropout:
            seed = draw_seed(h)
        h, _ = activated(h, bias, seed, self.dropout, self.activation == "relu")
        return h

    def _in_block(self, x: Tensor, *, seed: Tensor | None, detach_bias: bool) -> Tensor:
        """Run inside a FusedBlock, which supplies the seed and, with `detach_bias`, computes the gradient of b_2."""
        if self.why_not(x) is not None:
            h = F.dropout(self._activate(self._project_up(x)), self.dropout, self.training)
        else:
            h = self._inner(x, seed)
        return linear_with_constant_bias(self.down, h) if detach_bias else self.down(h)
