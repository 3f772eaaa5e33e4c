"""Attention by features in time linear in the length: chunks of the text by matrix products, states between them.

F3. Katharopoulos et al. 2020, section 3.3; Peng et al. 2021, eqs. 6 and 7; in chunks Hua et al. 2022, section 3.

Each key has a weight: its features' level and, with a gate, 1 - g_j; gates of later tokens lower it. Only logarithms
of weights are added up, and of those that a query sees the greatest is subtracted before exp. It is a
running maximum, so no output depends on a later key, and nothing overflows; in the quotient it cancels.

    B batch   G heads of keys   r queries' heads to each   L length   n chunks of C tokens   F features   e width
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
from regard.attention.mask_rules import causal_matrix

CHUNK = 64  # longer: more work inside chunks; shorter: more states between them


class Keys(NamedTuple):
    """Keys and values that are to be summed up."""

    phi: Tensor  # features of the keys (B, G, L, F)
    v: Tensor  # (B, G, L, e)
    c: Tensor  # logarithms of their weights (B, G, L)
    log_g: Tensor | None  # logarithms of the gates (B, G, L)

    def cut(self, at: int) -> tuple[Keys, Keys]:
        """The first `at` keys, and the rest."""
        gates = (None, None) if self.log_g is None else (self.log_g[..., :at], self.log_g[..., at:])
        first = Keys(self.phi[:, :, :at], self.v[:, :, :at], self.c[..., :at], gates[0])
        return first, Keys(self.phi[:, :, at:], self.v[:, :, at:], self.c[..., at:], gates[1])


def add(state: FeatureState, keys: Keys) -> FeatureState:
    """The state after these keys: S + sum_j w_j phi(k_j) v_j^T, z + sum_j w_j phi(k_j)."""
    phi, v, c, log_g = keys
    if not phi.shape[2]:
        return state
    if log_g is None:
        forgotten = torch.zeros_like(c[..., 0])
    else:
        forgotten = log_g.sum(-1)
        c = c + log_g.flip(-1).cumsum(-1).flip(-1) - log_g  # gates of later tokens: sum_{s>j} log g_s
    w, level = weigh(c)  # (B, G, L), (B, G)
    S, z = phi.mT @ (v * w[..., None]), w.unsqueeze(-2) @ phi  # the narrower factor is weighed
    return state.merge(FeatureState(S, z.squeeze(-2), level, forgotten, None))


def read(q: Tensor, state: FeatureState, floor: float, *, each: bool = False) -> Tensor:
    """phi(q) S / phi(q).z for the features q (B, G, r, m, F): (B, G, r, m, e).

    With `each` sum_f p_f S_f / z_f, where p is phi(q) over its sum: the map Rows.
    """
    if each:
        found = state.S / guarded(state.z, floor).unsqueeze(-1)  # (B, G, F, e): what each row of W sees
        return (q @ found.unsqueeze(2)) / guarded(q.sum(-1, keepdim=True), floor)
    den = (state.z[:, :, None, None] @ q.mT).mT  # (B, G, r, m, 1); a CPU is slow at q z, and fast at z^T q^T
    return (q @ state.S.unsqueeze(2)) / guarded(den, floor)


def attend_causally(
    q: Tensor, keys: Keys, state: FeatureState, floor: float, chunk: int = CHUNK
) -> tuple[Tensor, FeatureState]:
    """Output (B, G, r, m, e) for the features q (B, G, r, m, F), and the state after the last key.

    Aligned to the lower right: keys before the first query go into the state, and queries before the first key see
    nothing but the state.
    """
    m, n = q.shape[3], keys.phi.shape[2]
    if n > m:
        first, keys = keys.cut(n - m)
        state = add(state, first)
    early = q[:, :, :, : max(m - n, 0)]
    if early.shape[3] == m:
        return read(q, state, floor), state
    if n == 1 or m == 1:  # S_t = g_t S_{t-1} + w_t phi(k_t) v_t^T, z_t likewise
        after = add(state, keys)
        y = read(q[:, :, :, -1:], after, floor)
    else:
        q = q[:, :, :, max(m - n, 0) :]
        walk = attend_chunks if not torch.compiler.is_compiling() else _attend_chunks_at_once
        y, after = walk(q, keys, state, floor, chunk)
    return (torch.cat([read(early, state, floor), y], dim=3) if m > n else y), after


def attend_chunks(q: Tensor, keys: Keys, state: FeatureState, floor: float, chunk: int) -> tuple[Tensor, FeatureState]:
    """The same for as many queries as keys, L: query i sees the state and the keys j <= i."""
    L = keys.phi.shape[2]
    C = min(L, chunk)
    q, k, v = (_cut(x, C, -2) for x in (q, keys.phi, keys.v))  # (…, n, C, width)
    c = _cut(keys.c, C, -1, float("-inf"))  # (B, G, n, C); what fills the last chunk has no weight
    g = None if keys.log_g is None else _cut(keys.log_g, C, -1)
    b = torch.zeros_like(c) if g is None else g.cumsum(-1)  # b_i = sum_{j<=i} log g_j
    inside = _log_weights(c, g)  # (B, G, n, C, C)

    # What each chunk adds to the state: the weights are those that its last token sees.
    w, level = weigh(inside[..., -1, :])  # (B, G, n, C), (B, G, n)
    S = torch.cat([state.S.unsqueeze(2), k.mT @ (v * w[..., None])], dim=2)  # (B, G, 1 + n, F, e)
    z = torch.cat([state.z.unsqueeze(2), (w.unsqueeze(-2) @ k).squeeze(-2)], dim=2)  # (B, G, 1 + n, F)
    # The states between chunks: chunks are to each other what tokens are inside a chunk.
    level = torch.cat([state.level.unsqueeze(2), level], dim=2)
    w, level = weigh(_log_weights(level, None if g is None else functional.pad(b[..., -1], (1, 0))))
    S = (w @ S.flatten(-2)).unflatten(-1, S.shape[-2:])
    z = w @ z

    # num_i = e^{b_i} phi(q_i) S + sum_{j<=i} w_ij (phi(q_i).phi(k_j)) v_j, and den_i the same with 1 for v, z for S.
    before = level[..., :-1, None] + b  # (B, G, n, C): the logarithm of the state's weight
    top = torch.maximum(inside.amax(-1), before).detach()
    old = (before - top).exp()[:, :, None, ..., None]  # (B, G, 1, n, C, 1)
    inside = inside.sub_(top[..., None]).exp_()  # in place: new memory costs a CPU as much as the work
    scores = (q @ k.mT.unsqueeze(2)) * inside.unsqueeze(2)  # (B, G, r, n, C, C)
    num = scores @ v.unsqueeze(2) + old * (q @ S[:, :, None, :-1])
    den = scores.sum(-1, keepdim=True) + old * (z[:, :, None, :-1, None] @ q.mT).mT
    y = (num / guarded(den, floor)).flatten(3, 4)[..., :L, :]
    forgotten = state.forgotten + b[..., -1].sum(-1)
    return y, FeatureState(S[:, :, -1], z[:, :, -1], level[..., -1], forgotten, state.draw)


def _attend_chunks_at_once(
    q: Tensor, keys: Keys, state: FeatureState, floor: float, chunk: int
) -> tuple[Tensor, FeatureState]:
    """The same for torch.compile, whose graphs need not know how many chunks there are.

    Code that serves all lengths would have to reason about that number, and torch's compiler cannot. So in its graphs
    the walk over the chunks, forward and backward, is one operation that runs as it is written.
    """
    gates = keys.c.new_empty(0) if keys.log_g is None else keys.log_g
    parts = [q, keys.phi, keys.v, keys.c, gates, state.S, state.z, state.level, state.forgotten]
    y, *after = walk_chunks(parts, floor, chunk)
    return y, FeatureState(after[0], after[1], after[2], after[3], state.draw)


@custom_op("regard::walk_chunks", mutates_args=())
def walk_chunks(parts: Sequence[Tensor], floor: float, chunk: int) -> list[Tensor]:
    """attend_chunks: y and the state after, of queries, keys' phi, v, c and log g ((0,) without), and the state."""
    return [x.clone(memory_format=torch.contiguous_format) for x in _walk(parts, floor, chunk)]


@custom_op("regard::walk_chunks_back", mutates_args=())
def walk_chunks_back(parts: Sequence[Tensor], floor: float, chunk: int, gradients: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the parts: the walk is done once more, so nothing of it need be kept."""
    walked: Any = torch.func.vjp(lambda *inputs: _walk(inputs, floor, chunk), *parts)
    found = walked[1](tuple(gradients))
    return [gradient.clone(memory_format=torch.contiguous_format) for gradient in found]


def _walk(parts: Sequence[Tensor], floor: float, chunk: int) -> tuple[Tensor, ...]:
    q, phi, v, c, log_g, *state = parts
    keys = Keys(phi, v, c, log_g if log_g.numel() else None)
    y, after = attend_chunks(q, keys, FeatureState(state[0], state[1], state[2], state[3], None), floor, chunk)
    return y, after.S, after.z, after.level, after.forgotten


@walk_chunks.register_fake
def _(parts: Sequence[Tensor], floor: float, chunk: int) -> list[Tensor]:
    q, v, state = parts[0], parts[2], parts[5:]
    return [q.new_empty(*q.shape[:4], v.shape[3]), *(x.new_empty(x.shape) for x in state)]


@walk_chunks_back.register_fake
def _(parts: Sequence[Tensor], floor: float, chunk: int, gradients: Sequence[Tensor]) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in parts]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    parts, ctx.floor, ctx.chunk = inputs
    ctx.save_for_backward(*parts)


def _gradients(ctx: Any, gradients: Sequence[Tensor]) -> tuple[Any, ...]:
    return walk_chunks_back(ctx.saved_tensors, ctx.floor, ctx.chunk, gradients), None, None


walk_chunks.register_autograd(_gradients, setup_context=_keep)


def weigh(logarithms: Tensor) -> tuple[Tensor, Tensor]:
    """(weights e^-level, level): logarithms (…, n) as numbers of which the greatest is 1, and its logarithm (…)."""
    level = logarithms.detach().amax(-1).clamp(min=EMPTY)
    return (logarithms - level[..., None]).exp(), level


def _log_weights(c: Tensor, log_g: Tensor | None) -> Tensor:
    """Logarithms of the weights of j as i sees them, (…, n) -> (…, n, n): c_j + sum_{j<s<=i} log g_s, -inf for j > i.

    The sums are made one by one from j on. As differences b_i - b_j of long sums they would be inexact.
    """
    n = c.shape[-1]
    seen = causal_matrix(n, n, device=c.device)
    logarithms = c[..., None, :]
    if log_g is not None:
        later = seen & ~seen.mT  # s > j, (s, j)
        steps = log_g[..., :, None] * later
        logarithms = logarithms + steps.cumsum(-2)
    return logarithms.masked_fill(~seen, float("-inf"))


def _cut(x: Tensor, C: int, axis: int, fill: float = 0.0) -> Tensor:
    """The axis of length L as two, n and C, the last chunk filled up."""
    n = (x.shape[axis] + C - 1) // C
    missing = n * C - x.shape[axis]
    if missing:
        x = functional.pad(x, (0, 0) * (-1 - axis) + (0, missing), value=fill)
    return x.unflatten(axis, (n, C))
