"""The systems of `regard compare`: the translators of the lectures, with about the same number of parameters.

C4, D14, D15, E5. The recurrent systems differ in their attention and nothing else; the width of each system is chosen
to match the number of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from regard.errors import UsageError, unknown_name
from regard.models.presets import make_model
from regard.recipes.model_table import model_config

WIDTH_MULTIPLE = 4  # heads and directions divide the width
MAX_WIDTH = 2**14
TOLERANCE = 0.07  # relative deviation in parameters: the largest system is at most 15% above the smallest


class System(NamedTuple):
    """A translator of any width."""

    title: str
    table: Callable[[int], dict[str, Any]]  # width -> [model] of its recipe


def _recurrent(kind: str, **attention: str) -> Callable[[int], dict[str, Any]]:
    def table(width: int) -> dict[str, Any]:
        return {"kind": kind, "cell": "gru", "layers": 1, "embedding": width // 2, "hidden": width, **attention}

    return table


def _transformer(order: str) -> Callable[[int], dict[str, Any]]:
    def table(width: int) -> dict[str, Any]:
        sizes = {"layers": 2, "dim": width, "heads": 4, "hidden": 4 * width}
        return {"kind": "transformer", **sizes, "order": order, "position": "sinusoidal"}

    return table


SYSTEMS = {
    "rnn": System("RNN", _recurrent("rnn-seq2seq")),
    "bahdanau": System("RNN + Bahdanau", _recurrent("rnn-attention", attention="additive", style="bahdanau")),
    "luong-dot": System("RNN + Luong dot", _recurrent("rnn-attention", attention="dot", style="luong")),
    "luong-bilinear": System("RNN + Luong bilinear", _recurrent("rnn-attention", attention="bilinear", style="luong")),
    "transformer": System("Transformer, pre-norm", _transformer("pre")),
    "transformer-post": System("Transformer, post-norm", _transformer("post")),
}


def chosen_systems(names: Sequence[str]) -> list[str]:
    """Return the names in the order of the lectures, each once."""
    for name in names:
        if name not in SYSTEMS:
            raise UsageError(unknown_name("system", name, tuple(SYSTEMS)))
    if not names:
        raise UsageError(f"no systems to compare: choose from {', '.join(SYSTEMS)}")
    return [name for name in SYSTEMS if name in names]


def matched_sizes(
    names: Sequence[str], parameters: int, *, source_vocabulary: int, target_vocabulary: int, shared: bool
) -> dict[str, dict[str, Any]]:
    """Return the [model] table of each system, with the width whose number of parameters is nearest to `parameters`."""

    def sized(name: str, width: int) -> dict[str, Any]:
        table = SYSTEMS[name].table(width)
        return {**table, "share_embeddings": shared} if table["kind"] == "transformer" else table

    def count(name: str, width: int) -> int:
        return count_parameters(
            sized(name, width), source_vocabulary=source_vocabulary, target_vocabulary=target_vocabulary
        )

    tables = {}
    for name in names:
        low, high = WIDTH_MULTIPLE, MAX_WIDTH  # the count grows with the width
        while high - low > WIDTH_MULTIPLE:
            middle = (low + high) // 2 // WIDTH_MULTIPLE * WIDTH_MULTIPLE
            low, high = (middle, high) if count(name, middle) <= parameters else (low, middle)
        width = min((low, high), key=lambda width: abs(count(name, width) - parameters))
        if abs(count(name, width) - parameters) > TOLERANCE * parameters:
            raise UsageError(
                f"no width of {SYSTEMS[name].title} has about {parameters:,} parameters with a vocabulary of "
                f"{target_vocabulary:,}: the nearest has {count(name, width):,}; give another --parameters"
            )
        tables[name] = sized(name, width)
    return tables


def count_parameters(model: Mapping[str, Any], *, source_vocabulary: int, target_vocabulary: int) -> int:
    """Count the parameters of the model of a [model] table; shared ones count once."""
    with torch.device("meta"):  # shapes without memory
        config = model_config(
            model["kind"],
            model,
            source_vocabulary=source_vocabulary,
            target_vocabulary=target_vocabulary,
        )
        return sum(parameter.numel() for parameter in make_model(config).parameters())
