"""`regard score`: how likely given translations, or a given text, are to a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.shared.model_options import DEFAULT_MODEL, Device, Dtype, Model, plain_warnings, read_pairs
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.api.translator import Translator
    from regard.api.writer import Writer
    from regard.evaluation.perplexity import Likelihood

PAIRS = 256  # scored together


def score_text(
    source: Annotated[Path, typer.Argument(help="Sources, one a line; for a language model the text.")],
    target: Annotated[
        Path | None, typer.Argument(help="Their translations, line by line; not for a language model.")
    ] = None,
    model: Model = DEFAULT_MODEL,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a pair, then one with the total.")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Score translations, or a text, by their true likelihood.

    Translations: number, log-probability, tokens (the end counted) and perplexity of each pair, then of all.

    A text: log-probability, tokens, perplexity and bits per character.

    Example: regard score -m runs/mine test.fr test.en
    """
    from regard.api.translator import Translator
    from regard.api.writer import Writer
    from regard.tasks.loading import load

    if source == target:
        raise UsageError("source and target are the same file")
    face = load(model, device=device, dtype=dtype)
    with plain_warnings():
        if isinstance(face, Translator):
            if target is None:
                raise UsageError(f"{model} translates: give the translations as a second file")
            score_pairs(face, source, target, as_json)
        elif isinstance(face, Writer):
            if target is not None:
                raise UsageError(f"{model} is a language model: give one text, not two files")
            score_documents(face, source, as_json)
        else:
            raise UsageError(f"{model} embeds texts and gives no probabilities: use `regard embed -m {model}`")


def score_pairs(translator: Translator, source: Path, target: Path, as_json: bool) -> None:
    """A line for each pair and one for all."""
    from regard.evaluation.perplexity import Likelihood

    sources, targets = read_pairs(source, target)
    nll, tokens = 0.0, 0
    for start in range(0, len(sources), PAIRS):
        found = translator.score(sources[start : start + PAIRS], targets[start : start + PAIRS])
        for number, one in enumerate(found, start=start + 1):
            nll, tokens = nll - one.score, tokens + len(one.logps)
            if as_json:
                entry: dict[str, Any] = {"line": number, "log_probability": one.score, "perplexity": one.perplexity}
                entry |= {"tokens": one.tokens, "log_probabilities": one.logps}
                typer.echo(json.dumps(entry, ensure_ascii=False))
            else:
                typer.echo(row(number, one.score, len(one.logps), one.perplexity))
    total = Likelihood(nll, tokens, sum(map(len, targets)) or None)
    typer.echo(json.dumps({"total": total.to_dict()}) if as_json else row("total", -nll, tokens, total.perplexity))


def score_documents(writer: Writer, path: Path, as_json: bool) -> None:
    """One line for the whole text."""
    found = likelihood_of(writer, path)
    if as_json:
        typer.echo(json.dumps({"total": found.to_dict()}))
    else:
        typer.echo(row(-found.nll, found.tokens, found.perplexity, found.bits_per_character))


def likelihood_of(writer: Writer, path: Path, *, stride: int | None = None) -> Likelihood:
    """The likelihood of all documents of a file, read as training reads it; `stride` as in Writer.score."""
    from regard.evaluation.perplexity import Likelihood
    from regard.text.files.corpus import read_documents

    parts = [writer.perplexity(document, stride=stride) for document in read_documents([path]).source]
    return Likelihood(
        sum(part.nll for part in parts), sum(part.tokens for part in parts), sum(part.characters or 0 for part in parts)
    )


def row(*cells: Any) -> str:
    """Tab-separated, numbers with four decimals."""
    return "\t".join(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in cells)
