"""`regard check`: find problems in training data, and say how training will handle them."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import DataError, UsageError
from regard.machine import redraws

if TYPE_CHECKING:
    from regard.text.check.checker import Rules
    from regard.text.files.shards import Shard
    from regard.training.recipe.schema import DataRecipe, Recipe


def check_files(
    what: Annotated[list[str], typer.Argument(help="Text files, a recipe (.toml), or the name of a shipped recipe.")],
    validation: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="SRC TGT", help="Two parallel validation files; also report their overlap with the training data."
        ),
    ] = None,
    test: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="SRC TGT", help="Two parallel test files; report test sentences in the training data."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Count tokens with the tokenizer of this model: folder or name.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. data.max_length=100."),
    ] = None,
    fix: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write repaired copies of the files into this new folder, with a list of all changes.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Check training data: report problems, where they are, and how training will handle them.

    Pass the same arguments as to `regard train`. The exit code is 3 if training would stop at this data. With --fix,
    the report and the exit code are those of the repaired copies; the input files are never changed.

    Examples:
      regard check fr.txt en.txt            two parallel files
      regard check fr.txt en.txt --fix new  write repaired copies new/fr.txt, new/en.txt
      regard check pairs.tsv                pairs in one file (.tsv, .csv, .jsonl or .parquet)
      regard check text.txt                 a text for a language model
      regard check recipe.toml              all files of a recipe
    """
    from regard.text.check.checker import check_data
    from regard.text.files.corpus import read_parallel
    from regard.text.files.shards import CorpusRows

    recipe = recipe_to_check(what, validation, settings or [])
    data = recipe.data
    if data.form == "demo":
        raise UsageError(
            "this recipe trains on the demo corpus, which is generated when needed: there are no files to check"
        )
    if test is not None and data.form == "text":
        raise UsageError("--test compares pairs, but the data is text for a language model: leave it out")
    test_rows = [] if test is None else [CorpusRows(read_parallel(*test))]
    rules = rules_of(recipe, model)
    train, held_out = shards_of(data, ""), shards_of(data, "validation_")
    fixed = None
    if fix is not None:
        from regard.text.check.fix import fix_data, fixed_shards

        fixed = fix_data(train, held_out, fix)
        train, held_out = fixed_shards(train, fix), fixed_shards(held_out, fix)
    with progress() as show_rows:
        report = check_data(train, held_out, test_rows, rules=rules, on_progress=show_rows)
    if as_json:
        summary = report.to_dict() | ({} if fixed is None else {"fixed": fixed.to_dict()})
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        typer.echo("\n\n".join(map(str, filter(None, (fixed, report)))))
    if report.stops:
        raise typer.Exit(DataError.exit_code)


def recipe_to_check(what: list[str], validation: tuple[Path, Path] | None, settings: list[str]) -> Recipe:
    """Return the recipe that `regard train` would use for these arguments."""
    from regard.cli.train import split_setting
    from regard.training.recipe.from_files import recipe_for_files
    from regard.training.recipe.toml_file import apply_overrides, read_recipe, shipped_recipes

    overrides = dict(split_setting(text) for text in settings)
    if len(what) == 1 and (what[0].endswith(".toml") or what[0] in shipped_recipes() or not Path(what[0]).exists()):
        recipe = read_recipe(what[0], overrides)
    else:
        recipe = apply_overrides(recipe_for_files(what), overrides)
    if validation is None:
        return recipe
    source, target = (str(path) for path in validation)
    data = dataclasses.replace(recipe.data, validation_source=(source,), validation_target=(target,))
    return dataclasses.replace(recipe, data=data)


def shards_of(data: DataRecipe, prefix: str) -> list[Shard]:
    """Return the training files of a recipe, or with the prefix `validation_` its validation files."""
    from regard.text.check.checker import PairsFile, ParallelFiles, TextFile

    source, target, pairs, text = (
        [short_path(name) for name in getattr(data, prefix + key)] for key in ("source", "target", "pairs", "text")
    )
    parallel = [ParallelFiles(*paths) for paths in zip(source, target, strict=True)]
    return [*parallel, *(PairsFile(path, data.columns) for path in pairs), *map(TextFile, text)]


def short_path(name: str) -> Path:
    """Return a path as messages show it: relative to the current folder if that is shorter."""
    relative = os.path.relpath(name)
    return Path(relative if len(relative) < len(name) else name)


def rules_of(recipe: Recipe, model: str | None) -> Rules:
    """Return the rules by which training accepts or drops a sentence."""
    from regard.text.check.checker import DEFAULT_MAX_TOKENS, Rules

    limit = min(recipe.data.max_length or DEFAULT_MAX_TOKENS, recipe.training.batch_tokens or DEFAULT_MAX_TOKENS)
    characters = recipe.tokenizer.kind == "characters"
    if model is None:
        return Rules(limit=limit, by_characters=characters, faults=recipe.data.faults)
    from regard.api.model_names import find_model
    from regard.text.tokenizers.tokenizer import read_tokenizers

    return Rules(limit=limit, tokenizers=read_tokenizers(find_model(model)), faults=recipe.data.faults)


@contextmanager
def progress() -> Iterator[Callable[[int], None]]:
    """Show the number of rows read on stderr, if it is a terminal; yield a function that updates it."""
    if not redraws(sys.stderr):
        yield lambda rows: None
        return
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:
        yield lambda rows: status.update(f"{rows:,} rows")
