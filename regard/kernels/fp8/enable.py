"""Train a model with products of 8-bit numbers: which of its layers, and on which devices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.kernels.devices import runs_triton
from regard.kernels.fp8.casts import MULTIPLE
from regard.kernels.fp8.linear import Fp8Linear
from regard.kernels.fp8.scales import Fp8Scales
from regard.kernels.training.fused_attention import FusedStackedProjection
from regard.kernels.training.fused_feed_forward import FusedFeedForward
from regard.machine import compute_capability
from regard.models.protocols import TokenPredictor

HOPPER = (9, 0)  # compute capability


def why_not_fp8(device: torch.device) -> str | None:
    """Return the reason why a device has no products of 8-bit numbers, or None if it has."""
    if device.type != "cuda":
        return f"it needs an NVIDIA GPU, and the device is {device.type}"
    if compute_capability(device) < HOPPER:
        return "it needs an NVIDIA GPU of the Hopper generation (H100) or later"
    if not runs_triton(device):
        return "it needs Triton, which is not installed"
    return None


def enable_fp8(model: nn.Module) -> None:
    """Let the wide layers of a fused model multiply 8-bit numbers in training, in place."""
    layers = [layer for layer in _layers(model) if _fits(layer.weight)]
    if not layers:
        raise UsageError(
            "no layer of this model can multiply 8-bit numbers: it has no layers of a Transformer, or their widths are "
            "no multiples of 16; train it in bf16"
        )
    scales = Fp8Scales(len(layers) + _has_wide_output(model), next(model.parameters()).device)
    for layer, amax in zip(layers, scales.amax, strict=False):
        if type(layer) is nn.Linear:
            layer.__class__ = Fp8Linear
        layer.fp8_amax = amax
    if _has_wide_output(model):
        scales.output = scales.amax[-1]
    model.fp8_scales = scales  # type: ignore[assignment]


def disable_fp8(model: nn.Module) -> None:
    """Undo `enable_fp8`."""
    for module in model.modules():
        for name in ("fp8_amax", "fp8_scales"):
            module.__dict__.pop(name, None)


def all_scales(model: nn.Module) -> Fp8Scales | None:
    """Return the scales of a model that was enabled, or None."""
    return getattr(model, "fp8_scales", None)


def output_scales(model: object) -> Tensor | None:
    """Return the `amax` (3, 2) of the output layer, or None if it is not trained in 8 bits."""
    if not isinstance(model, nn.Module) or not model.training or not torch.is_grad_enabled():
        return None
    scales = all_scales(model)
    return None if scales is None else scales.output


def _has_wide_output(model: nn.Module) -> bool:
    """Whether the scores over the vocabulary can be products of 8-bit numbers."""
    if not isinstance(model, TokenPredictor):
        return False
    weight, bias = model.output_table
    return bias is None and _fits(weight)


def _layers(model: nn.Module) -> Iterator[nn.Linear | FusedStackedProjection]:
    """The wide layers of the blocks.

    The output projection of attention stays in bfloat16: its casts take longer than its products save.
    """
    for module in model.modules():
        if type(module) is FusedStackedProjection:
            yield module
        elif type(module) is FusedFeedForward:
            yield from (layer for layer in (module.up, module.down) if type(layer) is nn.Linear)


def _fits(weight: Tensor) -> bool:
    """Whether both sizes of a weight are multiples of 16, as the products need it."""
    return all(size % MULTIPLE == 0 for size in weight.shape)
