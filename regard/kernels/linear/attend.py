"""`regard.attend_features`: random-feature attention by Triton kernels where they can, by PyTorch elsewhere.

B batch   H heads   G key-value heads   m queries   n keys   d, e widths   M rows of W
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.nn import functional

from regard.attention.checks import without_heads
from regard.attention.linear import dispatch
from regard.attention.linear.dispatch import CheckedInputs, check_inputs
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.state import FeatureState
from regard.attention.masks.algebra import Mask
from regard.errors import unknown_name
from regard.kernels.devices import runs_triton
from regard.kernels.linear.capabilities import kernel_map, why_not_attend

BACKENDS = ("auto", "triton", "chunked", "reference")
Backend = Literal["auto", "triton", "chunked", "reference"]


@overload
def attend_features(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    features: RandomFeatures,
    mask: Mask | Tensor | None = ...,
    causal: bool = ...,
    gate: Tensor | None = ...,
    state: FeatureState | None = ...,
    backend: Backend = ...,
    chunk: int | None = ...,
    return_state: Literal[False] = ...,
    return_weights: Literal[False] = ...,
) -> Tensor: ...
@overload
def attend_features(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    features: RandomFeatures,
    mask: Mask | Tensor | None = ...,
    causal: bool = ...,
    gate: Tensor | None = ...,
    state: FeatureState | None = ...,
    backend: Backend = ...,
    chunk: int | None = ...,
    return_state: Literal[True],
    return_weights: Literal[False] = ...,
) -> tuple[Tensor, FeatureState]: ...
@overload
def attend_features(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    features: RandomFeatures,
    mask: Mask | Tensor | None = ...,
    causal: bool = ...,
    gate: Tensor | None = ...,
    backend: Backend = ...,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def attend_features(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    features: RandomFeatures,
    mask: Mask | Tensor | None = None,
    causal: bool = False,
    gate: Tensor | None = None,
    state: FeatureState | None = None,
    backend: Backend = "auto",
    chunk: int | None = None,
    return_state: bool = False,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, FeatureState] | tuple[Tensor, Tensor]:
    """Estimate softmax attention by random features, with Triton kernels where they can be used.

    The backend "triton" insists on the kernels, and raises a ValueError with the reason where they cannot be used;
    "auto" takes them where they can, and "chunked" otherwise.
    """
    if backend not in BACKENDS:
        raise ValueError(unknown_name("backend", backend, BACKENDS))
    if not return_weights and (backend == "triton" or (backend == "auto" and chunk is None and runs_triton(q.device))):
        inputs = check_inputs(q, k, v, features=features, mask=mask, causal=causal, gate=gate, state=state)
        reason = why_not_attend(*inputs[:3], features, inputs.gate, inputs.causal, state, return_state)
        if reason is None:
            y, state_after = run_kernels(inputs, features, state, return_state=return_state)
            y = without_heads(y, inputs.rank)
            return y if state_after is None else (y, state_after)
        if backend == "triton":
            raise ValueError(f"backend 'triton' cannot do this: {reason}")
    plain: Callable[..., Any] = dispatch.attend_features  # whose overloads say what is returned
    return plain(
        q, k, v, features=features, mask=mask, causal=causal, gate=gate, state=state,
        backend="auto" if backend == "triton" else backend, chunk=chunk, return_state=return_state,
        return_weights=return_weights,
    )  # fmt: skip


# The arguments are described once, where the plain form is.
attend_features.__doc__ = f"{attend_features.__doc__ or ''}\n{dispatch.attend_features.__doc__ or ''}"


def run_kernels(
    inputs: CheckedInputs, features: RandomFeatures, state: FeatureState | None, *, return_state: bool
) -> tuple[Tensor, FeatureState | None]:
    """Return the output (B, H, m, e), and the state after the last key if `return_state`."""
    from regard.kernels.linear.operators import attend_directly, attend_walk, needs_operator, sum_up

    q, k, v, keep, causal, gate, _ = inputs
    c, log_g = key_weights(k, keep, gate)
    is_direct = not needs_operator(q, k, v, gate, features.sigma)
    a = key_factors(features, q.device, remembered=is_direct)
    normalize = features.normalize and not features.map.raw
    before = (None, None, None) if state is None else (state.S, state.z, state.log_scale)
    tensors = (features.W, a, c, log_g, *before)
    map, (sign, *numbers, floor) = kernel_map(features)
    log_scales = needs_log_scales(q.dtype, features, log_g)
    if (
        not log_scales and normalize
    ):  # with log_scales it is for sums that are divided by the weight of the heaviest key
        floor *= math.exp(sign * features.scale / 2)
    options = (normalize, features.sigma is not None, log_scales, map, (sign, *numbers, floor), 0)
    attend: Callable[..., tuple[Tensor, Tensor, Tensor]] = attend_directly if is_direct else attend_walk
    y, _, _ = attend(q, k, v, *tensors, causal, *options)
    if not return_state:
        return y, None
    S, z, log_scale = sum_up(k, v, *tensors, *options)
    log_decay = torch.zeros_like(log_scale) if state is None else state.log_decay
    log_decay = log_decay if log_g is None else log_decay + log_g.sum(-1)
    return y, FeatureState(S, z, log_scale, log_decay, features.draw)


def key_factors(features: RandomFeatures, device: torch.device, *, remembered: bool) -> Tensor:
    """Return the factors of queries and keys, (1, d) or (G, d); equal ones may be `remembered` from the last call.

    While a CUDA graph is captured nothing is remembered: the memory would be the graph's.
    """
    # `remembered` is asked first: torch.compile, which never remembers, cannot trace the question about capturing.
    if (
        remembered
        and features.sigma is None
        and not (device.type == "cuda" and torch.cuda.is_current_stream_capturing())
    ):
        return _equal_factors(features.dim, features.scale**0.5, device)
    a = torch.full((1, features.dim), features.scale**0.5, device=device)
    return a if features.sigma is None else a * features.sigma.float()


@cache
def _equal_factors(dim: int, factor: float, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a tensor of inference could not be used in training later
        return torch.full((1, dim), factor, device=device)


def key_weights(k: Tensor, keep: Tensor | None, gate: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Logarithms of the factors of keys' weights, 1 - g, and of the gates, g, (B, G, n); for padded keys 0 and 1."""
    c = log_g = None
    if gate is not None:
        gate = gate.float()
        c, log_g = functional.logsigmoid(-gate), functional.logsigmoid(gate)
    if keep is not None:
        c = torch.zeros(keep.shape, device=k.device) if c is None else c
        c = c.masked_fill(~keep, float("-inf")).expand(k.shape[:3])
        log_g = None if log_g is None else log_g.masked_fill(~keep, 0.0)
    return c, log_g


def needs_log_scales(dtype: torch.dtype, features: RandomFeatures, log_g: Tensor | None) -> bool:
    """Whether features and weights may overflow or underflow the dtype, so that the kernels need log_scales.

    A feature of a normalised x is e^u times less than 2, with |u| <= |w| |x| and |w| about sqrt(d): for one row of N(0,
    I) in 300,000 it is 5 more. If this is at most e^20 = 2^29, products of two features are between 2^-60, which is
    above the floor of denominators, and 2^60, so the sum of 2^31 of them is below 2^127, the maximum of bfloat16 and
    float32. The maximum of float16 is 2^16; gates make weights arbitrarily small.
    """
    map, (sign, _, stretch, bend, _) = kernel_map(features)
    if dtype == torch.float16 or log_g is not None:
        return True
    if map == "elu" or (map == "trig" and sign == 0.0):  # features are as large as x, or at most 1
        return False
    w = features.dim**0.5 + 5
    largest = abs(bend) * w**2 + stretch * w * features.scale**0.5 + features.scale / 2
    return not features.normalize or features.sigma is not None or largest > 20
