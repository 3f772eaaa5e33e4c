"""The feed-forward network with activation, dropout and the gradient of b_1 in one kernel."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels.fp8.linear import Fp8Linear, linear_with_constant_bias
from regard.kernels.fp8.scales import training_scales
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
        return super().forward(x) if self.why_not(x) is not None else self._run(x, seed=None, detach_bias=False)

    def why_not(self, x: Tensor) -> str | None:
        """Return the reason why the kernel cannot compute the inner layer, or None if it can."""
        if self.activation not in ACTIVATIONS:
            return "the kernel has ReLU and GELU by tanh only"
        if not is_plain(self.up, nn.Linear, Fp8Linear):
            return "the first matrix was replaced or hooked"
        return why_not_train(self, KNOWN, x, self.dropout)

    def _run(self, x: Tensor, seed: Tensor | None, *, detach_bias: bool) -> Tensor:
        """Both products and the kernel between them; with `detach_bias` another kernel computes the gradient of b_2."""
        check_width(x, self.dim)
        check_like("x", x, self.up.weight)
        if seed is None and self.dropout:
            seed = draw_seed(x)
        relu, down_bias = self.activation == "relu", self.down.bias.detach() if detach_bias else self.down.bias
        up_amax, down_amax = training_scales(self.up), training_scales(self.down)
        if up_amax is not None and down_amax is not None and is_plain(self.down, Fp8Linear):
            from regard.kernels.fp8.feed_forward_triton import fp8_feed_forward

            weights = self.up.weight, self.up.bias, self.down.weight, down_bias
            return fp8_feed_forward(x, *weights, seed, self.dropout, relu, up_amax, down_amax)[0]
        from regard.kernels.training.feed_forward_triton import activated

        h = linear_with_constant_bias(self.up, x)  # the kernel computes the gradient of b_1
        h, _ = activated(h, self.up.bias, seed, self.dropout, relu)
        return linear_with_constant_bias(self.down, h) if detach_bias else self.down(h)

    def _in_block(self, x: Tensor, *, seed: Tensor | None, detach_bias: bool) -> Tensor:
        """Run inside a FusedBlock, which supplies the seed and, with `detach_bias`, computes the gradient of b_2."""
        if self.why_not(x) is None:
            return self._run(x, seed, detach_bias=detach_bias)
        h = F.dropout(self._activate(self._project_up(x)), self.dropout, self.training)
        return linear_with_constant_bias(self.down, h) if detach_bias else self.down(h)
