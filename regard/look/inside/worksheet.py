"""The sheet that a computation is written on: numbered boxes, each with its numbers and how they came about.

H4. A box names the boxes that it is made from and a rule, so that whoever reads it can compute it again: the page when
a number is opened, the tests always. The rules, by `op`, with x the first of the boxes in `of`:

    given      numbers that come from elsewhere in the model
    rows       rows of a parameter (weight), times scale; `column` takes one number of each
    sinusoidal positions by Vaswani et al. 2017, section 3.5
    pick       row `row` of x
    add        the sum of all boxes in `of`, one row to many
    norm       kind layer or rms, with weight, bias, eps
    linear     x W[rows]^T + b[rows], W's columns cut by `columns`
    slice      x[columns] W[index] + b[rows]
    rotate     pairs of x turned by position times frequency; the first `turning` numbers, layout halves or interleaved
    dot        K x for of = [x, K], or x w for a parameter w
    scale      x times `by`
    distance   -slope times |distance|, of alibi
    relative   scale times x . table[row], for each row
    mask       x where `allowed`, nothing (null) elsewhere
    softmax    over x
    weigh      the sum of x_j V_j for of = [x, V]; of = [x] weighs rows of a parameter
    heads      each head's sum, made like the one that is shown
    concat     all numbers of all boxes in `of` in a row
    activation relu, gelu, gelu-tanh, swiglu, tanh

norm and linear may have a `row`: only that row of x is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

Rule = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Box:
    """Numbers, and how they came about; NaN stands for what a mask bars."""

    id: str
    part: str  # input, self, cross, feed or output
    title: str
    values: NDArray[np.float32]
    how: str  # the formula in plain letters
    rule: Rule
    rows: tuple[str, ...] | None = None  # the tokens along the first side, where that is what it has

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        # The shortest decimals that give the same float32 again.
        numbers = [None if np.isnan(number) else float(str(number)) for number in self.values.ravel()]
        shape = list(self.values.shape)
        made = {
            "id": self.id,
            "part": self.part,
            "title": self.title,
            "shape": shape,
            "values": {"shape": shape, "values": numbers},
            "from": list(self.rule.get("of", ())),
            "how": self.how,
            "rule": self.rule,
        }
        return made if self.rows is None else {**made, "rows": list(self.rows)}


class Sheet:
    """Boxes in the order in which they are computed, and the parameters that they use."""

    def __init__(self, model: nn.Module) -> None:
        self.boxes: list[Box] = []
        self.parameters: dict[str, list[int]] = {}  # the shapes of those used
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}

    def name(self, parameter: Tensor | None) -> str | None:
        """The name of a parameter, which is from now on one of those used."""
        if parameter is None:
            return None
        name = self._names[id(parameter)]
        self.parameters[name] = list(parameter.shape)
        return name

    def put(
        self, name: str, title: str, values: Tensor, how: str, rule: Rule, *, rows: Sequence[str] | None = None
    ) -> str:
        """Write a box, `part.what`, and give its name."""
        part, dot, _ = name.partition(".")
        numbers = values.detach().float().cpu().numpy()
        box = Box(name, part if dot else "input", title, numbers, how, rule, None if rows is None else tuple(rows))
        self.boxes.append(box)
        return name

    def norm(
        self, name: str, x: str, norm: Any, values: Tensor, *, row: int | None = None, rows: Sequence[str] | None = None
    ) -> str:
        """The box of a normalisation."""
        bias = getattr(norm, "bias", None)
        kind = "rms" if "RMS" in type(norm).__name__ else "layer"
        eps = np.finfo(np.float32).eps.item() if norm.eps is None else norm.eps
        how = "x / rms(x) · γ" if kind == "rms" else "(x - mean) / σ · γ" + ("" if bias is None else " + β")
        rule: Rule = {
            "op": "norm", "kind": kind, "of": [x], "weight": self.name(norm.weight), "bias": self.name(bias), "eps": eps
        }  # fmt: skip
        if row is not None:
            rule["row"] = row
        return self.put(name, "RMSNorm" if kind == "rms" else "LayerNorm", values, how, rule, rows=rows)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        named = [{"name": name, "shape": shape} for name, shape in self.parameters.items()]
        return {"boxes": [box.to_dict() for box in self.boxes], "parameters": named}
