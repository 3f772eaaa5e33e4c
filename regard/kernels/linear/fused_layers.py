"""The fused form of RandomFeatureAttention: Triton kernels on NVIDIA GPUs, C on a CPU, the plain layer elsewhere.

F3. `regard.kernels.fuse` replaces the class of each plain layer whose traits are known here. The fused layer has the
same parameters, buffers and results; at each call it asks the kernels whether they can do it.

    B batch   H heads   G key-value heads   r = H/G   d, e widths of keys and values
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.attention.linear import step
from regard.attention.linear.cache import FeatureCache
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.state import FeatureState
from regard.kernels.fused_class import FusedClass
from regard.kernels.linear import capabilities
from regard.kernels.linear.attend import attend_features
from regard.kernels.linear.capabilities import why_not_step
from regard.kernels.native import linear_step
from regard.traits import own_traits, why_not_known, why_unknown

KNOWN_TRAITS = frozenset(
    {
        *("random-features", "grouped-query", "head-widths", "input-widths", "gate", "key-dropout"),
        *("no-output", "attention-bias"),
    }
)


def take_step(
    x: Tensor, v: Tensor, *, features: RandomFeatures, gate: Tensor | None, state: FeatureState
) -> Tensor:  # fmt: skip
    """Take the step of one token (see regard.attention.linear.step) by one Triton kernel where it can."""
    if why_not_step(x, v, features, state) is not None:
        return step.take_step(x, v, features=features, gate=gate, state=state)
    from regard.kernels.linear.step_triton import take_step_fused

    return take_step_fused(x, v, features=features, gate=gate, state=state)


class FusedRandomFeatureAttention(FusedClass, RandomFeatureAttention):
    """RandomFeatureAttention with kernels: for whole sequences, and for the step of a decoder."""

    traits = RandomFeatureAttention.traits
    attend: ClassVar[Callable[..., Any]] = staticmethod(attend_features)
    take_step: ClassVar[Callable[..., Tensor]] = staticmethod(take_step)

    @classmethod
    def why_not_fuse(cls, module: nn.Module) -> str | None:
        """Return why a layer must stay plain, or None. The position scheme does not matter to the GPU kernels."""
        assert isinstance(module, RandomFeatureAttention)
        return why_not_known(own_traits(module), KNOWN_TRAITS) or why_unknown(
            module.features, capabilities.KNOWN_TRAITS
        )

    @cached_property
    def why_no_c_step(self) -> str | None:
        """Why the step in C does not fit this layer, or None; asked once, because a step takes microseconds."""
        return linear_step.why_not(self)

    def _step_heads(self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, cache: FeatureCache) -> Tensor:
        if q.device.type == "cpu" and not torch.compiler.is_compiling() and self.why_no_c_step is None:
            y = linear_step.step_in_c(
                q, k, v, features=self.features, position=self.position, gate=gate, cache=cache
            )  # fmt: skip
            if y is not None:
                return y
        return super()._step_heads(q, k, v, gate, cache)
