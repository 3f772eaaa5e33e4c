"""Options that name a trained model, and functions that load it and read the text for it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.errors import DataError, UsageError

if TYPE_CHECKING:
    from regard.api.arrays.captioner import Captioner
    from regard.api.arrays.forecaster import Forecaster
    from regard.api.arrays.image_classifier import ImageClassifier
    from regard.api.arrays.transcriber import Transcriber
    from regard.api.classifier import Classifier
    from regard.api.copying.answerer import Answerer
    from regard.api.copying.summarizer import Summarizer
    from regard.api.embedder import Embedder
    from regard.api.translator import Translator
    from regard.api.word_vectors import WordVectors
    from regard.api.writer import Writer
    from regard.text.tokenizers.tokenizer import Tokenizer

DEFAULT_MODEL = "fr-en"
STDIN = Path("-")
MAX_WARNINGS = 10  # of a command; the others are counted
COMMANDS = {
    "Translator": ("translates", "translate"),
    "Writer": ("generates text", "generate"),
    "Embedder": ("computes embeddings", "embed"),
    "Classifier": ("classifies texts", "classify"),
    "Summarizer": ("summarizes texts", "summarize"),
    "Answerer": ("answers questions", "answer"),
    "WordVectors": ("has vectors of words", "words nearest"),
    "ImageClassifier": ("classifies images", "classify"),
    "Captioner": ("describes images", "caption"),
    "Forecaster": ("forecasts series", "forecast"),
    "Transcriber": ("transcribes speech", "transcribe"),
}

Face = TypeVar(
    "Face",
    "Translator",
    "Writer",
    "Embedder",
    "Classifier",
    "Summarizer",
    "Answerer",
    "WordVectors",
    "ImageClassifier",
    "Captioner",
    "Forecaster",
    "Transcriber",
)

Model = Annotated[str, typer.Option("--model", "-m", help="Model folder, or the name of a shipped model.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        show_default=DEFAULT_MODEL,
        help="Model folder, or the name of a shipped model; repeat it for an ensemble.",
    ),
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[
    str,
    typer.Option(
        help="Data type of the weights: auto (float32), float32, bfloat16, float16, float64; int8 or int4 on a CPU."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        show_default="one per core",
        help="Number of CPU threads of a process; 1 is often the fastest on a busy machine.",
    ),
]


def load_as(expected: type[Face], model: str, device: str, dtype: str) -> Face:
    """Load a model for a command; UsageError with the right command if the model is for another task."""
    from regard.tasks.loading import load

    face = load(model, device=device, dtype=dtype)
    if not isinstance(face, expected):
        if not type(face).__module__.startswith("regard.api."):  # of a registered task
            raise UsageError(f"{model} is not a {expected.__name__.lower()}, so this command cannot use it")
        does, command = COMMANDS[type(face).__name__]
        kind = face.info.get("kind")
        raise UsageError(f"{model} is a model of kind {kind!r}, which {does}: use `regard {command} -m {model}`")
    return face


def load_translators(models: Sequence[str] | None, device: str, dtype: str) -> Translator:
    """Load the translator of a command, or an ensemble if several models are named."""
    from regard.api.translator import Translator

    faces = [load_as(Translator, model, device, dtype) for model in models or [DEFAULT_MODEL]]
    if len(faces) == 1:
        return faces[0]
    from regard.api.ensemble import join_translators

    return join_translators(faces)


def check_utf8(text: str, name: str) -> str:
    """Return an argument unchanged; UsageError if its bytes are not UTF-8."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError(f"{name} is not UTF-8")
    return text


def write_utf8() -> None:
    """Write UTF-8, as the input is, whatever the locale or Windows' code page says."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")


def read_text(path: Path) -> list[str]:
    """Read all lines of a file, which may be compressed, or of stdin for `-`; DataError if they are not UTF-8."""
    if path != STDIN:
        from regard.text.files.lines import read_lines

        return list(read_lines(path))
    content = sys.stdin.buffer.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"stdin, line {line}: not UTF-8 ({error.reason})") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def read_pairs(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Read the lines of two parallel files, including empty lines."""
    sources, targets = read_text(source), read_text(target)
    if len(sources) != len(targets):
        raise DataError(
            f"{source} has {len(sources)} lines and {target} has {len(targets)}: line i of one must be the translation "
            "of line i of the other"
        )
    if not sources:
        raise DataError(f"{source} is empty")
    return sources, targets


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print the library's first warnings as short messages on stderr, and count the others."""
    count = 0

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        nonlocal count
        count += 1
        if count <= MAX_WARNINGS:
            typer.echo(f"regard: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
    if count > MAX_WARNINGS:
        typer.echo(f"regard: {count - MAX_WARNINGS} more warnings like these", err=True)


class UnknownLetters:
    """Names letters that the model of a command never saw in training, once and on stderr."""

    def __init__(self, tokenizer: Tokenizer, unseen: Collection[int] = ()) -> None:
        from regard.api.translation.source_text import seen_characters

        self.known = seen_characters(tokenizer, unseen)
        self.named = False

    def name_in(self, text: str) -> None:
        """Print the unknown letters of a text, unless there were some in an earlier one."""
        from regard.cli.shared.unknown_letters import name_letters, unknown_letters

        if not self.named and (letters := unknown_letters(text, self.known)):
            self.named = True
            typer.echo(f"regard: the model does not know these letters: {name_letters(letters)}", err=True)
