"""`regard score`: the probability that a model assigns to given translations, or to a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.shared.model_options import (
    COMMANDS,
    DEFAULT_MODEL,
    Device,
    Dtype,
    Model,
    Threads,
    plain_warnings,
    read_pairs,
)
from regard.cli.shared.torch_import import import_torch
from regard.errors import UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.api.translator import Translator
    from regard.api.writer import Writer
    from regard.evaluation.perplexity import Likelihood

BATCH_PAIRS = 256


def score_text(
    source: Annotated[Path, typer.Argument(help="Source sentences, one per line; for a language model, the text.")],
    target: Annotated[Path | None, typer.Argument(help="Translations, one per line; not for a language model.")] = None,
    model: Model = DEFAULT_MODEL,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per pair, then one with the total.")
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Compute the log-probability of translations or of a text.

    For translations, each line of the output has the line number, the log-probability, the number of tokens (including
    the end token) and the perplexity of a pair; the last line has the total.

    For a text, the output is the log-probability, the number of tokens, the perplexity and the bits per character.

    Examples:
      regard score -m runs/mine test.fr test.en
      regard score -m shakespeare play.txt
    """
    import_torch()
    set_threads(threads)
    from regard.api.translator import Translator
    from regard.api.writer import Writer
    from regard.tasks.loading import load

    if source == target:
        raise UsageError("source and target are the same file")
    face = load(model, device=device, dtype=dtype)
    with plain_warnings():
        if isinstance(face, Translator):
            if target is None:
                raise UsageError(f"{model} translates: pass the translations as a second file")
            score_pairs(face, source, target, as_json)
        elif isinstance(face, Writer):
            if target is not None:
                raise UsageError(f"{model} is a language model: pass one text, not two files")
            score_documents(face, source, as_json)
        else:
            does, command = COMMANDS.get(type(face).__name__, ("computes no probabilities of texts", "info"))
            raise UsageError(f"{model} {does}, so it cannot score texts: use `regard {command}`")


def score_pairs(translator: Translator, source: Path, target: Path, as_json: bool) -> None:
    """Print one line for each pair and one for the total."""
    from regard.evaluation.perplexity import Likelihood

    sources, targets = read_pairs(source, target)
    nll, tokens = 0.0, 0
    for start in range(0, len(sources), BATCH_PAIRS):
        scores = translator.score(sources[start : start + BATCH_PAIRS], targets[start : start + BATCH_PAIRS])
        for number, pair in enumerate(scores, start=start + 1):
            nll, tokens = nll - pair.score, tokens + len(pair.logps)
            if as_json:
                entry: dict[str, Any] = {"line": number, "log_probability": pair.score, "perplexity": pair.perplexity}
                entry |= {"tokens": pair.tokens, "log_probabilities": pair.logps}
                typer.echo(json.dumps(entry, ensure_ascii=False))
            else:
                typer.echo(row(number, pair.score, len(pair.logps), pair.perplexity))
    total = Likelihood(nll, tokens, sum(map(len, targets)) or None)
    typer.echo(json.dumps({"total": total.to_dict()}) if as_json else row("total", -nll, tokens, total.perplexity))


def score_documents(writer: Writer, path: Path, as_json: bool) -> None:
    """Print one line for the whole text."""
    total = likelihood_of(writer, path)
    if as_json:
        typer.echo(json.dumps({"total": total.to_dict()}))
    else:
        typer.echo(row(-total.nll, total.tokens, total.perplexity, total.bits_per_character))


def likelihood_of(writer: Writer, path: Path, *, stride: int | None = None) -> Likelihood:
    """Return the likelihood of all documents of a file, which is read as in training; `stride` as in Writer.score."""
    from regard.evaluation.perplexity import Likelihood
    from regard.text.files.corpus import read_documents

    documents = [writer.perplexity(document, stride=stride) for document in read_documents([path]).source]
    return Likelihood(
        sum(document.nll for document in documents),
        sum(document.tokens for document in documents),
        sum(document.characters or 0 for document in documents),
    )


def row(*cells: Any) -> str:
    """Join cells with tabs; numbers have four decimals."""
    return "\t".join(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in cells)
