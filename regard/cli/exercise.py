"""`regard exercise`: exercises about attention with a checker that recognises the usual mistakes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import DataError

if TYPE_CHECKING:
    from regard.exercises.verdict import Verdict

exercises = typer.Typer(
    no_args_is_help=True,
    help="Exercises about attention, and a checker that recognises the usual mistakes.",
)

Name = Annotated[str, typer.Argument(help="Name of an exercise, as `regard exercise list` shows it.", metavar="NAME")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
LEVELS = {1: "●", 2: "●●", 3: "●●●"}


@exercises.command("list")
def list_exercises(
    topic: Annotated[str | None, typer.Option(help="Only this topic, e.g. attention.")] = None,
    level: Annotated[int | None, typer.Option(min=1, max=3, help="Only this level, 1 to 3.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only exercises with this tag of the lectures, e.g. D9.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the exercises by topic and difficulty, from ● (a first step) to ●●● (a challenge).

    Example: regard exercise list --topic attention
    """
    from regard.exercises.catalogue import entries

    heading = ""
    for entry in entries(topic, level, tag):
        if as_json:
            fields = {"name": entry.name, "title": entry.title, "topic": entry.topic.folder}
            typer.echo(json.dumps({**fields, "level": entry.level, "tags": entry.tags}, ensure_ascii=False))
            continue
        if entry.topic.title != heading:
            typer.secho(f"{entry.topic.title} ({entry.topic.folder})", bold=True)
            heading = entry.topic.title
        typer.echo(f"  {LEVELS[entry.level]:<4}{entry.name:<27}{entry.title} ({', '.join(entry.tags)})")


@exercises.command()
def start(name: Name) -> None:
    """Write the file of an exercise, with the question and a skeleton, into the current folder.

    The file is a Python file, or for numbers to compute by hand a TOML file. An existing file is never overwritten.

    Example: regard exercise start scaled-dot-product
    """
    from regard.exercises import answer_file

    path = answer_file.start(name, Path())
    typer.echo(f"{path}: answer the question in the file, then run `regard exercise check {path}`")


@exercises.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Files with answers, or folders with such files.")],
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which the code of a file is stopped.")] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Check answers: say what is right, and which of the usual mistakes explains what is wrong.

    The code of a file runs in a process of its own. The exit code is 0 if all answers are right, else 3.

    Examples:
      regard exercise check scaled_dot_product.py
      regard exercise check submissions --json > results.jsonl
    """
    from regard.exercises.isolated import check_files

    verdicts = []
    for path, verdict in check_files(files, limit=timeout):
        verdicts.append(verdict)
        if as_json:
            typer.echo(json.dumps({"file": str(path), **verdict.to_dict()}, ensure_ascii=False))
        else:
            if len(files) > 1 or files[0].is_dir():
                typer.secho(str(path), bold=True)
            print_verdict(verdict)
    if len(verdicts) > 1 and not as_json:
        typer.echo(summary(verdicts))
    if not all(verdict.right for verdict in verdicts):
        raise typer.Exit(DataError.exit_code)


def print_verdict(verdict: Verdict) -> None:
    """Print a verdict, with its first line in colour."""
    first, *others = str(verdict).splitlines()
    colours = {"right": "green", "not done yet": "yellow"}
    typer.secho(first, fg=colours.get(verdict.outcome, "red"))
    for line in others:
        typer.echo(line)


def summary(verdicts: list[Verdict]) -> str:
    """Return how many answers are right, and how often each mistake was made, most frequent first."""
    lines = [f"\n{sum(verdict.right for verdict in verdicts)} of {len(verdicts)} answers are right"]
    mistakes = Counter((verdict.exercise, name) for verdict in verdicts for name in verdict.mistakes)
    lines += [f"  {count} × {name} ({exercise})" for (exercise, name), count in mistakes.most_common()]
    outcomes = Counter(verdict.outcome for verdict in verdicts if not verdict.right and not verdict.mistakes)
    lines += [f"  {count} × {outcome}, no known mistake" for outcome, count in outcomes.most_common()]
    return "\n".join(lines)


@exercises.command()
def solution(name: Name) -> None:
    """Print the solution of an exercise.

    Example: regard exercise solution scaled-dot-product
    """
    from regard.exercises import catalogue

    typer.echo(catalogue.solution(name), nl=False)
