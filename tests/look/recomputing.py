"""A box of `inside_block` computed again from the boxes and parameters that it names, in numpy and float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Parameter = Callable[[str], Any]


def numbers_of(box: Mapping[str, Any]) -> Numbers:
    """The numbers of a box; NaN where a mask bars."""
    array = box["values"]
    flat = [math.nan if number is None else number for number in array["values"]]
    return np.array(flat, dtype=np.float64).reshape(array["shape"])


def recompute(box: Mapping[str, Any], boxes: Mapping[str, Mapping[str, Any]], parameter: Parameter) -> Numbers | None:
    """What the rule of a box gives; None where the numbers come from elsewhere."""
    rule: dict[str, Any] = box["rule"]
    xs = [numbers_of(boxes[name]) for name in rule.get("of", ())]
    if "row" in rule and rule["op"] != "pick":
        xs[0] = xs[0][rule["row"]]
    return RULES[rule["op"]](xs, rule, lambda key: None if rule.get(key) is None else widen(parameter(rule[key])), box)


def widen(array: Any) -> Numbers:
    return np.asarray(array, dtype=np.float64)


def rows(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    found = of("weight")[rule["rows"]] * rule["scale"]
    return found[:, rule["column"]] if "column" in rule else found


def sinusoidal(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    length, dim = box["shape"]
    i = np.arange(-(-dim // 2)) + rule["first"]
    angles = (np.arange(length) + rule["start"])[:, None] / rule["base"] ** (2 * i / dim)
    assert rule["layout"] == "interleaved"
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, -1)[:, :dim]


def norm(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    x = xs[0]
    if rule["kind"] == "layer":
        x = x - x.mean(-1, keepdims=True)
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + rule["eps"]) * of("weight")
    return y if rule["bias"] is None else y + of("bias")


def linear(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    start, stop = rule["rows"] or (None, None)
    left, right = rule.get("columns") or (None, None)
    y = xs[0] @ of("weight")[start:stop, left:right].T
    return y if rule["bias"] is None else y + of("bias")[start:stop]


def cut(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    left, right = rule["columns"]
    y = xs[0][..., left:right] @ of("weight")[rule["index"]]
    return y if rule["bias"] is None else y + of("bias")[rule["rows"][0] : rule["rows"][1]]


def rotate(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    x, r = np.atleast_2d(xs[0]).copy(), rule["turning"]
    one = [2 * c if rule["layout"] == "interleaved" else c for c in range(r // 2)]
    two = [c + (1 if rule["layout"] == "interleaved" else r // 2) for c in one]
    turned = (x[:, one] + 1j * x[:, two]) * np.exp(1j * np.outer(rule["positions"], rule["frequencies"]))
    x[:, one], x[:, two] = turned.real, turned.imag
    return x.reshape(xs[0].shape)


def weigh(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    return xs[0] @ (xs[1] if len(xs) > 1 else of("weight")[rule["rows"]])


def heads(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    """Only the row of the head that is shown can be told from here; the others are those of the other heads' boxes."""
    made = numbers_of(box).copy()
    made[rule["head"]] = xs[0]
    return made


def softmax(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    shares = np.where(np.isnan(xs[0]), 0.0, np.exp(xs[0] - np.nanmax(xs[0])))
    return shares / shares.sum()


def activation(xs: list[Numbers], rule: dict[str, Any], of: Any, box: Any) -> Numbers:
    x, kind = xs[0], rule["kind"]
    if kind == "relu":
        return np.maximum(x, 0)
    if kind == "tanh":
        return np.tanh(x)
    if kind == "gelu":
        return x * np.vectorize(lambda z: 0.5 * (1 + math.erf(z / math.sqrt(2))))(x)
    if kind == "gelu-tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    gate, value = np.split(x, 2)
    return gate / (1 + np.exp(-gate)) * value


RULES: dict[str, Callable[[list[Numbers], dict[str, Any], Any, Any], Numbers | None]] = {
    "given": lambda xs, rule, of, box: None,
    "rows": rows,
    "sinusoidal": sinusoidal,
    "pick": lambda xs, rule, of, box: xs[0][rule["row"]],
    "add": lambda xs, rule, of, box: xs[0] + xs[1],
    "norm": norm,
    "linear": linear,
    "slice": cut,
    "rotate": rotate,
    "dot": lambda xs, rule, of, box: xs[1] @ xs[0] if len(xs) > 1 else xs[0] @ of("weight"),
    "scale": lambda xs, rule, of, box: xs[0] * rule["by"],
    "distance": lambda xs, rule, of, box: -rule["slope"] * np.abs(np.array(rule["distances"])),
    "relative": lambda xs, rule, of, box: of("weight")[rule["rows"]] @ xs[0] * rule["scale"],
    "mask": lambda xs, rule, of, box: np.where(rule["allowed"], xs[0], np.nan),
    "softmax": softmax,
    "weigh": weigh,
    "heads": heads,
    "concat": lambda xs, rule, of, box: np.concatenate([x.ravel() for x in xs]),
    "activation": activation,
}
