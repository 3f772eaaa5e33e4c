"""Random-feature attention in linear time: matrix products inside chunks of the text, states between the chunks.

F3. Katharopoulos et al. 2020, section 3.3; Peng et al. 2021, eqs. 6 and 7; in chunks Hua et al. 2022, section 3.

Each key has a weight: the scale of its features and, with a gate, 1 - g_j, times the gates of later tokens. The code
adds logarithms of weights, and before exp it subtracts the largest one that a query sees. This is a running maximum, so
no output depends on a later key and nothing overflows; it cancels in the quotient.

    B batch   G key-value heads   r query heads for each   L length   n chunks of C tokens   F features   e width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.library import custom_op
from torch.nn import functional

from regard.attention.linear.reference import guarded
from regard.attention.linear.state import EMPTY, FeatureState
from regard.attention.masks.rules import causal_matrix

CHUNK = 64  # longer: more work inside chunks; shorter: more states between them


class Keys(NamedTuple):
    """Keys and values to be added to a state."""

    phi: Tensor  # features of the keys (B, G, L, F)
    v: Tensor  # (B, G, L, e)
    c: Tensor  # logarithms of their weights (B, G, L)
    log_g: Tensor | None  # logarithms of the gates (B, G, L)

    def split(self, at: int) -> tuple[Keys, Keys]:
        """Return the first `at` keys, and the rest."""
        gates = (None, None) if self.log_g is None else (self.log_g[..., :at], self.log_g[..., at:])
        first = Keys(self.phi[:, :, :at], self.v[:, :, :at], self.c[..., :at], gates[0])
        return first, Keys(self.phi[:, :, at:], self.v[:, :, at:], self.c[..., at:], gates[1])


def add(state: FeatureState, keys: Keys) -> FeatureState:
    """Return the state after these keys: S + sum_j w_j phi(k_j) v_j^T, z + sum_j w_j phi(k_j)."""
    phi, v, c, log_g = keys
    if not phi.shape[2]:
        return state
    if log_g is None:
        log_decay = torch.zeros_like(c[..., 0])
    else:
        log_decay = log_g.sum(-1)
        c = c + log_g.flip(-1).cumsum(-1).flip(-1) - log_g  # gates of later tokens: sum_{s>j} log g_s
    w, log_scale = normalize_weights(c)  # (B, G, L), (B, G)
    S, z = phi.mT @ (v * w[..., None]), w.unsqueeze(-2) @ phi  # the weights multiply the narrower factor
    return state.merge(FeatureState(S, z.squeeze(-2), log_scale, log_decay, None))


def read(q: Tensor, state: FeatureState, floor: float, *, per_feature: bool = False) -> Tensor:
    """Return phi(q) S / phi(q).z for the features q (B, G, r, m, F): (B, G, r, m, e).

    With `per_feature` sum_f p_f S_f / z_f, where p is phi(q) divided by its sum: the map Rows.
    """
    if per_feature:
        outputs = state.S / guarded(state.z, floor).unsqueeze(-1)  # (B, G, F, e): the output of each row of W
        return (q @ outputs.unsqueeze(2)) / guarded(q.sum(-1, keepdim=True), floor)
    den = (state.z[:, :, None, None] @ q.mT).mT  # (B, G, r, m, 1); on a CPU q z is slow, and z^T q^T is fast
    return (q @ state.S.unsqueeze(2)) / guarded(den, floor)


def attend_causally(
    q: Tensor, keys: Keys, state: FeatureState, floor: float, chunk: int = CHUNK
) -> tuple[Tensor, FeatureState]:
    """Return the output (B, G, r, m, e) for the features q (B, G, r, m, F), and the state after the last key.

    Queries and keys are aligned at their ends: keys before the first query go into the state, and queries before the
    first key see only the state.
    """
    m, n = q.shape[3], keys.phi.shape[2]
    if n > m:
        first, keys = keys.split(n - m)
        state = add(state, first)
    early = q[:, :, :, : max(m - n, 0)]
    if early.shape[3] == m:
        return read(q, state, floor), state
    if n == 1 or m == 1:  # S_t = g_t S_{t-1} + w_t phi(k_t) v_t^T, z_t likewise
        after = add(state, keys)
        y = read(q[:, :, :, -1:], after, floor)
    else:
        q = q[:, :, :, max(m - n, 0) :]
        attend = attend_chunks if not torch.compiler.is_compiling() else _attend_chunks_as_operator
        y, after = attend(q, keys, state, floor, chunk)
    return (torch.cat([read(early, state, floor), y], dim=3) if m > n else y), after


def attend_chunks(q: Tensor, keys: Keys, state: FeatureState, floor: float, chunk: int) -> tuple[Tensor, FeatureState]:
    """Attend causally with as many queries as keys, L: query i sees the state and the keys j <= i."""
    L = keys.phi.shape[2]
    C = min(L, chunk)
    q, k, v = (_split_chunks(x, C, -2) for x in (q, keys.phi, keys.v))  # (…, n, C, width)
    c = _split_chunks(keys.c, C, -1, float("-inf"))  # (B, G, n, C); the padding of the last chunk has no weight
    g = None if keys.log_g is None else _split_chunks(keys.log_g, C, -1)
    b = torch.zeros_like(c) if g is None else g.cumsum(-1)  # b_i = sum_{j<=i} log g_j
    inside = _log_weights(c, g)  # (B, G, n, C, C)

    # What each chunk adds to the state, with the weights that its last token sees.
    w, log_scale = normalize_weights(inside[..., -1, :])  # (B, G, n, C), (B, G, n)
    S = torch.cat([state.S.unsqueeze(2), k.mT @ (v * w[..., None])], dim=2)  # (B, G, 1 + n, F, e)
    z = torch.cat([state.z.unsqueeze(2), (w.unsqueeze(-2) @ k).squeeze(-2)], dim=2)  # (B, G, 1 + n, F)
    # The states between chunks: the same sums as inside a chunk, with chunks in place of tokens.
    log_scale = torch.cat([state.log_scale.unsqueeze(2), log_scale], dim=2)
    w, log_scale = normalize_weights(_log_weights(log_scale, None if g is None else functional.pad(b[..., -1], (1, 0))))
    S = (w @ S.flatten(-2)).unflatten(-1, S.shape[-2:])
    z = w @ z

    # num_i = e^{b_i} phi(q_i) S + sum_{j<=i} w_ij (phi(q_i).phi(k_j)) v_j, and den_i the same with 1 for v, z for S.
    before = log_scale[..., :-1, None] + b  # (B, G, n, C): log weight of the state
    top = torch.maximum(inside.amax(-1), before).detach()
    old = (before - top).exp()[:, :, None, ..., None]  # (B, G, 1, n, C, 1)
    inside = inside.sub_(top[..., None]).exp_()  # in place: on a CPU, allocating costs as much as computing
    scores = (q @ k.mT.unsqueeze(2)) * inside.unsqueeze(2)  # (B, G, r, n, C, C)
    num = scores @ v.unsqueeze(2) + old * (q @ S[:, :, None, :-1])
    den = scores.sum(-1, keepdim=True) + old * (z[:, :, None, :-1, None] @ q.mT).mT
    y = (num / guarded(den, floor)).flatten(3, 4)[..., :L, :]
    log_decay = state.log_decay + b[..., -1].sum(-1)
    return y, FeatureState(S[:, :, -1], z[:, :, -1], log_scale[..., -1], log_decay, state.draw)


def _attend_chunks_as_operator(
    q: Tensor, keys: Keys, state: FeatureState, floor: float, chunk: int
) -> tuple[Tensor, FeatureState]:
    """`attend_chunks` for torch.compile: one operator, forward and backward, that is not traced.

    A graph for all lengths would have to reason about the number of chunks, which torch's compiler cannot.
    """
    gates = keys.c.new_empty(0) if keys.log_g is None else keys.log_g
    parts = [q, keys.phi, keys.v, keys.c, gates, state.S, state.z, state.log_scale, state.log_decay]
    y, *after = walk_chunks(parts, floor, chunk)
    return y, FeatureState(after[0], after[1], after[2], after[3], state.draw)


@custom_op("regard::walk_chunks", mutates_args=())
def walk_chunks(parts: Sequence[Tensor], floor: float, chunk: int) -> list[Tensor]:
    """`attend_chunks` of (q, phi, v, c, log_g or an empty tensor, the four tensors of a state): y and the new state."""
    return [x.clone(memory_format=torch.contiguous_format) for x in _attend_parts(parts, floor, chunk)]


@custom_op("regard::walk_chunks_back", mutates_args=())
def walk_chunks_back(parts: Sequence[Tensor], floor: float, chunk: int, gradients: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the parts; the forward pass is recomputed, so nothing of it is stored."""
    output_and_backward: Any = torch.func.vjp(lambda *inputs: _attend_parts(inputs, floor, chunk), *parts)
    part_gradients = output_and_backward[1](tuple(gradients))
    return [gradient.clone(memory_format=torch.contiguous_format) for gradient in part_gradients]


def _attend_parts(parts: Sequence[Tensor], floor: float, chunk: int) -> tuple[Tensor, ...]:
    q, phi, v, c, log_g, *state = parts
    keys = Keys(phi, v, c, log_g if log_g.numel() else None)
    y, after = attend_chunks(q, keys, FeatureState(state[0], state[1], state[2], state[3], None), floor, chunk)
    return y, after.S, after.z, after.log_scale, after.log_decay


@walk_chunks.register_fake
def _(parts: Sequence[Tensor], floor: float, chunk: int) -> list[Tensor]:
    q, v, state = parts[0], parts[2], parts[5:]
    return [q.new_empty(*q.shape[:4], v.shape[3]), *(x.new_empty(x.shape) for x in state)]


@walk_chunks_back.register_fake
def _(parts: Sequence[Tensor], floor: float, chunk: int, gradients: Sequence[Tensor]) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in parts]


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    parts, ctx.floor, ctx.chunk = inputs
    ctx.save_for_backward(*parts)


def _gradients(ctx: Any, gradients: Sequence[Tensor]) -> tuple[Any, ...]:
    return walk_chunks_back(ctx.saved_tensors, ctx.floor, ctx.chunk, gradients), None, None


walk_chunks.register_autograd(_gradients, setup_context=_save_for_backward)


def normalize_weights(log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights (…, n) whose maximum is 1, and the logarithm (…) of the factor that was divided out."""
    log_scale = log_weights.detach().amax(-1).clamp(min=EMPTY)
    return (log_weights - log_scale[..., None]).exp(), log_scale


def _log_weights(c: Tensor, log_g: Tensor | None) -> Tensor:
    """Log weights of key j for query i, (…, n) -> (…, n, n): c_j + sum_{j<s<=i} log g_s, and -inf for j > i.

    The sums start at j. As differences b_i - b_j of long sums they would be inexact.
    """
    n = c.shape[-1]
    seen = causal_matrix(n, n, device=c.device)
    log_weights = c[..., None, :]
    if log_g is not None:
        later = seen & ~seen.mT  # s > j, (s, j)
        steps = log_g[..., :, None] * later
        log_weights = log_weights + steps.cumsum(-2)
    return log_weights.masked_fill(~seen, float("-inf"))


def _split_chunks(x: Tensor, C: int, axis: int, fill: float = 0.0) -> Tensor:
    """Split an axis of length L into two, n and C, and pad the last chunk."""
    n = (x.shape[axis] + C - 1) // C
    missing = n * C - x.shape[axis]
    if missing:
        x = functional.pad(x, (0, 0) * (-1 - axis) + (0, missing), value=fill)
    return x.unflatten(axis, (n, C))
