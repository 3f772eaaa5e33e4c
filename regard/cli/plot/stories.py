"""`regard plot answer` and `regard plot summary`: which sentences of a text a model took its words from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.plot.drawing import Output, write
from regard.cli.shared.model_options import Model, load_as, plain_warnings, read_text
from regard.errors import DataError

Text = Annotated[Path, typer.Argument(help="Text file; - is stdin.")]
ABOUT = "Each column is a token that was written, each row a sentence: the pointer's attention to its tokens, summed."


def answer(
    file: Text,
    question: Annotated[str, typer.Argument(help="Question about the text.")],
    model: Model,
    output: Output = None,
) -> None:
    """Draw which sentences of a story an answer is taken from (G3).

    Example: regard plot answer -m runs/answers story.txt "Who went to the park?" -o answer.png
    """
    from regard.api.copying.answerer import Answerer

    answerer = load_as(Answerer, model, "cpu", "auto")
    with plain_warnings():
        result = answerer.answer(read_story(file), question)
    draw_sources(
        result.weights, result.sentences, result.tokens, f"{question} {result.text}", output or Path("answer.png")
    )


def summary(file: Text, model: Model, output: Output = None) -> None:
    """Draw which sentences of a text each token of its summary is taken from (G3).

    Example: regard plot summary -m runs/summaries text.txt -o summary.png
    """
    from regard.api.copying.summarizer import Summarizer

    summarizer = load_as(Summarizer, model, "cpu", "auto")
    with plain_warnings():
        result = summarizer.summarize(read_story(file))
    draw_sources(
        result.weights, result.sentences, result.tokens, "Where the summary comes from", output or Path("summary.png")
    )


def read_story(file: Path) -> str:
    """Return the text of a file; DataError if it is empty."""
    text = "\n".join(read_text(file)).strip()
    if not text:
        raise DataError(f"{file} is empty: there is nothing to read")
    return text


def draw_sources(
    weights: Sequence[Sequence[float]], sentences: Sequence[str], tokens: Sequence[str], title: str, output: Path
) -> None:
    """Draw the attention of each token (m) to each sentence (s); weights is (m, s)."""
    from regard.look.pictures.matrices import alignment_plot

    words = [token.removeprefix("▁") or token for token in tokens]
    by_sentence = [[min(weight, 1.0) for weight in column] for column in zip(*weights, strict=True)]  # (s, m)
    write(lambda: alignment_plot(by_sentence, words, sentences, title=title, made=ABOUT), output, output.stem)
