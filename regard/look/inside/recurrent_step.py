"""One step of a recurrent translator with attention, box by box: state, scores, context, readout.

D5, D14, D15. Bahdanau et al. 2015, appendix A; Luong et al. 2015, section 3.

    n source tokens   h_j source states   s_i decoder states   c_i contexts   y_i tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention.scores import AdditiveScore, BilinearScore, ConcatScore, DotScore
from regard.look.inside.transformer_block import Put
from regard.look.inside.worksheet import Rule, Sheet
from regard.models.recurrent.translator import RecurrentTranslator, top


def write_step(
    sheet: Sheet, model: RecurrentTranslator, source: Tensor, read: Tensor, token: int, names: Sequence[str]
) -> Put:
    """Write how the decoder computes its readout for one token; the last box is the readout (hidden,)."""
    decoder: Any = model.decoder
    encoded = model.encode(source)
    state = model.start(encoded)
    if token:
        model.decode(read[:, :token], state=state)
    before, feed = top(state.hidden)[0, 0], state.feed
    y = decoder.embedding(read[:, token])[0]
    out = model.decode(read[:, token : token + 1], state=state)[0, 0]
    after = top(state.hidden)[0, 0]
    from_model: Rule = {"op": "given"}
    h = Put(
        sheet.put("h", "source states", encoded.states[0], "h_j, output of the encoder", from_model, rows=names),
        encoded.states[0],
    )
    rule: Rule = {
        "op": "rows",
        "weight": sheet.name(decoder.embedding.weight),
        "rows": [int(read[0, token])],
        "scale": 1.0,
    }
    token_box = sheet.put("y", "previous token", y[None], "y_(i-1)", rule)
    if decoder.bahdanau:
        s = Put(sheet.put("state", "state", before, "s_(i-1)", from_model), before)
        c = _write_context(sheet, decoder.cross_attention.score, s, h, names)
        new = sheet.put("output.state", "new state", after, "s_i = f(s_(i-1), y_(i-1), c_i)", from_model)
        order, how = [(new, after), c, (token_box, y)], "[s_i; c_i; y_(i-1)]"
    else:
        formula = "s_i = f(s_(i-1), y_(i-1))" if feed is None else "s_i = f(s_(i-1), y_(i-1), previous readout)"
        s = Put(sheet.put("state", "state", after, formula, from_model), after)
        c = _write_context(sheet, decoder.cross_attention.score, s, h, names)
        order, how = [c, s], "[c_i; s_i]"
    joined = torch.cat([values for _, values in order])
    box = sheet.put("output.concat", "concatenation", joined, how, {"op": "concat", "of": [box for box, _ in order]})
    r = decoder.readout(joined)
    weight, bias = sheet.name(decoder.readout.weight), sheet.name(decoder.readout.bias)
    rule = {"op": "linear", "of": [box], "weight": weight, "bias": bias, "rows": None}
    box = sheet.put("output.linear", "linear layer", r, "x W + b", rule)
    rule = {"op": "activation", "kind": "tanh", "of": [box]}
    return Put(sheet.put("output.readout", "readout", out, "tanh(x)", rule), out)


def _write_context(sheet: Sheet, score: Any, s: Put, h: Put, names: Sequence[str]) -> Put:
    """Write the context (width,) from a decoder state and the source states."""
    if isinstance(score, AdditiveScore | ConcatScore):
        scores = _write_additive(sheet, score, s, h, names)
    else:
        scores = _write_product(sheet, score, s, h, names)
    alpha = torch.softmax(scores.values, -1)
    rule: Rule = {"op": "softmax", "of": [scores.box]}
    box = sheet.put("cross.weights", "weights", alpha, "α_ij = softmax(e_ij)", rule, rows=names)
    c = alpha @ h.values
    return Put(sheet.put("cross.sum", "context", c, "c_i = Σ_j α_ij h_j", {"op": "weigh", "of": [box, h.box]}), c)


def _write_additive(sheet: Sheet, score: AdditiveScore | ConcatScore, s: Put, h: Put, names: Sequence[str]) -> Put:
    """Write the additive score, w . tanh(W_q s + W_k h_j)."""
    if isinstance(score, AdditiveScore):
        w_q, w_k, cut_q, cut_k = score.query.weight, score.key.weight, None, None
    else:  # one matrix for both
        w_q = w_k = score.stacked.weight
        cut_q, cut_k = [0, score.query_dim], [score.query_dim, w_k.shape[1]]
    q, k = (
        values @ (w if cut is None else w[:, cut[0] : cut[1]]).T
        for values, w, cut in ((s.values, w_q, cut_q), (h.values, w_k, cut_k))
    )

    def rule(of: str, weight: Tensor, cut: list[int] | None) -> Rule:
        linear: Rule = {"op": "linear", "of": [of], "weight": sheet.name(weight), "bias": None, "rows": None}
        return linear if cut is None else {**linear, "columns": cut}

    left = sheet.put("cross.q", "query", q, "W_q s", rule(s.box, w_q, cut_q))
    right = sheet.put("cross.k", "keys", k, "W_k h_j", rule(h.box, w_k, cut_k), rows=names)
    both = q + k
    box = sheet.put("cross.add", "sum", both, "W_q s + W_k h_j", {"op": "add", "of": [left, right]}, rows=names)
    both = both.tanh()
    activation: Rule = {"op": "activation", "kind": "tanh", "of": [box]}
    box = sheet.put("cross.tanh", "tanh", both, "tanh(W_q s + W_k h_j)", activation, rows=names)
    scores = both @ score.weight
    last: Rule = {"op": "dot", "of": [box], "weight": sheet.name(score.weight)}
    return Put(sheet.put("cross.scores", "scores", scores, "e_ij = w · tanh(…)", last, rows=names), scores)


def _write_product(sheet: Sheet, score: BilinearScore | DotScore, s: Put, h: Put, names: Sequence[str]) -> Put:
    """Write the dot-product score, s . h_j, s . W h_j, or scaled."""
    k = h
    if isinstance(score, BilinearScore):
        values = score.keys(h.values)
        rule: Rule = {"op": "linear", "of": [h.box], "weight": sheet.name(score.weight), "bias": None, "rows": None}
        k = Put(sheet.put("cross.k", "keys", values, "W h_j", rule, rows=names), values)
    scores = k.values @ s.values
    box = sheet.put("cross.scores", "scores", scores, "s · k_j", {"op": "dot", "of": [s.box, k.box]}, rows=names)
    if isinstance(score, DotScore) and score.scale != 1:
        scores = scores * score.scale
        rule = {"op": "scale", "of": [box], "by": score.scale}
        box = sheet.put("cross.scaled", "scaled scores", scores, "s · k_j / √d", rule, rows=names)
    return Put(box, scores)
