"""The model card: README.md of a trained model, which tells whoever gets the folder what it is."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from regard.machine import device_name, number_of_cores
from regard.recipes.tables import FILES
from regard.tasks.imported_start import LICENSE, ImportedStart
from regard.training.loop.report import training_time
from regard.training.recipe.schema import Recipe
from regard.training.state.progress import Progress
from regard.version import __version__

# Sentences and headings that scripts/ship_model.py replaces or extends.
VALIDATION_SCORES = "## Scores on the validation part"
OWNERS_MISSING = "Before you share the model, add here who owns this data and under which terms it may be used."


def model_card(
    model: nn.Module,
    recipe: Recipe,
    progress: Progress,
    *,
    scores: Mapping[str, Any],
    samples: Sequence[Sequence[str]],
    start: ImportedStart | None = None,
) -> str:
    """Return the card: what the model is, its scores, its data and how it was trained.

    `start` is the imported model that the training started from; its license is part of the card.
    """
    config: Any = model.config
    count = sum(parameter.numel() for parameter in model.parameters())
    languages = " to ".join(filter(None, (recipe.data.source_language, recipe.data.target_language)))
    what = f"{config.kind}, {languages}" if languages else config.kind
    article = "An" if what[0] in "aeiou" else "A"
    parts = [
        f"# {recipe.name}",
        f"{article} {what} model with {count:,} parameters, trained by regard {__version__}.",
        f"```sh\n{recipe.task.usage.replace('FOLDER', 'THIS_FOLDER')}\n```",
        VALIDATION_SCORES,
        _table(("score", "value", "signature"), [_score(name, value) for name, value in scores.items()]),
    ]
    if samples:
        parts += ["## Examples from the validation part", _table(("source", "reference", "model"), samples)]
    parts += [
        "## Data",
        _data(recipe),
        "## Training",
        f"{progress.step:,} steps, {progress.tokens:,} target tokens, {progress.epoch + 1} passes begun, "
        f"{training_time(progress.seconds, progress.preparing)} of computing on {_hardware(recipe.training.device)}; "
        f"torch {torch.__version__}, Python {platform.python_version()}. The whole recipe is in `config.json`.",
        *([] if start is None else [_origin(start)]),
        "## Settings",
        _table(("setting", "value"), [(name, str(value)) for name, value in config.to_dict().items()]),
    ]
    if start is not None and start.license:
        parts.append(f"{LICENSE}{start.license}")
    return "\n\n".join(parts) + "\n"


def _origin(start: ImportedStart) -> str:
    imported = start.info.get("imported") or {}
    family = f", of the family {imported['family']}" if "family" in imported else ""
    return (
        f"Training started from the imported model {imported.get('source', start.name)}{family}, whose license covers "
        "these weights, too."
    )


def _score(name: str, value: Any) -> tuple[str, str, str]:
    if isinstance(value, Mapping):
        return name, f"{value['value']:.2f}", str(value.get("signature", ""))
    return name, f"{value:.4g}" if isinstance(value, float) else str(value), ""


def _data(recipe: Recipe) -> str:
    data = recipe.data
    if data.demo:
        return "The demo corpus of regard, made by its own grammar; free of rights."
    files = [name for key in FILES if not key.startswith("validation_") for name in getattr(data, key)]
    listed = ", ".join(f"`{os.path.basename(name)}`" for name in files)
    return f"Trained on {listed}. {OWNERS_MISSING}"


def _hardware(device: str | None) -> str:
    if device is not None and device.startswith("cuda"):
        return device_name(device)
    return f"{number_of_cores()} CPU cores ({platform.machine()})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def cells(row: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"

    return "\n".join([cells(head), "|" + "---|" * len(head), *map(cells, rows)])
