"""`regard translate`: a line in, a line out, from a file, a pipe or the keyboard."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from regard.cli.model_options import (
    DEFAULT_MODEL,
    Device,
    Dtype,
    MinP,
    Model,
    Seed,
    Temperature,
    TopK,
    TopP,
    load_as,
    make_sample,
    open_input,
    plain_warnings,
    whole_text,
    write_utf8,
)
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.api.results import Translation
    from regard.api.translator import Translator
    from regard.decoding.search import Search

CHUNK = 1 << 16  # bytes asked for at once; a pipe gives what it has


def translate_text(
    file: Annotated[Path | None, typer.Argument(help="One sentence a line.", show_default="stdin")] = None,
    model: Model = DEFAULT_MODEL,
    text: Annotated[str | None, typer.Option("--text", "-t", help="Translate this sentence, and read nothing.")] = None,
    beam: Annotated[int | None, typer.Option(min=1, show_default="5", help="Width of the beam; 1 is greedy.")] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(show_default="1", help="Power of the length in a beam's ranking."),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw the translation at random.")] = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    seed: Seed = None,
    alternatives: Annotated[
        int, typer.Option("--alternatives", "-n", min=1, help="The n best: line number, score, text, tab-separated.")
    ] = 1,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, show_default="2 x source + 20", help="Tokens of the longest translation."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Lines translated together.")] = 64,
    attention: Annotated[bool, typer.Option("--attention", help="Show the alignment; needs --json or --text.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the alignment as .png, .svg or .pdf; needs --text.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Translate text line by line: one line out for each line in.

    An empty line stays empty. A line that fails comes out empty, with a message on stderr and exit code 3 at the end.

    Example: regard translate -m runs/mine < fr.txt > en.txt
    """
    if text is not None and file is not None:
        raise UsageError("give a file or --text, not both")
    if attention and not as_json and text is None:
        raise UsageError("--attention needs --json or --text: a matrix does not fit on a line")
    if plot is not None and text is None:
        raise UsageError("--plot draws one sentence: give it with --text")
    drawn = make_drawn(sample, temperature, top_k, top_p, min_p, seed)
    search = make_search(beam, length_penalty, drawn, alternatives)
    settings = Settings(search, alternatives, max_tokens, attention, as_json)
    from regard.api.translator import Translator

    translator = load_as(Translator, model, device, dtype)
    write_utf8()
    with plain_warnings():
        if text is None:
            translate_stream(translator, file, settings, batch)
        else:
            translate_sentence(translator, whole_text(text, "--text"), settings, plot)


@dataclass(frozen=True)
class Settings:
    """How to translate, and how to write it down."""

    search: Search
    alternatives: int
    max_tokens: int | None
    attention: bool
    as_json: bool


def make_drawn(
    sample: bool,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    seed: int | None,
) -> Search | None:
    """The sampling, if it is wanted; its options without it are a mistake."""
    given = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--min-p": min_p, "--seed": seed}
    if not sample:
        for name, value in given.items():
            if value is not None:
                raise UsageError(f"{name} is an option of sampling: add --sample")
        return None
    return make_sample(temperature, top_k, top_p, min_p, seed)


def make_search(beam: int | None, length_penalty: float | None, drawn: Search | None, alternatives: int) -> Search:
    """The search that the options ask for."""
    from regard.api.translator import BEAM
    from regard.decoding.beam import Beam
    from regard.decoding.greedy import Greedy

    if drawn is not None:
        if beam is not None or length_penalty is not None:
            raise UsageError("--sample draws one token after another: --beam and --length-penalty do not go with it")
        return drawn
    if beam == 1:
        if length_penalty is not None:
            raise UsageError("--length-penalty ranks the texts of a beam, and --beam 1 has one")
        return Greedy()
    return Beam(beam or max(BEAM, alternatives), length_penalty=1.0 if length_penalty is None else length_penalty)


def translate_sentence(translator: Translator, text: str, settings: Settings, plot: Path | None) -> None:
    """One sentence, with its alignment to look at where that is wanted."""
    found = translator.translate(
        text, search=settings.search, alternatives=settings.alternatives, max_tokens=settings.max_tokens
    )
    typer.echo(written(1, found, settings))
    if settings.attention and not settings.as_json:
        from rich.console import Console

        Console(highlight=False).print(found.alignment())
    if plot is not None:
        typer.echo(f"wrote {found.plot(plot)}", err=True)


def translate_stream(translator: Translator, file: Path | None, settings: Settings, batch: int) -> None:
    """All lines of the input; typer.Exit(3) at the end where some failed."""
    failed = number = 0
    with open_input(file) as stream:
        counting = sys.stderr.isatty() and not (sys.stdout.isatty() or stream.isatty())
        for lines in line_batches(stream, batch):
            for found in translate_lines(translator, lines, settings):
                number += 1
                if isinstance(found, str):
                    failed += 1
                    typer.echo(f"regard: line {number}: {found}", err=True)
                sys.stdout.write(written(number, found, settings) + "\n")
            sys.stdout.flush()
            if counting:
                typer.echo(f"\r{number:,} lines", err=True, nl=False)
        if counting:
            typer.echo("", err=True)
    if failed:
        typer.echo(f"regard: {failed} of {number} lines failed; they are empty in the output", err=True)
        raise typer.Exit(3)


def line_batches(stream: BinaryIO, size: int) -> Iterator[list[bytes]]:
    r"""Up to `size` lines at a time of what the input has to offer now; only \n ends a line."""
    rest = b""
    typed = stream.isatty()
    while True:
        if typed:
            typer.echo("> ", err=True, nl=False)
        chunk = stream.read1(CHUNK)  # type: ignore[attr-defined]  # buffered readers have it
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for start in range(0, len(lines), size):
            yield lines[start : start + size]
    if rest:
        yield [rest]


def translate_lines(translator: Translator, lines: Sequence[bytes], settings: Settings) -> list[Translation | str]:
    """A translation for each line, or what is wrong with it."""
    found: list[Any] = []
    for line in lines:
        try:
            found.append((line.removesuffix(b"\r").decode("utf-8-sig"),))
        except UnicodeDecodeError as error:
            found.append(f"not UTF-8: {error.reason} at byte {error.start + 1}")
    texts = [entry[0] for entry in found if isinstance(entry, tuple)]

    def translate(batch: list[str]) -> list[Translation]:
        return translator.translate(
            batch, search=settings.search, alternatives=settings.alternatives, max_tokens=settings.max_tokens
        )

    results: list[Any] = []
    try:
        results = list(translate(texts))
    except RegardError:  # one of them; the others shall come out
        for text in texts:
            try:
                results += translate([text])
            except RegardError as error:
                results.append(str(error))
    rest = iter(results)
    return [next(rest) if isinstance(entry, tuple) else entry for entry in found]


def written(number: int, found: Translation | str, settings: Settings) -> str:
    """A translation, or a failure, as the output has it: one line, or one for each alternative."""
    if settings.as_json:
        return json.dumps(as_object(found, settings), ensure_ascii=False)
    if settings.alternatives == 1:
        return "" if isinstance(found, str) else one_line(found.text)
    if isinstance(found, str):
        return f"{number}\t\t"
    return "\n".join(f"{number}\t{one.score:.4f}\t{one_line(one.text)}" for one in found.alternatives)


def as_object(found: Translation | str, settings: Settings) -> dict[str, Any]:
    if isinstance(found, str):
        return {"text": "", "error": found}
    result: dict[str, Any] = {
        "text": found.text,
        "score": round(found.score, 4),
        "tokens": found.tokens,
        "source_tokens": found.source_tokens,
    }
    if settings.alternatives > 1:
        result["alternatives"] = [{"text": one.text, "score": round(one.score, 4)} for one in found.alternatives]
    if settings.attention:
        result["alignment"] = found.alignment().to_dict() if found.ids else None
    return result


def one_line(text: str) -> str:
    """A model may write a line break; the output may not, or its lines would no longer be those of the input."""
    return text.replace("\r", " ").replace("\n", " ")
