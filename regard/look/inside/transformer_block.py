"""One block of a Transformer for one token, box by box, computed with the modules of the block.

D8 to D13, E1 to E4. Vaswani et al. 2017, sections 3.1 to 3.3.

    n keys   p model width   H heads   G heads of keys and values   d_k, d_v widths of a head
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import SlicedProjection
from regard.attention.types import Attention
from regard.errors import UsageError
from regard.layers.block import Block
from regard.layers.feedforward import FeedForward, gelu_tanh
from regard.layers.ssru import SSRU
from regard.look.inside.worksheet import Rule, Sheet
from regard.positions.alibi import Alibi, slopes
from regard.positions.relative import ShawRelative, T5Buckets
from regard.positions.rotary import Rotary
from regard.traits import own_traits, why_not_known


class Put(NamedTuple):
    """The name of a box and its numbers."""

    box: str
    values: Tensor


class Selection(NamedTuple):
    """The token and the head whose numbers are shown."""

    token: int
    head: int
    tokens: Sequence[str]  # the input tokens of the block
    source: Sequence[str] = ()  # the tokens that cross-attention attends to


KNOWN = frozenset(
    {
        *(
            "attention",
            "attention-bias",
            "grouped-query",
            "head-widths",
            "input-widths",
            "slice",
            "qk-norm",
            "no-output",
            "input-bias",
        ),
        *("position Rotary", "rotary-interleaved", "rotary-fraction", "rotary-scaling"),
        *("position ShawRelative", "position T5Buckets", "position Alibi"),
    }
)


def write_block(
    sheet: Sheet, block: Block, x: Put, selection: Selection, *, causal: bool, memory: Put | None = None
) -> Put:
    """Write how the block computes its output (p,) for one token from its input (n, p); the last box is the output."""
    if not isinstance(block, Block):
        raise UsageError(f"a {type(block).__name__} cannot be written out: only the blocks of regard can")
    pre = block.order == "pre"
    normed = x
    if pre:
        values = block.self_norm(x.values)
        normed = Put(sheet.norm("self.norm", x.box, block.self_norm, values, rows=selection.tokens), values)
    row = x.values[selection.token]
    h = Put(sheet.put("token", "this token", row, "x_t", {"op": "pick", "of": [x.box], "row": selection.token}), row)
    out = write_attention(sheet, "self", _exact(block.self_attention), normed, normed, selection, causal=causal)
    h = _add(sheet, "self", h, out, None if pre else block.self_norm)
    if block.cross_attention is not None:
        assert memory is not None
        normed = _before(sheet, "cross", h, block.cross_norm if pre else None)
        out = write_attention(sheet, "cross", _exact(block.cross_attention), normed, memory, selection, causal=False)
        h = _add(sheet, "cross", h, out, None if pre else block.cross_norm)
    normed = _before(sheet, "feed", h, block.feed_norm if pre else None)
    out = _write_feed_forward(sheet, block.feed_forward, normed)  # type: ignore[arg-type]  # stacks have no other
    return _add(sheet, "feed", h, out, None if pre else block.feed_norm)


def _exact(layer: Attention | SSRU) -> MultiHeadAttention:
    """Return the layer if every step of it can be written out; UsageError otherwise."""
    if isinstance(layer, SSRU):
        raise UsageError(
            "this block has a recurrent layer (SSRU) in place of self-attention, which cannot be written out: choose a "
            "block of the encoder; the maps of a trace show the attention to the source"
        )
    if not isinstance(layer, MultiHeadAttention) or layer.window is not None:
        raise UsageError(
            "this block uses random features or a window, and only exact attention to a whole text can be written out; "
            "the maps of a trace show its weights"
        )
    parts = [layer, layer.input] if layer.position is None else [layer, layer.input, layer.position]
    if why := why_not_known(frozenset().union(*map(own_traits, parts)), KNOWN):
        raise UsageError(f"this block cannot be written out ({why}); the maps of a trace show its weights")
    return layer


def write_attention(
    sheet: Sheet, part: str, layer: MultiHeadAttention, query: Put, key: Put, selection: Selection, *, causal: bool
) -> Put:
    """Write the attention of one head for one token, then W^O of all heads; the query is (n, p), or (p,) for cross."""
    is_self = part == "self"
    t, names = (selection.token, selection.tokens) if is_self else (0, selection.source)
    queries = query.values[None] if is_self else query.values[None, None]
    every_q, every_k, every_v = layer.input(queries, key.values[None], key.values[None])  # (1, heads, ·, d)
    head, group = selection.head, selection.head * layer.kv_heads // layer.heads
    q, k, v = _write_vectors(sheet, part, layer, (query.box, key.box), (every_q, every_k, every_v), t, selection, names)
    if layer.q_norm is not None and layer.k_norm is not None:
        every_q, every_k = layer.q_norm(every_q), layer.k_norm(every_k)
        q = sheet.norm(f"{part}.q_normed", q, layer.q_norm, every_q[0, head, t])
        k = sheet.norm(f"{part}.k_normed", k, layer.k_norm, every_k[0, group], rows=names)
    if isinstance(layer.position, Rotary):
        i = torch.arange(len(names), device=every_k.device)
        every_q, every_k = layer.position.rotate(every_q, i), layer.position.rotate(every_k, i)
        q = _rotated(sheet, f"{part}.q_rotated", layer.position, q, every_q[0, head, t], [t], None)
        k = _rotated(sheet, f"{part}.k_rotated", layer.position, k, every_k[0, group], i.tolist(), names)
    scores = _write_scores(sheet, part, layer, Put(q, every_q), Put(k, every_k), selection, t, names, causal)
    weights = torch.softmax(scores.values, -1)  # (H, n)
    rule = _of("softmax", scores.box)
    alpha = sheet.put(f"{part}.weights", "weights", weights[head], "α = softmax(s)", rule, rows=names)
    sums = torch.einsum("hn,hnd->hd", weights, every_v[0].repeat_interleave(layer.heads // layer.kv_heads, 0))
    box = sheet.put(f"{part}.sum", "weighted sum", sums[head], "Σ_j α_j v_j", _of("weigh", alpha, v))
    if isinstance(layer.position, ShawRelative) and layer.position.value_table is not None:
        box, sums = _write_relative_values(sheet, part, layer.position, (alpha, box), weights, sums, t, head)
    return _write_output(sheet, part, layer, box, sums, head)


def _write_vectors(
    sheet: Sheet, part: str, layer: MultiHeadAttention, inputs: tuple[str, str], every: tuple[Tensor, Tensor, Tensor],
    t: int, selection: Selection, names: Sequence[str],
) -> tuple[str, str, str]:  # fmt: skip
    """Write q (d_k,), k (n, d_k) and v (n, d_v) of a head, as the projection returns them."""
    head, group = selection.head, selection.head * layer.kv_heads // layer.heads
    rule = _projection(sheet, layer, "q", head, inputs[0]) | ({"row": t} if part == "self" else {})
    bias = " + b_Q" if rule["bias"] else ""
    q = sheet.put(f"{part}.q", "query", every[0][0, head, t], f"q = x_t W_Q{bias}", rule)
    boxes = []
    for letter, title, values in (("k", "keys", every[1]), ("v", "values", every[2])):
        rule = _projection(sheet, layer, letter, group, inputs[1])
        bias = f" + b_{letter.upper()}" if rule["bias"] else ""
        how = f"{letter}_j = x_j W_{letter.upper()}{bias}"
        boxes.append(sheet.put(f"{part}.{letter}", title, values[0, group], how, rule, rows=names))
    return q, boxes[0], boxes[1]


def _projection(sheet: Sheet, layer: MultiHeadAttention, letter: str, head: int, box: str) -> Rule:
    """Return the rule that projects q, k or v of a head: the parameters and their rows."""
    projection: Any = layer.input
    d = layer.d_v if letter == "v" else layer.d_k
    if isinstance(projection, SlicedProjection):
        weight, bias = getattr(projection, f"{letter}_weight"), getattr(projection, f"{letter}_bias")
        width = weight.shape[1]
        return {
            "op": "slice", "of": [box], "columns": [head * width, (head + 1) * width], "weight": sheet.name(weight),
            "index": head, "bias": sheet.name(bias), "rows": [head * d, (head + 1) * d],
        }  # fmt: skip
    start = sum(projection.rows[: "qkv".index(letter)]) + head * d
    return {
        "op": "linear", "of": [box], "weight": sheet.name(projection.weight), "bias": sheet.name(projection.bias),
        "rows": [start, start + d],
    }  # fmt: skip


def _rotated(
    sheet: Sheet, name: str, rotary: Rotary, box: str, values: Tensor, positions: list[int], rows: Sequence[str] | None
) -> str:
    rule = {
        "op": "rotate", "of": [box], "positions": positions, "frequencies": rotary.frequencies().tolist(),
        "layout": rotary.layout, "turning": rotary.rotated_dim,
    }  # fmt: skip
    title = "rotated query" if rows is None else "rotated keys"
    how = "rotate each pair by position · frequency"
    return sheet.put(name, title, values, how, rule, rows=rows)


def _write_scores(
    sheet: Sheet, part: str, layer: MultiHeadAttention, q: Put, k: Put, selection: Selection, t: int,
    names: Sequence[str], causal: bool,
) -> Put:  # fmt: skip
    """Return the scores (H, n) of all heads before the softmax, and write those of one head."""
    head, scale = selection.head, layer.d_k**-0.5
    keys = k.values[0].repeat_interleave(layer.heads // layer.kv_heads, 0)  # (H, n, d_k)
    scores = torch.einsum("hd,hnd->hn", q.values[0, :, t], keys)
    box = sheet.put(f"{part}.scores", "scores", scores[head], "s_j = q · k_j", _of("dot", q.box, k.box), rows=names)
    scores = scores * scale
    rule = {**_of("scale", box), "by": scale}
    box = sheet.put(f"{part}.scaled", "scaled scores", scores[head], "s_j / √d_k", rule, rows=names)
    bias = _bias(layer, q.values)
    if bias is not None:
        scores = scores + bias[:, t]
        rule, how = _bias_rule(sheet, layer, q.box, t, head, len(names))
        bias_box = sheet.put(f"{part}.bias", "position bias", bias[head, t], how, rule, rows=names)
        box = sheet.put(
            f"{part}.biased",
            "scores with position bias",
            scores[head],
            "s_j + b_j",
            _of("add", box, bias_box),
            rows=names,
        )
    if causal:
        allowed = [j <= t for j in range(len(names))]
        scores = scores.masked_fill(~torch.tensor(allowed, device=scores.device), float("-inf"))
        rule = {**_of("mask", box), "allowed": allowed}
        shown = scores[head].masked_fill(scores[head].isinf(), float("nan"))
        box = sheet.put(f"{part}.masked", "masked scores", shown, "s_j for j ≤ t, else -∞", rule, rows=names)
    return Put(box, scores)


def _bias(layer: MultiHeadAttention, q: Tensor) -> Tensor | None:
    """Return the position bias of the scaled scores, (H, n, n), or None."""
    if layer.position is None:
        return None
    i = torch.arange(q.shape[2], device=q.device)
    bias = layer.position.bias(q, i, i)
    return None if bias is None else bias.expand(1, layer.heads, len(i), len(i))[0]


def _bias_rule(sheet: Sheet, layer: MultiHeadAttention, q: str, t: int, head: int, n: int) -> tuple[Rule, str]:
    position = layer.position
    distances = torch.arange(n) - t
    if isinstance(position, Alibi):
        slope = slopes(position.heads)[head].item()
        return {"op": "distance", "slope": slope, "distances": distances.tolist()}, "-slope · |t - j|"
    if isinstance(position, T5Buckets):
        rows = position.bucket(distances).tolist()
        table = sheet.name(position.table)
        return {
            "op": "rows",
            "weight": table,
            "rows": rows,
            "column": head,
            "scale": 1.0,
        }, "bias of the bucket of j - t"
    assert isinstance(position, ShawRelative)
    rule = {"op": "relative", "of": [q], "weight": sheet.name(position.key_table), "rows": _shaw_rows(position, t, n)}
    return {**rule, "scale": position.head_dim**-0.5}, "q · a_(j-t) / √d_k"


def _shaw_rows(position: ShawRelative, t: int, n: int) -> list[int]:
    k = position.max_distance
    return [min(max(j - t, -k), k) + k for j in range(n)]


def _write_relative_values(
    sheet: Sheet, part: str, position: ShawRelative, boxes: tuple[str, str], weights: Tensor, sums: Tensor, t: int,
    head: int,
) -> tuple[str, Tensor]:  # fmt: skip
    n = weights.shape[-1]
    i, j = torch.tensor([t], device=weights.device), torch.arange(n, device=weights.device)
    extra = position.mix(weights[None, :, None], i, j)
    assert extra is not None
    extra = extra[0, :, 0]  # (H, d_v)
    rule = {**_of("weigh", boxes[0]), "weight": sheet.name(position.value_table), "rows": _shaw_rows(position, t, n)}
    box = sheet.put(f"{part}.sum_positions", "weighted sum of positions", extra[head], "Σ_j α_j a_(j-t)", rule)
    sums = sums + extra
    how = "Σ_j α_j (v_j + a_(j-t))"
    return sheet.put(f"{part}.sum_both", "sum of both", sums[head], how, _of("add", boxes[1], box)), sums


def _write_output(sheet: Sheet, part: str, layer: MultiHeadAttention, box: str, sums: Tensor, head: int) -> Put:
    """Write the output of the layer (p,) from the weighted sums of all heads (H, d_v)."""
    rule = {**_of("heads", box), "head": head}
    box = sheet.put(f"{part}.heads", "all heads", sums, "one row per head, each computed like this one", rule)
    y = sums.flatten()
    box = sheet.put(f"{part}.concat", "concatenation", y, "[head_1; …; head_H]", _of("concat", box))
    if layer.output is None:
        return Put(box, y)
    y = layer.output(y)
    return Put(_linear(sheet, f"{part}.out", "output projection", box, layer.output, y, "y W_O"), y)


def _write_feed_forward(sheet: Sheet, feed: FeedForward, x: Put) -> Put:
    if feed.activation not in ("relu", "gelu", "gelu-tanh", "swiglu"):
        raise UsageError(f"a feed-forward network with {feed.activation!r} cannot be written out")
    h = feed.up(x.values)
    box = _linear(sheet, "feed.up", "feed-forward: first layer", x.box, feed.up, h, "x W_1")
    if feed.activation == "swiglu":
        gate, value = h.chunk(2, -1)
        h, how = F.silu(gate) * value, "silu(first half) · second half"
    else:
        act: Any = {"relu": F.relu, "gelu": F.gelu, "gelu-tanh": gelu_tanh}[feed.activation]
        h, how = act(h), f"{feed.activation}(x)"
    box = sheet.put(
        "feed.hidden", "feed-forward: activation", h, how, {**_of("activation", box), "kind": feed.activation}
    )
    h = feed.down(h)
    return Put(_linear(sheet, "feed.down", "feed-forward: second layer", box, feed.down, h, "x W_2"), h)


def _before(sheet: Sheet, part: str, h: Put, norm: Any) -> Put:
    if norm is None:
        return h
    values = norm(h.values)
    return Put(sheet.norm(f"{part}.norm", h.box, norm, values), values)


def _add(sheet: Sheet, part: str, h: Put, out: Put, norm: Any) -> Put:
    values = h.values + out.values
    box = sheet.put(f"{part}.add", "add", values, "x + Sublayer(x)", _of("add", h.box, out.box))
    if norm is None:
        return Put(box, values)
    values = norm(values)
    return Put(sheet.norm(f"{part}.normed", box, norm, values), values)


def _linear(sheet: Sheet, name: str, title: str, x: str, linear: Any, values: Tensor, how: str) -> str:
    bias = sheet.name(linear.bias)
    rule = {"op": "linear", "of": [x], "weight": sheet.name(linear.weight), "bias": bias, "rows": None}
    return sheet.put(name, title, values, how + (" + b" if bias else ""), rule)


def _of(op: str, *boxes: str) -> Rule:
    return {"op": op, "of": list(boxes)}
