"""What a check says about an answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a check ended."""

    right = "right"
    wrong = "wrong"
    unfinished = "not done yet"
    error = "error"
    timeout = "time limit"


@dataclass(frozen=True)
class Verdict:
    """The result of checking one answer.

    `mistakes` are the names of the mistakes that explain the answer: none, one, or two at once. `message` says what
    happened, `why` why it matters, and `evidence` how the checker knows, or where a result differs.
    """

    exercise: str
    outcome: Outcome
    message: str
    mistakes: tuple[str, ...] = ()
    why: str = ""
    evidence: tuple[str, ...] = ()
    printed: str = ""  # by the student's code

    @property
    def right(self) -> bool:
        return self.outcome is Outcome.right

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verdict:
        """Read a verdict from the data of `to_dict`."""
        pairs = {"mistakes": tuple(data["mistakes"]), "evidence": tuple(data["evidence"])}
        return cls(**{**data, **pairs, "outcome": Outcome(data["outcome"])})

    def __str__(self) -> str:
        sign = {Outcome.right: "✓", Outcome.unfinished: "○"}.get(self.outcome, "✗")
        lines = [f"{sign} {self.exercise}: {self.message}"]
        if self.why:
            lines.append(f"Why it matters: {self.why}")
        lines += self.evidence
        if self.printed:
            lines += ["Printed by your code:", *(f"  {line}" for line in self.printed.splitlines())]
        return "\n  ".join(lines)
