"""Which models the GPU decoder can decode. It is asked before Triton is imported."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from regard.decoding import decoder_layout
from regard.decoding.decoder_layout import BLOCK_TRAITS, INPUT_TRAITS, all_modules, input_of, why_not_hooked
from regard.decoding.model_snapshot import ModelSnapshot
from regard.machine import has_triton, setting

DEVICES = ("cuda",)  # that capture graphs
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KNOWN_TRAITS = BLOCK_TRAITS | INPUT_TRAITS | {"position Sinusoidal", "position Learned"}
_accepted: WeakKeyDictionary[nn.Module, ModelSnapshot] = WeakKeyDictionary()  # models as they were when accepted


def why_not(model: Any) -> str | None:
    """Return the reason why the GPU decoder cannot take over this model's steps, or None if it can.

    A model that was accepted and has not changed since is not asked for its traits again.
    """
    if (reason := _why_not_device(model)) is not None:
        return reason
    snapshot = _accepted.get(model)
    if snapshot is not None and snapshot.matches(model):
        return None
    reason = why_not_hooked(all_modules(model)) or decoder_layout.why_not(model, KNOWN_TRAITS, runs_input=False)
    reason = reason or _why_not_weights(model)
    if reason is None:
        _accepted[model] = ModelSnapshot(model)
    return reason


def why_not_now(model: Any) -> str | None:
    """Return the reason that can change from step to step, or None; this is quick to ask."""
    return _why_not_device(model) or why_not_hooked(all_modules(model))


def _why_not_device(model: Any) -> str | None:
    """Return the reason that lies in the device and in the settings of the process, or None.

    To look for a fault, REGARD_GRAPHS=0 in the environment leaves all steps to the modules.
    """
    device = next(model.parameters()).device.type
    if device not in DEVICES:
        return f"it is on {device}, and CUDA graphs need cuda"
    if setting("REGARD_GRAPHS") == "0":
        return "REGARD_GRAPHS=0 switches the GPU decoder off"
    if torch.is_autocast_enabled(device):
        return "autocast is on, and the kernels compute in the dtype of the weights"
    if not has_triton():
        return "Triton is not installed"
    return None


def _why_not_weights(model: Any) -> str | None:
    weights = [*input_of(model).parameters(), *model.decoder.parameters(), model.output_table[0]]
    if len({weight.device for weight in weights}) > 1:
        return "its weights are on several devices"
    matrices = [weight for weight in weights if weight.dim() > 1]
    if any(type(weight) is not nn.Parameter for weight in matrices):
        return "its weights are packed for a CPU"
    dtypes = {weight.dtype for weight in matrices}
    if len(dtypes) > 1 or not dtypes <= {*DTYPES}:
        present, known = (", ".join(sorted(map(str, several))) for several in (dtypes, DTYPES))
        return f"its weights are {present}, and the kernels compute in one of {known}"
    return None
