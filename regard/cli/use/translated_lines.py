"""Translate the lines of a file or pipe, in batches of similar length, and format the translations for the output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.shared.input_lines import open_lines, progress
from regard.cli.shared.model_options import UnknownLetters
from regard.errors import DataError
from regard.scale.dataset import translate_each
from regard.text.files.input_windows import FIRST_LINES, line_windows, read_line

if TYPE_CHECKING:
    from regard.api.results import Translation
    from regard.api.translator import Translator
    from regard.decoding.searches.search import Search


@dataclass(frozen=True)
class LineSettings:
    """How to translate, and how to print the translations."""

    search: Search
    alternatives: int
    max_tokens: int | None
    attention: bool
    as_json: bool
    include: Sequence[str] = ()
    letters: UnknownLetters | None = None  # names letters that the model does not know


def translate_stream(translator: Translator, file: Path | None, settings: LineSettings, batch: int) -> None:
    """Translate all lines of the input; exit with code 3 at the end if some failed."""
    failed = number = 0
    with open_lines(file) as stream, progress(stream, file) as advance:
        prompt = partial(typer.echo, "> ", err=True, nl=False) if stream.isatty() else None
        for lines in line_windows(stream, min(batch, FIRST_LINES), before_read=prompt):
            outputs = [""] * len(lines)
            errors: dict[int, str] = {}
            for index, result in translate_lines(translator, lines, settings, batch, first=number):
                if isinstance(result, str):
                    errors[index] = result
                outputs[index] = output_line(number + index + 1, result, settings)
                advance(len(lines[index]) + 1)
            for index in sorted(errors):
                typer.echo(f"regard: line {number + index + 1}: {errors[index]}", err=True)
            sys.stdout.write("".join(f"{line}\n" for line in outputs))
            sys.stdout.flush()
            number, failed = number + len(lines), failed + len(errors)
    if failed:
        typer.echo(f"regard: {failed} of {number} lines failed; they are empty in the output", err=True)
        raise typer.Exit(3)


def translate_lines(
    translator: Translator, lines: Sequence[bytes], settings: LineSettings, batch: int, *, first: int
) -> Iterator[tuple[int, Translation | str]]:
    """Yield the index of each line and its translation or error message; lines of similar length share a batch."""
    texts: dict[int, str] = {}
    for index, line in enumerate(lines):
        try:
            texts[index] = read_line(line)
            if settings.letters is not None:
                settings.letters.name_in(texts[index])
        except DataError as error:
            yield index, str(error)
    # Longest first: a batch that does not fit into memory should fail early.
    order = sorted(texts, key=lambda index: len(texts[index]), reverse=True)
    for start in range(0, len(order), batch):
        indices = order[start : start + batch]
        numbered = [(first + index, texts[index]) for index in indices]
        yield from zip(indices, translate_batch(translator, numbered, settings), strict=True)


def translate_batch(
    translator: Translator, numbered: list[tuple[int, str]], settings: LineSettings
) -> list[Translation | str]:
    """Return a translation or an error message for each text."""
    numbers, texts = ([*side] for side in zip(*numbered, strict=True))
    options = {
        "search": settings.search,
        "alternatives": settings.alternatives,
        "include": settings.include,
        "max_tokens": settings.max_tokens,
    }
    return translate_each(translator, texts, options, numbers)  # samples depend on the line number, not on the batch


def output_line(number: int, result: Translation | str, settings: LineSettings) -> str:
    """Format a translation or an error message for the output: one line, or one for each alternative."""
    if settings.as_json:
        return json.dumps(as_object(result, settings), ensure_ascii=False)
    if settings.alternatives == 1:
        return "" if isinstance(result, str) else one_line(result.text)
    if isinstance(result, str):
        return f"{number}\t\t"
    return "\n".join(f"{number}\t{choice.score:.4f}\t{one_line(choice.text)}" for choice in result.alternatives)


def as_object(result: Translation | str, settings: LineSettings) -> dict[str, Any]:
    """Return the JSON object of a translation or an error message."""
    if isinstance(result, str):
        return {"text": "", "error": result}
    entry: dict[str, Any] = {
        "text": result.text,
        "score": round(result.score, 4),
        "tokens": result.tokens,
        "source_tokens": result.source_tokens,
    }
    if settings.alternatives > 1:
        entry["alternatives"] = [
            {"text": choice.text, "score": round(choice.score, 4)} for choice in result.alternatives
        ]
    if settings.attention:
        entry["alignment"] = result.alignment().to_dict() if result.ids else None
    return entry


def one_line(text: str) -> str:
    """Replace line breaks that a model has generated, so that output lines still correspond to input lines."""
    return text.replace("\r", " ").replace("\n", " ")
