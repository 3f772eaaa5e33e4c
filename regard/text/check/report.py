"""The report of the data doctor: the kinds of problems, how training handles each, and the text that is printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from regard.text.check.suspicious_characters import (
    CONTROL,
    HTML,
    INVISIBLE,
    MOJIBAKE,
    NOT_NFC,
    PRIVATE,
    REPLACED,
    SCRIPT,
    TAB,
)
from regard.text.files.lines import CRLF, MARK, NOT_UTF8, NUL
from regard.text.files.rows import MALFORMED

MAX_EXAMPLES = 3  # of each kind of problem
EXCERPT_CHARACTERS = 60
MAX_SKIPPED_SHARE = 0.1  # of a file's lines; the report does not suggest to skip more

UNREADABLE = "unreadable files"
NOTHING = "no usable text"
UNEQUAL = "lines without a counterpart"
EMPTY = "empty"
LONG = "too long"
LONG_LINE = "very long lines"
RATIO = "very different lengths"
IDENTICAL = "source = target"
DUPLICATE = "duplicates"
LEAK = "training sentences in the validation or test data"
BYTES = "unknown to the tokenizer, or spelled out in bytes"

SKIPPABLE = (NOT_UTF8, NUL, MALFORMED)  # data.faults decides whether training stops or skips them
# How training handles each kind, in the order of the report: it stops, fixes, drops or keeps.
TRAINING = {
    UNREADABLE: "stops",
    NOTHING: "stops",
    UNEQUAL: "stops: line i of one file must be the translation of line i of the other",
    NOT_UTF8: "",
    NUL: "",
    MALFORMED: "",
    MARK: "fixes them: removes the mark",
    CRLF: "fixes them: removes the \\r",
    EMPTY: "drops them, together with the other side",
    LONG: "drops them: more than {limit} tokens on one side (data.max_length)",
    LONG_LINE: "keeps them, in windows of data.context tokens",
    RATIO: "keeps them: check whether they are translations of each other",
    IDENTICAL: "keeps them: many of them teach a translator to copy",
    DUPLICATE: "keeps them: repeated sentences get more weight",
    LEAK: "keeps them: scores on sentences seen in training say little about new ones",
    MOJIBAKE: "keeps it, and the model learns to write it: convert the original text again",
    REPLACED: "keeps them: an earlier conversion lost the original characters",
    TAB: "fixes them: the tokenizer reads a tab as a space",
    CONTROL: "keeps them",
    INVISIBLE: "keeps them: words that look the same become different words",
    PRIVATE: "keeps them: only the program that wrote them knows their meaning",
    HTML: "keeps it, and the model learns to write it",
    NOT_NFC: "fixes it: the tokenizer normalizes text to NFC",
    SCRIPT: "keeps them: words with look-alike letters become different words",
    BYTES: "keeps them: this tokenizer was made for other text",
}
STOPS, SKIPS = (
    'stops; with data.faults = "skip" it skips them',
    'skips them, together with the other side (data.faults = "skip")',
)


@dataclass(frozen=True)
class Example:
    """A location in the data, an excerpt of the text there, and sometimes a remark."""

    location: str
    excerpt: str
    remark: str = ""

    def __str__(self) -> str:
        return f"{self.location}  {self.excerpt}" + (f"  ({self.remark})" if self.remark else "")

    def to_dict(self) -> dict[str, str]:
        return {"place": self.location, "excerpt": self.excerpt, "remark": self.remark}


@dataclass(frozen=True)
class Problem:
    """All occurrences of one kind of problem."""

    name: str
    count: int
    training: str  # how training handles it, from TRAINING
    examples: list[Example]
    advice: tuple[str, ...] = ()  # what to do

    @property
    def stops(self) -> bool:
        """Whether training would stop because of it."""
        return self.training.startswith("stops")

    def __str__(self) -> str:
        examples = (f"  {example}" for example in self.examples)
        advice = (f"  {text}" for text in self.advice)
        return "\n".join([f"{self.name}: {self.count:,}", f"  training {self.training}", *advice, *examples])

    def to_dict(self) -> dict[str, Any]:
        examples = [example.to_dict() for example in self.examples]
        return {
            "name": self.name,
            "count": self.count,
            "training": self.training,
            "advice": self.advice,
            "examples": examples,
            "stops": self.stops,
        }


@dataclass(frozen=True)
class SideStatistics:
    """Averages of one side of the training data; `tokens_per_word` is measured on a sample."""

    words_per_line: float
    characters_per_word: float
    tokens_per_word: float | None


@dataclass(frozen=True)
class CheckReport:
    """The result of a check."""

    files: tuple[str, ...]
    rows: int
    unit: str  # of rows: pairs, documents or lines
    sides: tuple[SideStatistics, ...]
    tokenizer: str  # the tokenizer that counted the tokens
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()  # decisions of the reader, such as header rows
    is_fixable: bool = False  # whether `regard check --fix` would change something

    @property
    def stops(self) -> bool:
        """Whether training would stop at this data."""
        return any(problem.stops for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {
            "files": self.files,
            "rows": self.rows,
            "unit": self.unit,
            "sides": tuple(asdict(side) for side in self.sides),
            "tokenizer": self.tokenizer,
            "kinds": [problem.to_dict() for problem in self.problems],
            "notes": self.notes,
            "fixable": self.is_fixable,
            "stops": self.stops,
        }

    def __str__(self) -> str:
        head = f"{', '.join(self.files)}: {self.rows:,} {self.unit}"
        if not self.problems:
            return "\n".join([f"{head}, no problems found{self._statistics()}", *self.notes])
        fix = ["To write repaired copies of the files: regard check FILES --fix FOLDER"] if self.is_fixable else []
        end = "Training would stop." if self.stops else "Training would run."
        return "\n\n".join(["\n".join([head + self._statistics(), *self.notes]), *map(str, self.problems), *fix, end])

    def _statistics(self) -> str:
        """Return words, characters and tokens in one line."""
        if not self.sides:
            return ""

        def both(numbers: Iterable[float | None]) -> str:
            return " and ".join("?" if number is None else f"{number:g}" for number in numbers)

        words = both(side.words_per_line for side in self.sides)
        characters = both(side.characters_per_word for side in self.sides)
        tokens = both(side.tokens_per_word for side in self.sides)
        return (
            f"; words per line {words}, characters per word {characters}, tokens per word {tokens} ({self.tokenizer})"
        )


def training_response(kind: str, *, limit: int, faults: str = "stop", faulty_share: float = 0.0) -> str:
    """Return how training handles a kind of problem, given `data.faults` and the longest sentence it accepts.

    `faulty_share` is the share of lines of a file that are in another encoding; a large part should not be skipped.
    """
    if kind == NOT_UTF8 and faults == "stop" and faulty_share > MAX_SKIPPED_SHARE:
        return "stops"
    if kind in SKIPPABLE:
        return STOPS if faults == "stop" else SKIPS
    return TRAINING[kind.partition(" (")[0]].format(limit=limit)


def excerpt(text: str, offset: int = 0, width: int = EXCERPT_CHARACTERS) -> str:
    """Return the part of a text around an offset, with unprintable characters escaped."""
    first = 0 if offset < width * 2 // 3 else offset - width // 3
    part = text[first : first + width]
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in part)
    return "…" * (first > 0) + printable + "…" * (first + width < len(text))


def sorted_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sort problems in the order of TRAINING; scripts by name."""
    order = list(TRAINING)
    return tuple(sorted(problems, key=lambda problem: (order.index(problem.name.partition(" (")[0]), problem.name)))
