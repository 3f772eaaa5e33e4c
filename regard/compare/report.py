"""The report of a comparison: a table, two pictures, and the claims that follow from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.compare.claims import Claim, Pairs, Results, SystemResult, judge_claims
from regard.system.files import replace_file
from regard.training.loop.report import duration

NONE = "–"


@dataclass(frozen=True)
class Outcome:
    """The results of all systems, and the comparison of each pair."""

    results: Results
    pairs: Pairs
    diagonal: float | None  # the alignment error rate of words aligned in order
    seed: int

    @cached_property
    def claims(self) -> list[Claim]:
        return judge_claims(self.results, self.pairs, self.diagonal)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the heading and the rows; columns without any number are omitted."""
        columns = {
            "system": [result.title for result in self._all],
            "BLEU": [_with_interval(result) for result in self._all],
            "AER": [NONE if result.aer is None else f"{result.aer:.1%}" for result in self._all],
            "parameters": [f"{result.parameters:,}" for result in self._all],
            "time": [duration(result.seconds) for result in self._all],
            "tokens/s": [f"{result.tokens_per_second:,.0f}" for result in self._all],
            "memory": [NONE if result.memory is None else f"{result.memory / 2**20:,.0f} MB" for result in self._all],
        }
        shown = {name: cells for name, cells in columns.items() if any(cell != NONE for cell in cells)}
        return list(shown), [list(row) for row in zip(*shown.values(), strict=True)]

    def notes(self) -> list[str]:
        """Explain how the numbers were measured."""
        first = self._all[0]
        sizes = [result.parameters for result in self._all]
        return [
            f"Each system saw the same {first.tokens:,} target tokens in the same order ({first.steps:,} steps); "
            f"the most parameters are {max(sizes) / min(sizes) - 1:.0%} above the fewest. Time and tokens/s are of the "
            f"training steps, memory is the peak of the training process. {first.bleu.signature}.",
            f"Each was trained once (seed {self.seed}): intervals (95%) and p-values cover the choice of the test "
            f"sentences, not the luck of a training run.",
        ]

    def markdown(self) -> str:
        heading, rows = self.table()
        lines = [heading, ["---"] + ["---:"] * (len(heading) - 1), *rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        claims = "\n".join(f"- **{claim.claim}**: {claim.verdict}. {claim.evidence}" for claim in self.claims)
        pictures = ["![BLEU by sentence length](by-length.png)"]
        if self._curves:
            pictures.append("![BLEU while learning](learning.png)")
        return "\n\n".join(part for part in (table, claims, *self.notes(), *pictures) if part) + "\n"

    def to_dict(self) -> dict[str, Any]:
        return {
            "systems": {name: result.to_dict() for name, result in self.results.items()},
            # The names of the two systems; their scores are above.
            "comparisons": [{**comparison.to_dict(), "a": a, "b": b} for (a, b), comparison in self.pairs.items()],
            "aer_in_order": self.diagonal,
            "claims": [claim._asdict() for claim in self.claims],
            "notes": self.notes(),
        }

    def write(self, folder: Path) -> None:
        """Write table.md, results.json and the two pictures."""
        from regard.look.pictures.by_length import learning_plot, length_plot
        from regard.look.pictures.drawing import figures

        replace_file(folder / "table.md", self.markdown().encode())
        replace_file(folder / "results.json", json.dumps(self.to_dict(), indent=1, ensure_ascii=False).encode())
        buckets = {result.title: result.buckets for result in self._all}
        figures.save(length_plot(buckets), folder / "by-length.png")
        if self._curves:
            figures.save(learning_plot(self._curves), folder / "learning.png")

    @property
    def _curves(self) -> dict[str, Sequence[tuple[int, float]]]:
        """The learning curves; empty if the recipe translates nothing during validation."""
        return {result.title: result.curve for result in self._all if result.curve}

    @property
    def _all(self) -> list[SystemResult]:
        return list(self.results.values())


def _with_interval(result: SystemResult) -> str:
    value, interval = result.bleu.value, result.bleu.interval
    return f"{value:.1f}" if interval is None else f"{value:.1f} [{interval[0]:.1f}, {interval[1]:.1f}]"
