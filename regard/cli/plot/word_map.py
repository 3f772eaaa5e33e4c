"""`regard plot words`: a map of word vectors."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.plot.drawing import Output
from regard.cli.shared.model_options import Model, load_as
from regard.errors import UsageError


def word_map(
    model: Model,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Words; A:B draws an arrow from A to B.", metavar="WORD…", show_default="the most frequent ones"
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Title above the map.")] = "",
    output: Output = None,
) -> None:
    """Draw word vectors in two dimensions, by PCA, with arrows between pairs of words (A2).

    Example: regard plot words -m runs/text man:woman king:queen -o words.png
    """
    from regard.api.word_vectors import WordVectors

    vectors = load_as(WordVectors, model, "cpu", "auto")
    typer.echo(vectors.plot(*map(word_or_pair, words or []), path=output or "words.png", title=title))


def word_or_pair(text: str) -> str | tuple[str, str]:
    """Read A:B as a pair of words, and everything else as a word."""
    first, *others = text.split(":")
    if not others or len(text) == 1:
        return text
    if len(others) > 1 or not first or not others[0]:
        raise UsageError(f"{text}: write a word, or two words with a colon between them, such as king:queen")
    return first, others[0]
