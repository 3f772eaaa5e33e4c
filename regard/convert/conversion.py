"""Convert heads of a trained softmax model to random features: measure, swap, distil, save.

F3. Measurements on a text show which heads can be swapped (head_analysis.py). They keep their weights (swap_heads.py)
and learn to reproduce the output of the exact heads (distillation.py). The result is a model folder like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from regard.api.model_names import find_model
from regard.api.translator import Translator
from regard.attention.linear.feature_maps import USUAL
from regard.attention.linear.variance import ESTIMATING
from regard.convert.distillation import distil
from regard.convert.head_analysis import MeasuredHead, exact_layers, layer_calls, measure_distilled, measure_layer
from regard.convert.sample_texts import calibration_batches, held_out
from regard.convert.swap_heads import (
    check_convertible,
    choose_heads,
    named_layers,
    random_layers,
    random_part,
    swap_heads,
)
from regard.errors import UsageError, unknown_name
from regard.kernels.linear.crossover import find_table
from regard.models.folder import RESERVED, save_model
from regard.tasks.loading import load
from regard.text.tokenizers.tokenizer import tokenizer_files
from regard.training.recipe.schema import Recipe
from regard.training.recipe.toml_file import read_recipe

TARGET_ERROR = 0.1  # of a head's output, relative
DISTILLATION_STEPS = 300

Watch = Callable[[Sequence[Any], str], Iterable[Any]]


@dataclass(frozen=True)
class Conversion:
    """The outcome of a conversion, head by head."""

    source: Path  # the folder of the exact model
    features: int
    map: str
    target: float
    heads: list[MeasuredHead]
    longest: int  # tokens of the longest text used for measuring
    pays_from: int | None  # tokens from which these features are faster on this device; None: unknown or never
    face: Any  # what the exact model was loaded as
    model: nn.Module | None  # the converted model; None if no head was swapped

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, for programs."""
        return {
            "source": str(self.source),
            "features": self.features,
            "map": self.map,
            "target_error": self.target,
            "longest_text": self.longest,
            "pays_from": self.pays_from,
            "heads": [dataclasses.asdict(head) for head in self.heads],
        }

    def save(self, folder: str | Path) -> Path:
        """Write the converted model with its tokenizer and the information from its training, without scores."""
        if self.model is None:
            raise UsageError(
                f"no head was swapped: with {self.features} features none is within {self.target:g} of exact "
                f"attention. Increase features or target, or choose heads and fine-tune the model"
            )
        face = self.face
        if isinstance(face, Translator):
            tokenizers = face.source_tokenizer, face.target_tokenizer
        else:
            tokenizers = face.tokenizer, face.tokenizer
        card = self.source / "README.md"
        text = card.read_text(encoding="utf-8").rstrip() if card.is_file() else f"# A {face.model.config.kind} model"
        return save_model(
            self.model,
            folder,
            files=tokenizer_files(*tokenizers),
            info={name: value for name, value in face.info.items() if name not in (*RESERVED, "scores")},
            card=f"{text}\n\n## Converted\n\n`regard convert` made this model; scores above are of the exact one.\n\n"
            f"{self.text()}\n",
        )

    def text(self) -> str:
        """Return the heads as a table in Markdown, and a summary."""
        lines = [
            "| head | \\|x+y\\|² | variance | error | features needed | begun at | error then | distilled | |",
            "|---" * 9 + "|",
        ]
        for head in self.heads:
            needed = "more than 4096" if head.needed is None else str(head.needed)
            distilled = "" if head.distilled is None else f"{head.distilled:.3f}"
            lines.append(
                f"| {head.name} | {head.spread:.1f} | {head.variance:.2g} | {head.error:.3f} | {needed} | "
                f"x {head.factor:g} | {head.start:.3f} | {distilled} | {'random' if head.random else 'exact'} |"
            )
        return "\n".join([*lines, "", self.summary()])

    def summary(self) -> str:
        """Summarise the table in sentences."""
        fit, chosen = sum(head.start <= self.target for head in self.heads), sum(head.random for head in self.heads)
        lines = [
            f"{fit} of {len(self.heads)} heads are within {self.target:g} of exact attention with {self.features} "
            f"{self.map} features; the others should stay exact, or have much to learn. Chosen for features: {chosen}."
        ]
        if self.pays_from is None:
            lines.append("No length is known from which on that is faster on this device: regard bench --attention.")
        else:
            lines.append(
                f"It is faster on this device from about {self.pays_from:,} tokens on; the longest text here has "
                f"{self.longest:,}."
            )
        return " ".join(lines)


def convert_model(
    model: str | Path,
    lines: Sequence[str],
    *,
    heads: Sequence[str] = ("auto",),
    target: float = TARGET_ERROR,
    features: int = USUAL,
    map: str = "hyperbolic",
    steps: int = DISTILLATION_STEPS,
    swap: bool = True,
    seed: int = 0,
    device: str = "auto",
    watch: Watch = lambda things, doing: things,
) -> Conversion:
    """Measure every head of a trained Transformer on a text, and swap those that random features can replace.

        model     a folder, or a shipped name
        lines     text like that in later use, one sentence or passage per line; for a translator the source
        heads     ("auto",): heads whose output is within `target` of the exact one; ("all",); or names as in
                  exact_heads of a recipe ("decoder", "decoder.2.cross", "encoder.0.self:0,3"), and only their
                  layers are measured
        features  number of features per query or key
        steps     of distillation; 0 leaves the heads as they are after the swap
        swap      False only measures

    `watch(items, activity)` wraps the items of each phase, to show progress.
    """
    if not target > 0:
        raise UsageError(f"the target error must be greater than 0, got {target}")
    if map not in ESTIMATING:
        raise UsageError(unknown_name("feature map", map, ESTIMATING))
    face: Any = load(model, device=device)
    exact, config = face.model, face.model.config
    layers = check_convertible(config, map, features)
    layers = named_layers(heads, layers, config)
    training, measured = held_out(calibration_batches(face, lines))
    calls = [layer_calls(exact, batch) for batch in measured]
    results: list[MeasuredHead] = []
    for name in watch(layers, "measuring"):
        seen = [call[name] for call in calls]
        results += measure_layer(name, exact_layers(exact)[name], seen, features=features, map=map, target=target)
    results = choose_heads(heads, results, config, target)
    student = None
    if swap and any(head.random for head in results):
        student = swap_heads(exact, results, features=features, map=map, seed=seed)
        if steps:
            distil(exact, student, training, steps=steps, seed=seed, watch=lambda steps: watch(steps, "distilling"))
        for name, layer in random_layers(student).items():
            of_layer, seen = [head for head in results if head.layer == name], [call[name] for call in calls]
            distilled = measure_distilled(of_layer, exact_layers(exact)[name], random_part(layer), seen)
            results = [distilled[head.head] if head.layer == name else head for head in results]
    table = find_table(next(exact.parameters()).device)
    return Conversion(
        source=find_model(model),
        features=features,
        map=map,
        target=target,
        heads=results,
        longest=max(tokens.shape[1] for batch in measured for tokens in batch),
        pays_from=None if table is None else table.length(table.nearest(config.key_width, features)),
        face=face,
        model=student,
    )


def tuning_recipe(source: Path, *, name: str, steps: int) -> Recipe:
    """Return the recipe of a run for fine-tuning a converted model for that many steps."""
    file = source / "training" / "recipe.toml"
    if not file.is_file():
        raise UsageError(
            f"{source} is not the folder of a training run, so its data is unknown: convert without fine-tuning, and "
            f"train the result on by `regard train SOURCE TARGET --init`"
        )
    recipe = read_recipe(file)
    return replace(
        recipe,
        name=name,
        model={},
        tokenizer=replace(recipe.tokenizer, kind=None, size=None),
        training=replace(recipe.training, steps=steps, warmup=min(recipe.training.warmup or 0, steps // 10)),
    )
