"""`regard summarize`: the summary of each line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.shared.model_options import (
    STDIN,
    Device,
    Dtype,
    Model,
    Threads,
    load_as,
    plain_warnings,
    read_pairs,
    read_text,
)
from regard.cli.shared.torch_import import import_torch
from regard.errors import DataError, UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.api.copying.summarizer import Summarizer, Summary

BATCH_TEXTS = 32  # whose summaries are printed together


def summarize_lines(
    model: Model,
    file: Annotated[Path, typer.Argument(help="Text file, one text per line; - is stdin.")] = STDIN,
    reference: Annotated[
        Path | None, typer.Option(help="Reference summaries, one per line: print ROUGE instead of the summaries.")
    ] = None,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Also print each sentence with its share of the attention, in percent.")
    ] = False,
    beam: Annotated[int, typer.Option(min=1, help="Beam width; 1 is greedy search.")] = 1,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per line: source, summary, score, sentences and shares."),
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Summarize text line by line: print one summary for each line.

    Train a summarizer on two files, texts and their summaries: regard train texts.txt summaries.txt --model summarizer

    Examples:
      regard summarize -m runs/mine texts.txt --sentences
      regard summarize -m runs/mine texts.txt --reference summaries.txt
    """
    import_torch()
    set_threads(threads)
    from regard.api.copying.summarizer import Summarizer

    if sentences and as_json:
        raise UsageError("--json has the sentences already: leave out --sentences")
    if reference is not None and (sentences or as_json):
        raise UsageError("--reference prints scores: leave out --sentences and --json")
    lines, references = (read_text(file), None) if reference is None else read_pairs(file, reference)
    summarizer = load_as(Summarizer, model, device, dtype)
    failures = 0
    outputs: list[str] = []
    with plain_warnings():
        for start in range(0, len(lines), BATCH_TEXTS):
            batch = lines[start : start + BATCH_TEXTS]
            readable = [is_readable(summarizer, text, start + i) for i, text in enumerate(batch, start=1)]
            failures += sum(bool(text.strip()) and not ok for text, ok in zip(batch, readable, strict=True))
            texts = [text for text, ok in zip(batch, readable, strict=True) if ok]
            summaries = iter(summarizer.summarize(texts, beam=beam))
            results = [next(summaries) if ok else None for ok in readable]
            outputs += ["" if result is None else result.text for result in results]
            if references is None:
                for text, result in zip(batch, results, strict=True):
                    typer.echo(printed(text, result, sentences=sentences, as_json=as_json))
    if references is not None:
        from regard.evaluation.rouge import corpus_rouge

        scores = corpus_rouge(outputs, references)
        typer.echo("  ".join(f"ROUGE-{name.removeprefix('rouge')} {value:.1f}" for name, value in scores.items()))
    if failures:
        raise typer.Exit(3)


def is_readable(summarizer: Summarizer, text: str, line: int) -> bool:
    """Whether a line has a summary: an empty line has none, and of one that is too long this prints a message."""
    if not text.strip():
        return False
    try:
        summarizer.read(text)
    except DataError as error:
        typer.echo(f"regard: line {line}: {error}", err=True)
        return False
    return True


def printed(text: str, summary: Summary | None, *, sentences: bool, as_json: bool) -> str:
    """Return what is printed for a line."""
    if as_json:
        content: dict[str, Any] = {"source": text, "summary": None}
        if summary is not None:
            shares = [round(share, 6) for share in summary.shares]
            rest = {"score": round(summary.score, 6), "sentences": summary.sentences, "shares": shares}
            content |= {"summary": summary.text, **rest}
        return json.dumps(content, ensure_ascii=False)
    if summary is None:
        return ""
    shown = zip(summary.sentences, summary.shares, strict=True) if sentences else ()
    return "\n".join([summary.text, *(f"  {share:4.0%}  {sentence}" for sentence, share in shown)])
