"""A model as a class of transformers has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regard.interop.weight_table import Row

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class HubModel:
    """A class of transformers with its settings, and its weights under our names and theirs."""

    architecture: str
    settings: Mapping[str, Any]
    weights: Weights  # ours, as the class computes with them
    rows: list[Row]
    prefix: str
    finish: Callable[[Weights], Weights] = dict  # of their weights
    excluded: Sequence[int] = ()  # tokens of the output whose probability is 0
