"""`regard compare`: the systems of the lectures on the same data and tokens, with about as many parameters.

C4, D14, D15, D17, E5.

    runs/compare/setup.json     the settings; the same call again resumes, or only reports
    runs/compare/data/          the sentences and the common tokenizer
    runs/compare/NAME.toml      the recipe of a system; runs/compare/NAME/ is its run, NAME.txt its translations
    runs/compare/table.md, results.json, by-length.png, learning.png

The order of the batches depends only on the data and the seed, so after the same step all have seen the same tokens.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from regard.compare.claims import SystemResult
from regard.compare.data import HeldOut, place_data, read_test
from regard.compare.report import Outcome
from regard.compare.systems import SYSTEMS, chosen_systems, count_parameters, matched_sizes
from regard.decoding.searches.greedy import Greedy
from regard.errors import UsageError
from regard.evaluation.bleu import corpus_bleu, corpus_chrf
from regard.evaluation.by_length import scores_by_length
from regard.evaluation.significance import paired_bootstrap
from regard.recipes.facts import choice_lines
from regard.system.files import replace_file
from regard.tasks.loading import load
from regard.text.tokenizers.tokenizer import read_tokenizers, tokenizer_files
from regard.training.checkpoint.files import checkpoint_steps
from regard.training.recipe.defaults import complete, facts_of, this_machine
from regard.training.recipe.schema import DataRecipe, DecodingRecipe, Recipe, TokenizerRecipe, TrainingRecipe
from regard.training.recipe.toml_file import read_recipe, to_toml
from regard.training.run.child_process import read_memory, train_apart
from regard.training.run.run_start import write_start

Say = Callable[[str], None]

DEMO_PARAMETERS = 1_000_000
BOOTSTRAP_SAMPLES = 1000


def demo_recipe() -> Recipe:
    """Return the recipe of a comparison without files: about 15 minutes on two cores, with DEMO_PARAMETERS.

    Batches are small, because recurrent nets need many updates, however many tokens each one has.
    """
    return Recipe(
        name="compare",
        data=DataRecipe(demo=60_000, validation=500, source_language="fr", target_language="en"),
        tokenizer=TokenizerRecipe(kind="unigram", shared=False),
        training=TrainingRecipe(steps=1600, batch_tokens=1024, lr=2e-3, validate_every=200, save_every=400),
        decoding=DecodingRecipe(sentences=200),
    )


def compare_systems(
    asked: Recipe,
    *,
    out: Path,
    systems: Sequence[str] = tuple(SYSTEMS),
    parameters: int | None = None,
    test: tuple[Path, Path] | None = None,
    say: Say | None = None,
    quiet: bool = False,
) -> Outcome:
    """Train the systems one after the other, or resume, and report; `test` are the two files of a test part."""
    say = say or (lambda text: None)
    names = chosen_systems(systems)
    check_recipe(asked)
    parameters = begin(asked, out, parameters=parameters, test=test, say=say)
    start_runs(asked, out, names, parameters)
    for name in names:
        if not progress_of(out / name).get("ended"):
            say(f"training: {SYSTEMS[name].title}")
            train_apart(out / f"{name}.toml", out / name, quiet=quiet)
    part = read_test(out / "data")
    results, translations = {}, {}
    for name in names:
        say(f"testing on {len(part.source):,} sentences: {SYSTEMS[name].title}")
        results[name], translations[name] = measure_system(name, out / name, part)
        replace_file(out / f"{name}.txt", "".join(line + "\n" for line in translations[name]).encode())
    check_equal_tokens(results.values())
    pairs = {
        (a, b): paired_bootstrap(translations[a], translations[b], part.target, samples=BOOTSTRAP_SAMPLES)
        for a, b in combinations(names, 2)
    }
    outcome = Outcome(results, pairs, diagonal=part.alignment_error(part.in_order), seed=asked.training.seed)
    outcome.write(out)
    return outcome


def check_recipe(recipe: Recipe) -> None:
    """Raise UsageError for settings that a comparison chooses itself."""
    if recipe.form == "text":
        raise UsageError("compare needs sentence pairs: two parallel files, or one of pairs (.tsv, .csv, .jsonl)")
    if recipe.model:
        raise UsageError("compare brings its own models: take the table [model] out of the recipe")
    if recipe.training.patience:
        raise UsageError("training.patience ends the systems at different steps: leave it out to compare them")


def begin(asked: Recipe, out: Path, *, parameters: int | None, test: tuple[Path, Path] | None, say: Say) -> int:
    """Create the folder with data, tokenizer and common recipe, or check it; return the number of parameters."""
    file = out / "setup.json"
    setup: dict[str, Any] = {"asked": to_toml(asked), "test": [str(path.absolute()) for path in test or ()]}
    if file.exists():
        saved: dict[str, Any] = json.loads(file.read_bytes())
        if any(saved[key] != value for key, value in setup.items()) or parameters not in (None, saved["parameters"]):
            raise UsageError(f"{out} holds a comparison of other data or settings (see {file}): choose another --out")
        return int(saved["parameters"])
    if out.exists() and any(path.name != "data" for path in out.iterdir()):
        raise UsageError(f"{out} exists and holds no comparison: it is left alone, choose another --out")
    data = out / "data"
    data.mkdir(parents=True, exist_ok=True)
    recipe = place_data(asked, data, test)
    corpora = recipe.task.read(recipe)
    say(f"data: {corpora.train.report}")
    common, choices = complete(recipe, facts_of(corpora.train, corpora.validation), this_machine())
    # The settings of the model and the learning rate differ between systems.
    shared = [choice for choice in choices if not choice.key.startswith("model.") and choice.key != "training.lr"]
    for line in choice_lines(shared, f"{data / 'common.toml'} has them all"):
        say(line)
    source, target = common.task.make_tokenizers(common, corpora.train)
    for name, content in tokenizer_files(source, target).items():
        replace_file(data / name, content)
    replace_file(data / "common.toml", to_toml(common).encode())
    if parameters is None:
        parameters = count_parameters(common.model, source_vocabulary=source.size, target_vocabulary=target.size)
    setup["parameters"] = parameters
    # Written last, because it marks the folder as complete.
    replace_file(file, json.dumps(setup, indent=1, ensure_ascii=False).encode())
    return parameters


def start_runs(asked: Recipe, out: Path, names: Sequence[str], parameters: int) -> None:
    """Write the recipe of each system that has none yet, and begin its run with the common tokenizer."""
    new = [name for name in names if not (out / name / "training" / "recipe.toml").exists()]
    if not new:
        return
    common = read_recipe(out / "data" / "common.toml")
    corpora = common.task.read(common)
    source, target = read_tokenizers(out / "data")
    shared = bool(common.tokenizer.shared)
    tables = matched_sizes(new, parameters, source_vocabulary=source.size, target_vocabulary=target.size, shared=shared)
    training = dataclasses.replace(common.training, lr=asked.training.lr)  # without one, it is chosen for each system
    for name, model in tables.items():
        recipe = dataclasses.replace(common, name=f"{common.name}-{name}", model=model, training=training)
        recipe, _ = complete(recipe, facts_of(corpora.train, corpora.validation), this_machine())
        replace_file(out / f"{name}.toml", to_toml(recipe).encode())
        write_start(out / name / "training", recipe, corpora, (source, target))


def progress_of(folder: Path) -> dict[str, Any]:
    """Return the progress of a run from its newest checkpoint; empty before the first one."""
    training = folder / "training"
    steps = checkpoint_steps(training)
    if not steps:
        return {}
    state = json.loads((training / f"step-{steps[-1]:08d}" / "state.json").read_bytes())
    return dict(state["progress"])


def measure_system(name: str, folder: Path, part: HeldOut) -> tuple[SystemResult, list[str]]:
    """Return the scores of a trained system, and its translations of the test part."""
    translator: Any = load(folder)
    start = time.perf_counter()
    outputs = [translation.text for translation in translator.translate(part.source, search=Greedy())]
    seconds = time.perf_counter() - start

    def links_of(source: str, target: str) -> set[tuple[int, int]]:
        return set(translator.align(source, target, words=part.words).pairs)

    progress = progress_of(folder)
    result = SystemResult(
        name=name,
        title=SYSTEMS[name].title,
        parameters=sum(parameter.numel() for parameter in translator.model.parameters()),
        steps=progress["step"],
        tokens=progress["tokens"],
        seconds=progress["seconds"],
        memory=read_memory(folder),
        bleu=corpus_bleu(outputs, part.target, samples=BOOTSTRAP_SAMPLES),
        chrf=corpus_chrf(outputs, part.target, samples=BOOTSTRAP_SAMPLES),
        buckets=scores_by_length(outputs, part.target, part.source, edges=part.edges, samples=BOOTSTRAP_SAMPLES),
        aer=part.alignment_error(links_of) if translator.model.config.cross_layers else None,
        curve=learning_curve(folder / "metrics.jsonl"),
        decoding_seconds=seconds,
    )
    return result, outputs


def learning_curve(metrics: Path) -> list[tuple[int, float]]:
    """Return (target tokens seen, validation BLEU) for each validation of a run that translates."""
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    train = [(record["step"], record["tokens"]) for record in records if record["kind"] == "train"]
    steps, tokens = zip((0, 0), *train, strict=True)
    return [
        (round(float(np.interp(record["step"], steps, tokens))), record["bleu"]["value"])
        for record in records
        if record["kind"] == "validation" and "bleu" in record
    ]


def check_equal_tokens(results: Iterable[SystemResult]) -> None:
    """Raise RuntimeError unless all systems have seen equally many tokens, as a fair comparison requires."""
    seen = {result.title: result.tokens for result in results}
    if len(set(seen.values())) > 1:
        counts = ", ".join(f"{title} {tokens:,}" for title, tokens in seen.items())
        raise RuntimeError(f"the systems have not seen the same target tokens: {counts}")
