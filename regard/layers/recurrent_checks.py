"""What recurrent layers ask of their input, and which calls PyTorch's implementation supports.

C1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.checks import check_like
from regard.layers.time_loop import State, state_sizes
from regard.machine import cpu_autocasts_lstm


def check_input(layer: nn.RNNBase, x: Tensor, start: State | None) -> None:
    """Raise TypeError or ValueError unless x and the initial state fit the layer."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, padded, with lengths= beside it, got {type(x).__name__}")
    if x.dim() not in (2, 3) or x.shape[-1] != layer.input_size:
        batch = "batch, time" if layer.batch_first else "time, batch"
        raise ValueError(
            f"x must be ({batch}, {layer.input_size}) or (time, {layer.input_size}), "
            f"since input_size is {layer.input_size}, got {tuple(x.shape)}"
        )
    if x.shape[_time_dim(layer, x)] == 0:
        raise ValueError(f"x must have at least one time step, got {tuple(x.shape)}")
    weight = next(layer.parameters())
    check_like("x", x, weight)
    batch_shape = () if x.dim() == 2 else (x.shape[1 - _time_dim(layer, x)],)
    for part, (rows, width) in zip(start or (), state_sizes(layer), strict=False):
        expected = (rows, *batch_shape, width)
        if part.shape != expected:
            raise ValueError(f"state must be {expected} for x {tuple(x.shape)}, got {tuple(part.shape)}")
        check_like("state", part, weight)


def check_lengths(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> None:
    """Raise TypeError or ValueError unless `lengths` (B,) has a length within x for each sequence."""
    if x.dim() == 2:
        raise ValueError(f"lengths belong to a batch; x is one sequence {tuple(x.shape)}")
    time = x.shape[_time_dim(layer, x)]
    batch = x.shape[1 - _time_dim(layer, x)]
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be whole numbers (torch.long), got {lengths.dtype}")
    if lengths.shape != (batch,):
        raise ValueError(f"lengths must be ({batch},), one for each sequence, got {tuple(lengths.shape)}")
    if batch == 0 or lengths.is_cuda:  # reading them would synchronize with the GPU
        return
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest < 1 or longest > time:
        raise ValueError(f"lengths must lie in 1..{time}, the time steps of x, got {shortest}..{longest}")


def kernel_obstacle(layer: nn.RNNBase, x: Tensor, lengths: Tensor | None) -> str | None:
    """Return the reason why PyTorch's implementation does not support the call, or None if it does.

    This function cannot see torch.func.vmap and forward-mode derivatives: use backend="reference" there.
    """
    if lengths is not None and lengths.numel() == 0:
        return "torch does not pack an empty batch"
    if x.device.type == "mps" and layer.proj_size > 0:
        return "torch has no LSTM projection on MPS"
    if x.device.type == "cpu" and layer.mode == "LSTM" and torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        if not cpu_autocasts_lstm(dtype):
            return f"torch's LSTM does not run under autocast to {dtype} on this CPU"
    cudnn = x.device.type == "cuda" and torch.backends.cudnn.enabled
    if cudnn and not layer.training and torch.is_grad_enabled():
        return "cuDNN has no gradient in eval mode, and torch.no_grad() is off"
    return None


def _time_dim(layer: nn.RNNBase, x: Tensor) -> int:
    return 1 if layer.batch_first and x.dim() == 3 else 0
