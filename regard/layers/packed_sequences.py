"""Run PyTorch's recurrent kernels on sequences of different lengths, outside of compiled graphs.

C1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@torch.compiler.disable  # type: ignore[untyped-decorator]  # graphs cannot contain these kernels
def run_packed(
    layer: nn.RNNBase, kernels: Callable[..., tuple[Any, Any]], x: Tensor, state: Any, lengths: Tensor | None
) -> tuple[Tensor, Any]:
    """Return the output and last state of the kernels, computed on a packed sequence if there are lengths."""
    if lengths is None:
        return kernels(layer, x, state)
    first = layer.batch_first
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=first, enforce_sorted=False)
    y, last = kernels(layer, packed, state)
    y, _ = pad_packed_sequence(y, batch_first=first, total_length=x.shape[1 if first else 0])
    return y, last
