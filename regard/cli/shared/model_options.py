"""What the commands that use a trained model share: their options, and the model behind them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

import typer

from regard.errors import DataError, UsageError

if TYPE_CHECKING:
    from regard.api.embedder import Embedder
    from regard.api.translator import Translator
    from regard.api.writer import Writer
    from regard.decoding.searches.greedy import Greedy
    from regard.decoding.searches.logit_rules import Rule
    from regard.decoding.searches.sample import Sample
    from regard.decoding.searches.speculative import Speculative

DEFAULT_MODEL = "fr-en"
STDIN = Path("-")
COMMANDS = {
    "Translator": ("translates", "translate"),
    "Writer": ("writes", "generate"),
    "Embedder": ("embeds", "embed"),
}

Face = TypeVar("Face", "Translator", "Writer", "Embedder")

SEARCH = "Search"  # what --help has in a table of its own

Model = Annotated[str, typer.Option("--model", "-m", help="Model folder, or the name of a model that regard ships.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model", "-m", show_default=DEFAULT_MODEL, help="Model folder or shipped name; several translate as one."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[str, typer.Option(help="auto (float32), float32, bfloat16, float16, float64, or int8 on a CPU.")]


def search_option(text: str, *, least: int | None = None) -> Any:
    """An option of a search."""
    return typer.Option(min=least, rich_help_panel=SEARCH, help=text)


Temperature = Annotated[float | None, search_option("Below 1 sharper, above 1 wilder.")]
TopK = Annotated[int | None, search_option("Draw from the k most probable tokens.")]
TopP = Annotated[float | None, search_option("Draw from the fewest tokens whose probabilities reach p.")]
MinP = Annotated[float | None, search_option("Draw from tokens at least p times as probable as the best.")]
Seed = Annotated[int | None, search_option("The same seed draws the same text.")]
MinTokens = Annotated[int | None, search_option("No end before so many tokens.", least=1)]
Penalty = Annotated[
    float | None,
    typer.Option("--repetition-penalty", rich_help_panel=SEARCH, help="From 1: what came before is less likely."),
]
NoRepeat = Annotated[int | None, search_option("No phrase of so many tokens comes twice.", least=1)]
Draft = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL", rich_help_panel=SEARCH, help="A smaller model with the same tokenizer that drafts tokens."
    ),
]


def load_as(wanted: type[Face], model: str, device: str, dtype: str) -> Face:
    """The model, if it is of the kind that the command is for; else a UsageError that names the right command."""
    from regard.api.loading import load

    face = load(model, device=device, dtype=dtype)
    if not isinstance(face, wanted):
        what, command = COMMANDS[type(face).__name__]
        kind = face.info.get("kind")
        raise UsageError(f"{model} is a model of kind {kind!r}, which {what}: use `regard {command} -m {model}`")
    return face


def load_translators(models: Sequence[str] | None, device: str, dtype: str) -> Translator:
    """The translator that a command decodes with: the only one, or what several make together."""
    from regard.api.ensemble import join_translators
    from regard.api.translator import Translator

    faces = [load_as(Translator, model, device, dtype) for model in models or [DEFAULT_MODEL]]
    return faces[0] if len(faces) == 1 else join_translators(faces)


def with_draft(search: Greedy | Sample, draft: str, face: Face, device: str, dtype: str) -> Speculative:
    """Let the model of that name or folder draft tokens for a search; it must be of the same kind as `face`."""
    from regard.api.draft_model import check_draft
    from regard.decoding.searches.speculative import Speculative

    speculative = Speculative(load_as(type(face), draft, device, dtype), search)
    check_draft(face, speculative)
    return speculative


def make_rules(
    repetition_penalty: float | None, no_repeat: int | None, min_tokens: int | None, max_tokens: int | None
) -> tuple[Rule, ...]:
    """What the search may write, by these options."""
    from regard.decoding.searches import logit_rules as rules

    if min_tokens is not None and max_tokens is not None and min_tokens > max_tokens:
        raise UsageError(f"--min-tokens {min_tokens} is more than --max-tokens {max_tokens}")
    found: list[Rule] = []
    if repetition_penalty is not None:
        found.append(rules.RepetitionPenalty(repetition_penalty))
    if no_repeat is not None:
        found.append(rules.NoRepeat(no_repeat))
    if min_tokens is not None:
        found.append(rules.MinTokens(min_tokens))
    return tuple(found)


def make_sample(
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    seed: int | None,
    rules: tuple[Rule, ...],
) -> Sample:
    """The sampling that these options ask for."""
    from regard.decoding.searches.sample import Sample

    return Sample(
        temperature=1.0 if temperature is None else temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=0 if seed is None else seed,
        rules=rules,
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
