"""What the commands that use a trained model share: their options, and the model behind them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, TypeVar

import typer

from regard.errors import DataError, UsageError

if TYPE_CHECKING:
    from regard.api.embedder import Embedder
    from regard.api.translator import Translator
    from regard.api.writer import Writer
    from regard.decoding.sample import Sample

DEFAULT_MODEL = "fr-en"
STDIN = Path("-")
COMMANDS = {
    "Translator": ("translates", "translate"),
    "Writer": ("writes", "generate"),
    "Embedder": ("embeds", "embed"),
}

Face = TypeVar("Face", "Translator", "Writer", "Embedder")

Model = Annotated[str, typer.Option("--model", "-m", help="Model folder, or the name of a model that regard ships.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[str, typer.Option(help="auto (float32), float32, bfloat16, float16, float64, or int8 on a CPU.")]
Temperature = Annotated[float | None, typer.Option(help="Below 1 sharper, above 1 wilder.")]
TopK = Annotated[int | None, typer.Option(help="Draw from the k most probable tokens.")]
TopP = Annotated[float | None, typer.Option(help="Draw from the fewest tokens whose probabilities reach p.")]
MinP = Annotated[float | None, typer.Option(help="Draw from tokens at least p times as probable as the best.")]
Seed = Annotated[int | None, typer.Option(help="The same seed draws the same text.")]


def load_as(wanted: type[Face], model: str, device: str, dtype: str) -> Face:
    """The model, if it is of the kind that the command is for; else a UsageError that names the right command."""
    from regard.api.loading import load

    face = load(model, device=device, dtype=dtype)
    if not isinstance(face, wanted):
        what, command = COMMANDS[type(face).__name__]
        kind = face.info.get("kind")
        raise UsageError(f"{model} is a model of kind {kind!r}, which {what}: use `regard {command} -m {model}`")
    return face


def make_sample(
    temperature: float | None, top_k: int | None, top_p: float | None, min_p: float | None, seed: int | None
) -> Sample:
    """The sampling that these options ask for."""
    from regard.decoding.sample import Sample

    return Sample(
        temperature=1.0 if temperature is None else temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=0 if seed is None else seed,
    )


def whole_text(text: str, what: str) -> str:
    """An argument as it is, if its bytes were UTF-8."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError(f"{what} is not UTF-8")
    return text


def write_utf8() -> None:
    """Make stdout UTF-8, as the input is, whatever the locale says."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")


@contextmanager
def open_input(path: Path | None) -> Iterator[BinaryIO]:
    """The bytes of a file, or of stdin where there is none or it is `-`."""
    if path is None or path == STDIN:
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    with file:
        yield file


def read_text(path: Path) -> list[str]:
    """All lines of a file, or of stdin for `-`; packed files too, strict UTF-8."""
    if path != STDIN:
        from regard.text.lines import read_lines

        return list(read_lines(path))
    content = sys.stdin.buffer.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"stdin, line {line}: not UTF-8 ({error.reason})") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def read_pairs(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """The lines of two files that go together, empty ones too."""
    ours, theirs = read_text(source), read_text(target)
    if len(ours) != len(theirs):
        raise DataError(
            f"{source} has {len(ours)} lines and {target} has {len(theirs)}, but line i of one belongs to line i of "
            "the other"
        )
    if not ours:
        raise DataError(f"{source} is empty")
    return ours, theirs


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings of the library as short messages on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"regard: {message}", err=True)
        yield
