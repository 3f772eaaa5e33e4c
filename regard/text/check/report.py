"""What the data doctor says: the kinds of findings, what training does about each, and the report."""

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
)
from regard.text.files.lines import NOT_UTF8, NUL
from regard.text.files.rows import MALFORMED

EXAMPLES = 3
WIDTH = 60  # characters of an excerpt

UNREADABLE = "files that cannot be read"
NOTHING = "nothing to learn from"
UNEQUAL = "lines without a counterpart"
MARK, CRLF = "byte order marks", "CRLF line ends"  # as reading counts them
EMPTY = "empty"
LONG = "too long"
LONG_LINE = "very long lines"
RATIO = "very unequal lengths"
IDENTICAL = "source = target"
DUPLICATE = "duplicates"
LEAK = "training sentences in the validation or test data"
BYTES = "spelled out in bytes, or unknown to the tokenizer"

SKIPPED = (NOT_UTF8, NUL, MALFORMED)  # stop or are left out, as data.faults says
# What training does about each kind, in the order of the report: it stops, mends, leaves out or keeps.
TRAINING = {
    UNREADABLE: "stops",
    NOTHING: "stops",
    UNEQUAL: "stops: line i of one file must be the translation of line i of the other",
    NOT_UTF8: "",
    NUL: "",
    MALFORMED: "",
    MARK: "mends them: takes them off",
    CRLF: "mends them: takes the \\r off",
    EMPTY: "leaves them out, with the other side",
    LONG: "leaves them out: more than {limit} tokens on a side (data.max_length)",
    LONG_LINE: "keeps them, in windows of data.context tokens",
    RATIO: "keeps them: see whether they are translations of each other",
    IDENTICAL: "keeps them: many of them teach a translator to copy",
    DUPLICATE: "keeps them: what stands twice is learnt twice",
    LEAK: "keeps them: scores on such sentences say little about new ones",
    MOJIBAKE: "keeps it, and learns to write it: convert the text again from where it came",
    REPLACED: "keeps them: an earlier conversion lost what stood there",
    CONTROL: "keeps them",
    INVISIBLE: "keeps them: they make two words of what looks like one",
    PRIVATE: "keeps them: what they mean is known to one program only",
    HTML: "keeps it, and learns to write it",
    NOT_NFC: "mends it: tokenizers bring text to NFC",
    SCRIPT: "keeps them: look-alikes make two words of what looks like one",
    BYTES: "keeps them: this tokenizer was made for other text",
}
STOPS, LEAVES_OUT = (
    'stops; with data.faults = "skip" it leaves them out',
    'leaves them out, with the other side (data.faults = "skip")',
)


@dataclass(frozen=True)
class Example:
    """A place in the data, what stands there, and sometimes a remark."""

    place: str
    excerpt: str
    remark: str = ""

    def __str__(self) -> str:
        return f"{self.place}  {self.excerpt}" + (f"  ({self.remark})" if self.remark else "")


@dataclass(frozen=True)
class Kind:
    """All findings of one kind."""

    name: str
    count: int
    training: str  # what it does about them, from TRAINING
    examples: list[Example]

    @property
    def stops(self) -> bool:
        return self.training.startswith("stops")

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.name}: {self.count:,}", f"  training {self.training}", *(f"  {e}" for e in self.examples)]
        )


@dataclass(frozen=True)
class Side:
    """What was counted on one side of the training data; `tokens_per_word` is of a sample."""

    words_per_line: float
    characters_per_word: float
    tokens_per_word: float | None


@dataclass(frozen=True)
class CheckReport:
    """What the data doctor found."""

    files: tuple[str, ...]
    rows: int
    unit: str  # of rows: pairs, documents or lines
    sides: tuple[Side, ...]
    tokenizer: str  # that tokens were counted with
    kinds: tuple[Kind, ...]

    @property
    def stops(self) -> bool:
        """Whether training would stop at this data."""
        return any(kind.stops for kind in self.kinds)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        kinds = [{**asdict(kind), "stops": kind.stops} for kind in self.kinds]
        return {**asdict(self), "kinds": kinds, "stops": self.stops}

    def __str__(self) -> str:
        head = f"{', '.join(self.files)}: {self.rows:,} {self.unit}"
        if not self.kinds:
            return f"{head}, no faults found{self._counted()}"
        end = "Training would stop." if self.stops else "Training would run."
        return "\n\n".join([head + self._counted(), *map(str, self.kinds), end])

    def _counted(self) -> str:
        """Words, characters and tokens in one line."""
        if not self.sides:
            return ""

        def both(numbers: Iterable[float | None]) -> str:
            return " and ".join("?" if number is None else f"{number:g}" for number in numbers)

        words = both(side.words_per_line for side in self.sides)
        characters = both(side.characters_per_word for side in self.sides)
        tokens = both(side.tokens_per_word for side in self.sides)
        return f"; words a line {words}, characters a word {characters}, tokens a word {tokens} ({self.tokenizer})"


def what_training_does(kind: str, *, limit: int, faults: str = "stop") -> str:
    """What training does about a kind, by the recipe's policy for faults and its longest sentence."""
    if kind in SKIPPED:
        return STOPS if faults == "stop" else LEAVES_OUT
    return TRAINING[kind.partition(" (")[0]].format(limit=limit)


def excerpt(text: str, at: int = 0, width: int = WIDTH) -> str:
    """A part of a text round a place, with what cannot be seen written out."""
    first = 0 if at < width * 2 // 3 else at - width // 3
    part = text[first : first + width]
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in part)
    return "…" * (first > 0) + shown + "…" * (first + width < len(text))


def ordered(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """Kinds in the order of TRAINING; scripts by their names."""
    order = list(TRAINING)
    return tuple(sorted(kinds, key=lambda kind: (order.index(kind.name.partition(" (")[0]), kind.name)))
