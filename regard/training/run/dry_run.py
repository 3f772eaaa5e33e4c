"""`regard train --dry-run`: what a training run would do and cost, without running it."""

from __future__ import annotations

from pathlib import Path

from regard.tasks.task import Data
from regard.text.batches.pairs import PairData
from regard.training.budget.forecast import forecast
from regard.training.recipe.schema import Recipe
from regard.training.recipe.toml_file import to_toml
from regard.training.run.prepare import prepare
from regard.training.run.torch_settings import torch_settings


def dry_run_report(recipe: Recipe, *, init: str | Path | None = None) -> str:
    """Return the complete recipe with the reason for each choice, and a report on data, memory and time as comments.

    The text is itself a recipe. The data is read, the tokenizer trained, and a copy of the model takes some trial
    steps; nothing is written except temporary files.
    """
    ready = prepare(recipe, folder=None, init=init, say=lambda text: None)
    reasons = {choice.key: choice.why for choice in ready.choices}
    sizes = {tokenizer.size for tokenizer in ready.tokenizers}
    with torch_settings(ready.recipe.training, ready.device):
        cost = forecast(ready)
    report = [
        *data_report(ready.train, str(ready.corpora.train.report), len(ready.corpora.validation)),
        *([f"vocabulary: {' and '.join(f'{size:,}' for size in sorted(sizes))} pieces"] if any(sizes) else []),
        f"parameters: {cost.parameters:,}",
        *cost.lines(),
    ]
    return "\n".join([to_toml(ready.recipe, reasons), *(f"# {line}" for line in report)])


def data_report(data: Data, read: str, held_out: int) -> list[str]:
    """Describe what was read, what is left out, and how full the batches are."""
    lines = [*f"data: {read}".splitlines(), f"{held_out:,} samples held out for validation"]
    if isinstance(data, PairData) and data.too_long.count:
        lines.append(f"too long, left out: {data.too_long.count:,}, first at {', '.join(data.too_long.locations)}")
    lines.append(f"{len(data):,} samples to train on, padding {data.padding:.1%} of all batches")
    return lines
