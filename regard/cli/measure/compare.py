"""`regard compare`: train the translators of the lectures on the same data and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.shared.model_options import Threads
from regard.errors import UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.compare.report import Outcome
    from regard.training.recipe.schema import Recipe

NARROW = {"parameters": "para-\nmeters", "tokens/s": "tokens\n/s"}  # break headings that are wider than their numbers


def compare_models(
    what: Annotated[list[str] | None, typer.Argument(help="Text files or a recipe; default: the demo corpus.")] = None,
    systems: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated subset of rnn, bahdanau, luong-dot, luong-bilinear, transformer, transformer-post."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("runs/compare"),
    test_source: Annotated[Path | None, typer.Option(help="Test sentences; default: held out from the data.")] = None,
    test_target: Annotated[Path | None, typer.Option(help="Translations of the test sentences.")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps per system.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens per batch.")] = None,
    parameters: Annotated[int | None, typer.Option(help="Approximate number of parameters per system.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the order of the data and of the initial weights.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the result.")] = False,
    threads: Threads = None,
) -> None:
    """Train the translators of the lectures on the same data and compare them.

    All systems see the same tokens and have about the same number of parameters; training time is one of the results.
    The output is a table, two pictures and, for each claim of the lectures, whether it holds on this data. Run the same
    command again to resume an interrupted comparison or to print the report of a finished one.

    Examples:
      regard compare                        the demo corpus: about 15 minutes on two cores
      regard compare fr.txt en.txt          two parallel files, or one file of pairs (.tsv, .csv, .jsonl)
      regard compare recipe.toml            data, tokenizer and training of a recipe without [model]
    """
    set_threads(threads)
    if (test_source is None) != (test_target is None):
        raise UsageError("--test-source and --test-target go together: pass both or neither")
    test = None if test_source is None or test_target is None else (test_source, test_target)
    if test is not None and not what:
        raise UsageError("--test-source and --test-target need files to train on; the demo corpus has its own test set")
    from regard.compare.comparison import DEMO_PARAMETERS, compare_systems
    from regard.compare.systems import SYSTEMS

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    outcome = compare_systems(
        recipe_to_compare(what or [], {"steps": steps, "batch_tokens": batch_tokens, "seed": seed}),
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


def recipe_to_compare(what: list[str], training: dict[str, int | None]) -> Recipe:
    """Return the recipe for the files, the named recipe or that of the demo corpus, with the options applied."""
    from dataclasses import replace

    from regard.compare.comparison import demo_recipe
    from regard.training.recipe.from_files import recipe_for_files
    from regard.training.recipe.toml_file import read_recipe

    overrides: dict[str, Any] = {key: value for key, value in training.items() if value is not None}
    if len(what) == 1 and (what[0].endswith(".toml") or not Path(what[0]).exists()):
        return read_recipe(what[0], {f"training.{key}": value for key, value in overrides.items()})
    recipe = recipe_for_files(what) if what else demo_recipe()
    settings = replace(recipe.training, **overrides)
    if not what and "steps" in overrides:  # the intervals of the demo recipe suit only its own number of steps
        settings = replace(settings, validate_every=None, save_every=None)
    return replace(recipe, training=settings)


def show_outcome(outcome: Outcome, out: Path) -> None:
    """Print the table, the claims and the notes."""
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
