"""`regard compare`: the translators of the lectures side by side, on the same data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.compare.report import Outcome
    from regard.training.recipe.schema import Recipe

NARROW = {"parameters": "para-\nmeters", "tokens/s": "tokens\n/s"}  # headings that are wider than their numbers

HELP = """Train the translators of the lectures on the same data, and compare them.

  regard compare                        the demo corpus: about a quarter of an hour on two cores\n
  regard compare fr.txt en.txt          two parallel files, or one of pairs (.tsv, .jsonl)\n
  regard compare recipe.toml            the data, tokenizer and training of a recipe without [model]

All see the same tokens and have about as many parameters; time is a result. One table, two pictures, and for each
claim of the lectures whether it holds here. The same command again goes on where it stopped, or only reports.
"""


def compare_models(
    what: Annotated[
        list[str] | None, typer.Argument(help="Text files or a recipe; the demo corpus when left out.")
    ] = None,
    systems: Annotated[
        str | None,
        typer.Option(help="Some of rnn, bahdanau, luong-dot, luong-bilinear, transformer, with commas between."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the comparison.")] = Path("runs/compare"),
    test_source: Annotated[Path | None, typer.Option(help="Test sentences; held out of the data if not given.")] = None,
    test_target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps of each system.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens of a batch.")] = None,
    parameters: Annotated[int | None, typer.Option(help="Parameters of each system, about.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the data's order and the first weights.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the result.")] = False,
) -> None:
    if (test_source is None) != (test_target is None):
        raise UsageError("--test-source and --test-target go together: give both or none")
    test = None if test_source is None or test_target is None else (test_source, test_target)
    if test is not None and not what:
        raise UsageError("--test-source and --test-target go with files; the demo corpus has a test part of its own")
    from regard.compare.comparison import DEMO_PARAMETERS, compare_systems
    from regard.compare.systems import SYSTEMS

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    outcome = compare_systems(
        asked_recipe(what or [], {"steps": steps, "batch_tokens": batch_tokens, "seed": seed}),
        out=out,
        systems=tuple(SYSTEMS) if systems is None else [name.strip() for name in systems.split(",")],
        parameters=DEMO_PARAMETERS if parameters is None and not what else parameters,
        test=test,
        say=say,
        quiet=quiet,
    )
    if json_output:
        import json

        typer.echo(json.dumps(outcome.to_dict(), ensure_ascii=False))
    else:
        show_outcome(outcome, out)


compare_models.__doc__ = HELP


def asked_recipe(what: list[str], training: dict[str, int | None]) -> Recipe:
    """The recipe of the files, the one that is named, or that of the demo corpus, with the options laid over it."""
    from dataclasses import replace

    from regard.compare.comparison import demo_recipe
    from regard.training.recipe.from_files import recipe_for_files
    from regard.training.recipe.toml_file import read_recipe

    given: dict[str, Any] = {key: value for key, value in training.items() if value is not None}
    if len(what) == 1 and (what[0].endswith(".toml") or not Path(what[0]).exists()):
        return read_recipe(what[0], {f"training.{key}": value for key, value in given.items()})
    recipe = recipe_for_files(what) if what else demo_recipe()
    settings = replace(recipe.training, **given)
    if not what and "steps" in given:  # the demo's intervals are for its own number of steps
        settings = replace(settings, validate_every=None, save_every=None)
    return replace(recipe, training=settings)


def show_outcome(outcome: Outcome, out: Path) -> None:
    """The table and the text under it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    heading, rows = outcome.table()
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for i, name in enumerate(heading):
        table.add_column(NARROW.get(name, name), justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for claim in outcome.claims:
        console.print(Text.assemble((f"\n{claim.claim}: {claim.verdict}.", "bold"), f" {claim.evidence}"))
    console.print()
    for note in outcome.notes():
        console.print(note, style="dim", markup=False)
    names = ("table.md", "results.json", "by-length.png", "learning.png")
    console.print(
        f"in {out}: {', '.join(name for name in names if (out / name).exists())}", markup=False, soft_wrap=True
    )
