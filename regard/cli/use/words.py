"""`regard words`: nearest words and analogies of trained word vectors, and files of other programs."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared.model_options import Model, load_as
from regard.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.api.word_vectors import Neighbour, WordVectors

words = typer.Typer(
    no_args_is_help=True,
    help="Nearest words and analogies of word vectors, and the files of word2vec and GloVe.",
)

Count = Annotated[int, typer.Option("--count", "-n", min=1, help="Number of words to print.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class VectorFormat(StrEnum):
    word2vec = "word2vec"
    glove = "glove"


@words.command()
def nearest(
    model: Model,
    queries: Annotated[list[str], typer.Argument(help="Words.", metavar="WORD…")],
    count: Count = 10,
    as_json: AsJson = False,
) -> None:
    """Print the words with the most similar vectors, and the cosine of each.

    Example: regard words nearest -m runs/text king queen
    """
    vectors = load_vectors(model)
    results = {word: vectors.nearest(word, count) for word in queries}
    if as_json:
        typer.echo(json.dumps({word: [near._asdict() for near in nears] for word, nears in results.items()}))
        return
    for word, neighbours in results.items():
        if len(results) > 1:
            typer.echo(f"{word}:")
        print_neighbours(neighbours)


@words.command()
def analogy(
    model: Model,
    a: Annotated[str, typer.Argument(help="Word.")],
    b: Annotated[str, typer.Argument(help="Word that belongs to A.")],
    c: Annotated[str, typer.Argument(help="Word for which one like B is searched.")],
    count: Count = 5,
    as_json: AsJson = False,
) -> None:
    """Complete "A is to B as C is to …": print the words nearest to B - A + C.

    Example: regard words analogy -m runs/text man king woman
    """
    answers = load_vectors(model).analogy(a, b, c, count)
    if as_json:
        typer.echo(json.dumps([near._asdict() for near in answers]))
    else:
        print_neighbours(answers)


@words.command("export")
def export_vectors(
    model: Model,
    file: Annotated[Path, typer.Argument(help="Text file to write.")],
    file_format: Annotated[
        VectorFormat, typer.Option("--format", help="word2vec has a first line with both sizes, glove has none.")
    ] = VectorFormat.word2vec,
) -> None:
    """Write the vectors as a text file of word2vec or GloVe, which other programs read.

    Example: regard words export -m runs/text vectors.txt
    """
    typer.echo(load_vectors(model).export(file, format=file_format.value))


@words.command("import")
def import_vectors(
    file: Annotated[Path, typer.Argument(help="Text file of word2vec or GloVe, also gzipped.")],
    out: Annotated[Path, typer.Option(metavar="<path>", help="Model folder to write.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Read the first words only.", show_default="all")] = None,
) -> None:
    """Make a model folder of the vectors in a text file of word2vec or GloVe.

    Example: regard words import glove.6B.100d.txt --out glove --limit 100000
    """
    from regard.api.word_vectors import WordVectors

    if out.exists():
        raise UsageError(f"{out} exists: choose another --out")
    typer.echo(WordVectors.from_file(file, limit=limit).save(out))


def load_vectors(model: str) -> WordVectors:
    from regard.api.word_vectors import WordVectors

    return load_as(WordVectors, model, "cpu", "auto")


def print_neighbours(neighbours: Sequence[Neighbour]) -> None:
    for near in neighbours:
        typer.echo(f"{near.similarity:.3f}  {near.word}")
