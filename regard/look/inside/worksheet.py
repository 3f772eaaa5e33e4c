"""A worksheet of a computation: boxes in order, each with its numbers and the rule that computes them.

H4. A box names its input boxes and a rule, so that a reader can compute it again: the page does so when a number is
opened, and the tests do so for all. The rules by `op`, where x is the first box in `of`:

    given      numbers from another part of the model
    rows       rows of a parameter (weight), times scale; `column` takes one number of each
    sinusoidal positions by Vaswani et al. 2017, section 3.5
    pick       row `row` of x
    add        the sum of all boxes in `of`, one row to many
    norm       kind layer or rms, with weight, bias, eps
    linear     x W[rows]^T + b[rows], W's columns cut by `columns`
    slice      x[columns] W[index] + b[rows]
    rotate     pairs of x rotated by position times frequency; the first `turning` numbers, layout halves or interleaved
    dot        K x for of = [x, K], or x w for a parameter w
    scale      x times `by`
    distance   -slope times |distance|, of alibi
    relative   scale times x . table[row], for each row
    mask       x where `allowed`, null elsewhere
    softmax    over x
    weigh      the sum of x_j V_j for of = [x, V]; of = [x] weighs rows of a parameter
    heads      the weighted sum of each head, computed like the one shown
    concat     the numbers of all boxes in `of`, concatenated
    activation relu, gelu, gelu-tanh, swiglu, tanh

norm and linear may have a `row`: they use only that row of x.
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
    """Numbers and how they are computed; NaN stands for masked scores."""

    id: str
    part: str  # input, self, cross, feed or output
    title: str
    values: NDArray[np.float32]
    how: str  # the formula as plain text
    rule: Rule
    rows: tuple[str, ...] | None = None  # the tokens along the first axis, if it has tokens

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        # The shortest decimals that round to the same float32.
        numbers = [None if np.isnan(number) else float(str(number)) for number in self.values.ravel()]
        shape = list(self.values.shape)
        entry = {
            "id": self.id,
            "part": self.part,
            "title": self.title,
            "shape": shape,
            "values": {"shape": shape, "values": numbers},
            "from": list(self.rule.get("of", ())),
            "how": self.how,
            "rule": self.rule,
        }
        return entry if self.rows is None else {**entry, "rows": list(self.rows)}


class Sheet:
    """Boxes in the order in which they are computed, and the parameters that they use."""

    def __init__(self, model: nn.Module) -> None:
        self.boxes: list[Box] = []
        self.parameters: dict[str, list[int]] = {}  # shapes of the parameters used
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}

    def name(self, parameter: Tensor | None) -> str | None:
        """Return the name of a parameter, and list it among those used."""
        if parameter is None:
            return None
        name = self._names[id(parameter)]
        self.parameters[name] = list(parameter.shape)
        return name

    def put(
        self, name: str, title: str, values: Tensor, how: str, rule: Rule, *, rows: Sequence[str] | None = None
    ) -> str:
        """Add a box and return its name, `part.box`."""
        part, dot, _ = name.partition(".")
        numbers = values.detach().float().cpu().numpy()
        box = Box(name, part if dot else "input", title, numbers, how, rule, None if rows is None else tuple(rows))
        self.boxes.append(box)
        return name

    def norm(
        self, name: str, x: str, norm: Any, values: Tensor, *, row: int | None = None, rows: Sequence[str] | None = None
    ) -> str:
        """Add the box of a normalisation and return its name."""
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
        """Return it as JSON data."""
        parameters = [{"name": name, "shape": shape} for name, shape in self.parameters.items()]
        return {"boxes": [box.to_dict() for box in self.boxes], "parameters": parameters}
