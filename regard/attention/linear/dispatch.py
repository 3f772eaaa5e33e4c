"""Random-feature attention as a function: `attend_features`, with the arguments of exact attention where they apply.

F3. `sum_keys` and `query_state` are its two halves. All are linear in the length.

    B batch   H heads   G key-value heads   r = H/G   m queries   n keys   d, e widths of keys and values   F features
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.nn import functional

from regard.attention.checks import check_tensors, one_dtype, with_heads, without_heads
from regard.attention.linear.chunked import CHUNK, Keys, add, attend_causally, read
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.mask_support import split_mask
from regard.attention.linear.reference import attend_pairs
from regard.attention.linear.state import FeatureState, check_draw, empty_state
from regard.attention.masks.algebra import Mask
from regard.errors import unknown_name

SEGMENT_TOKENS = 2048  # of all heads: their features fit into the cache of a CPU, which makes long texts much faster
MIN_SEGMENT_TOKENS = 256  # of one head; for shorter segments the overhead of the operations dominates
BACKENDS = ("auto", "chunked", "reference")
Backend = Literal["auto", "chunked", "reference"]


class CheckedInputs(NamedTuple):
    """The checked arguments of `attend_features`, with batch and head axes; the caller's tensors had `rank` axes."""

    q: Tensor  # (B, H, m, d)
    k: Tensor  # (B, G, n, d)
    v: Tensor  # (B, G, n, e)
    keep: Tensor | None  # (B, G, n), broadcastable: which keys exist
    causal: bool
    gate: Tensor | None  # (B, G, n), before the sigmoid
    rank: int


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
    """Estimate softmax attention: phi(q) S / phi(q).z with S = sum_j phi(k_j) v_j^T and z = sum_j phi(k_j).

    Peng et al. 2021, eqs. 5 to 7; Choromanski et al. 2021, eq. 4; F3. Shapes as in `regard.attend`.

        features  the map and its rows W
        mask      causal, padding or both; other masks are not supported and raise a ValueError
        causal    no query sees a later key; the last query sees every key
        gate      (B, G, n): the sigmoid is the share of the past that a token keeps; for causal attention
        state     the keys before these; every query sees all of it, and a mask covers the new keys only
        backend   "chunked", matrix products; "reference", every pair in float64, quadratic and without a state.
                  "auto" takes the fastest one that applies, but never the reference
        chunk     tokens in a chunk; affects speed only

    With `return_state` the result is (output, state after the last key), with `return_weights` (output, weights (B,
    H, m, n)), computed by the reference. The weights of a row sum to 1; those of trig and plain may be negative.
    """
    if backend not in BACKENDS:
        raise ValueError(unknown_name("backend", backend, BACKENDS))
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    q, k, v, keep, causal, gate, rank = check_inputs(
        q, k, v, features=features, mask=mask, causal=causal, gate=gate, state=state
    )
    dtype = v.dtype
    q = q.unflatten(1, (k.shape[1], -1))  # (B, G, r, m, d)
    if return_weights or backend == "reference":
        if state is not None or return_state:
            raise ValueError("the reference computes every pair and has no state: no weights with a state")
        y, weights = attend_pairs(q, k, v, features=features, keep=keep, causal=causal, gate=gate)
        y, weights = (without_heads(x.flatten(1, 2), rank).to(dtype) for x in (y, weights))
        return (y, weights) if return_weights else y

    with torch.autocast(q.device.type, enabled=False):  # the sums need float32
        q, k, v = (_at_least_float(x) for x in (q, k, v))
        if state is None:
            state = empty_state(v, features.features)
        if causal:
            y, state = _attend_causally(q, k, v, features, keep, gate, state, CHUNK if chunk is None else chunk)
        else:
            state = add(state, _weighted_keys(k, v, features, keep, gate))
            y = read(features(q)[0], state, features.map.floor, per_feature=features.per_feature)
    y = without_heads(y.flatten(1, 2), rank).to(dtype)
    return (y, replace(state, draw=features.draw)) if return_state else y


def check_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    features: RandomFeatures,
    mask: Mask | Tensor | None,
    causal: bool,
    gate: Tensor | None,
    state: FeatureState | None,
) -> CheckedInputs:
    """Check the arguments of `attend_features` against each other and bring them to the shapes of CheckedInputs."""
    q, k, v = one_dtype(q, k, v)
    check_tensors(q, k, v, "scaled")
    rank = q.dim()
    q, k, v = with_heads(q), with_heads(k), with_heads(v)
    mask_is_causal, keep = split_mask(mask, q, k, rank)
    causal = causal or mask_is_causal
    _check_fit(features, k, v, state)
    if gate is not None:
        gate = _check_gate(gate, k, rank)
        if not causal:
            raise ValueError("a gate lets the past fade, so it is for causal attention: give causal=True, or no gate")
    if causal and features.per_feature:
        raise ValueError(
            "map 'rows' is for attention that is not causal, as each causal query needs other sums: use another map"
        )
    return CheckedInputs(q, k, v, keep, causal, gate, rank)


def sum_keys(
    k: Tensor,
    v: Tensor,
    *,
    features: RandomFeatures,
    mask: Mask | Tensor | None = None,
    gate: Tensor | None = None,
    state: FeatureState | None = None,
) -> FeatureState:
    """Return the state after keys (B, G, n, d) and values (B, G, n, e): all that cross-attention needs of a text."""
    k, v, _ = one_dtype(k, v, v)
    check_tensors(k, k, v, "scaled")
    rank = k.dim()
    k, v = with_heads(k), with_heads(v)
    _check_fit(features, k, v, state)
    causal, keep = split_mask(mask, k, k, rank)
    if causal:
        raise ValueError("a causal mask compares keys with queries, and sum_keys has none: give padding only")
    gate = None if gate is None else _check_gate(gate, k, rank)
    with torch.autocast(k.device.type, enabled=False):
        k, v = _at_least_float(k), _at_least_float(v)
        if state is None:
            state = empty_state(v, features.features)
        state = add(state, _weighted_keys(k, v, features, keep, gate))
    return replace(state, draw=features.draw)


def query_state(q: Tensor, state: FeatureState, *, features: RandomFeatures) -> Tensor:
    """Attend from queries (B, H, m, d) to a state: (B, H, m, e); also without heads, or without batch and heads."""
    rank, dtype = q.dim(), q.dtype
    q = with_heads(q)
    if q.dim() != 4 or q.shape[0] != len(state) or q.shape[1] % state.S.shape[1]:
        raise ValueError(f"q of shape {tuple(q.shape)} does not fit a state of {tuple(state.S.shape)} (B, G, F, e)")
    check_draw(state, features.draw)
    if q.shape[3] != features.dim:
        raise ValueError(f"these features are for queries of width {features.dim}, got {q.shape[3]}")
    with torch.autocast(q.device.type, enabled=False):
        phi_q = features(_at_least_float(q).unflatten(1, (state.S.shape[1], -1)))[0]
        y = read(phi_q, state, features.map.floor, per_feature=features.per_feature)
    return without_heads(y.flatten(1, 2), rank).to(dtype)


def _attend_causally(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    features: RandomFeatures,
    keep: Tensor | None,
    gate: Tensor | None,
    state: FeatureState,
    chunk: int,
) -> tuple[Tensor, FeatureState]:
    """Compute the features and call `attend_causally`; on a CPU segment by segment, each from the state before it."""
    n = k.shape[2]
    segment = max(MIN_SEGMENT_TOKENS, SEGMENT_TOKENS // (q.shape[0] * q.shape[1] * q.shape[2]))
    if q.shape[3] != n or n <= segment or q.device.type != "cpu" or torch.compiler.is_compiling():
        keys = _weighted_keys(k, v, features, keep, gate)
        return attend_causally(features(q)[0], keys, state, features.map.floor, chunk)
    outputs = []
    for start in range(0, n, segment):
        part = slice(start, start + segment)
        part_keep = None if keep is None else keep[..., part]
        part_gate = None if gate is None else gate[..., part]
        y, state = _attend_causally(
            q[:, :, :, part], k[:, :, part], v[:, :, part], features, part_keep, part_gate, state, chunk
        )
        outputs.append(y)
    return torch.cat(outputs, dim=3), state


def _weighted_keys(k: Tensor, v: Tensor, features: RandomFeatures, keep: Tensor | None, gate: Tensor | None) -> Keys:
    """Features of the keys, and the logarithms of their weights and gates; padded keys have no weight."""
    phi, log_scale = features(k.unsqueeze(2))
    phi, c, log_g = phi.squeeze(2), log_scale.squeeze(2), None
    if gate is not None:
        gate = gate.to(c.dtype)
        c, log_g = c + functional.logsigmoid(-gate), functional.logsigmoid(gate)
    if keep is not None:  # a padded key has weight 0 and gate 1
        c = c.masked_fill(~keep, float("-inf"))
        log_g = None if log_g is None else log_g.masked_fill(~keep, 0.0)
    return Keys(phi, v, c, log_g)


def _check_fit(features: RandomFeatures, k: Tensor, v: Tensor, state: FeatureState | None) -> None:
    if k.shape[-1] != features.dim:
        raise ValueError(f"these features are for queries and keys of width {features.dim}, got {k.shape[-1]}")
    if features.heads not in (1, k.shape[1]):
        raise ValueError(f"these features have W for {features.heads} key-value heads, and k has {k.shape[1]}")
    if state is not None:
        check_draw(state, features.draw)
        shape = (*k.shape[:2], features.features, v.shape[-1])
        if state.S.shape != shape:
            raise ValueError(f"the state has shape {tuple(state.S.shape)}, and these keys need (B, G, F, e) = {shape}")


def _check_gate(gate: Tensor, k: Tensor, rank: int) -> Tensor:
    """Return the gate as (B, G, n), with the axes that 2-D and 3-D inputs leave out."""
    full = gate[None, None] if rank == 2 else gate.unsqueeze(1) if rank == 3 else gate
    if full.shape != k.shape[:3] or not gate.is_floating_point():
        raise ValueError(
            f"gate must have one number per key, (B, G, n) = {tuple(k.shape[:3])}: got {gate.dtype} of shape "
            f"{tuple(gate.shape)}"
        )
    return full


def _at_least_float(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
