"""The tables and the picture of docs/results.md, made from the lines that benchmarks/quality/quality.py wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.quality.quality_systems import SYSTEMS, Goal, Run, System

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "results.md"
PICTURE = DOCS / "images" / "multi30k-by-length.png"
OPEN = "not measured"
PAIR = {"gru": "with attention", "seq2seq": "without attention"}

Line = dict[str, Any]


def read_results(path: Path) -> list[Line]:
    """All lines; one that was cut off when it was written is left out."""
    results = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            results.append(json.loads(line))
        except ValueError:
            continue
    return results


def lines_of(results: Iterable[Line], system: System, direction: str, form: str) -> list[Line]:
    """The test results of the recipe as it ships now, the newest line of each seed."""
    keys = {Run(system, direction, form, seed).key for seed in range(1, system.goals[direction].seeds + 1)}
    newest = {line["seed"]: line for line in results if line["key"] in keys and line["part"] == "test"}
    return [newest[seed] for seed in sorted(newest)]


def write_tables(results: Sequence[Line], page: Path = PAGE) -> None:
    """Put fresh tables between the markers of the page."""
    page.write_text(with_tables(page.read_text(encoding="utf-8"), results), encoding="utf-8")


def with_tables(text: str, results: Sequence[Line]) -> str:
    return filled(text, {name: table(results) for name, table in TABLES.items()})


def filled(text: str, tables: Mapping[str, str]) -> str:
    """Return the page with these tables in their places."""
    for name, table in tables.items():
        marked = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end of table -->)", re.DOTALL)
        if not marked.search(text):
            raise ValueError(
                f"the page has no place for the table {name!r}: <!-- table: {name} --> … <!-- end of table -->"
            )
        text = marked.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    return text


def multi30k_table(results: Sequence[Line]) -> str:
    """A row for each system and direction, with both scorings."""
    head = ("recipe", "direction", "published", "required", "tokenized", "raw text", "parameters", "training", "")
    rows = []
    for system, direction, goal in _goals("multi30k"):
        tokenised, raw = (lines_of(results, system, direction, form) for form in ("tokenised", "raw"))
        values = _bleu(tokenised)
        numbers = (_published(system, goal), _required(goal), spread(values), spread(_bleu(raw)))
        work = (_size(tokenised), _work(tokenised))
        rows.append((_name(system), _arrow(direction), *numbers, *work, verdict(goal, values)))
    return markdown_table(head, rows)


def tatoeba_table(results: Sequence[Line]) -> str:
    head = ("recipe", "published", "required", "BLEU", "chrF", "parameters", "training", "")
    rows = []
    for system, direction, goal in _goals("tatoeba"):
        lines = lines_of(results, system, direction, "raw")
        scores = (spread(_bleu(lines)), spread([line["chrf"]["value"] for line in lines]))
        numbers = (_published(system, goal), _required(goal), *scores, _size(lines), _work(lines))
        rows.append((_name(system), *numbers, verdict(goal, _bleu(lines))))
    return markdown_table(head, rows)


def shakespeare_table(results: Sequence[Line]) -> str:
    head = ("recipe", "published", "required", "nats per character", "whole windows", "parameters", "training", "")
    rows = []
    for system, direction, goal in _goals("tinyshakespeare"):
        lines = lines_of(results, system, direction, "raw")
        values = [line["nats"] for line in lines]
        ours = (_with_stride(values, lines), spread(_known(line["validation"]["loss"] for line in lines), 4))
        numbers = (_published(system, goal), _required(goal), *ours, _size(lines), _work(lines))
        rows.append((_name(system), *numbers, verdict(goal, values, lower=True)))
    return markdown_table(head, rows)


def features_table(results: Sequence[Line]) -> str:
    """Random features and softmax by the same recipe, English to German."""
    tiny = next(system for system in SYSTEMS if system.name == "tiny")
    rows, exact = [], _bleu(lines_of(results, tiny, "en-de", "tokenised"))
    for system, direction, _ in _goals("multi30k", features=True):
        values = _bleu(lines_of(results, system, direction, "tokenised"))
        away = f"{mean(values) - mean(exact):+.2f}" if values and exact else OPEN
        rows.append((system.features, spread(values), away))
    return markdown_table(
        ("attention of the decoder", "BLEU", "against softmax"), [("softmax", spread(exact), ""), *rows]
    )


def letters_table(results: Sequence[Line]) -> str:
    """What each part of random-feature attention is worth to a small language model."""
    rows = []
    for system, direction, _ in _goals("tinyshakespeare", features=True):
        lines = lines_of(results, system, direction, "raw")
        rows.append((system.features, _with_stride([line["nats"] for line in lines], lines)))
    return markdown_table(("attention", "nats per character"), rows)


def by_length_table(results: Sequence[Line]) -> str:
    """The GRU with and without attention for each range of lengths, and the picture of it; D17."""
    pair = [_pair_line(results, name) for name in PAIR]
    if None in pair:
        return OPEN
    gru, plain = pair
    head = ("words of the source", "sentences", *PAIR.values())
    rows = [
        (f"{bucket['low']} to {bucket['high']}", str(bucket["count"]), f"{bucket['bleu']:.1f}", f"{other['bleu']:.1f}")
        for bucket, other in zip(gru["by_length"], plain["by_length"], strict=True)
    ]
    rows.append(
        ("all", str(sum(bucket["count"] for bucket in gru["by_length"])), *(f"{x['bleu']['value']:.1f}" for x in pair))
    )
    return (
        f"{markdown_table(head, rows)}\n\n![BLEU by sentence length, with and without attention](images/{PICTURE.name})"
    )


def _pair_line(results: Sequence[Line], name: str) -> Line | None:
    system = next(system for system in SYSTEMS if system.name == name)
    return next(iter(lines_of(results, system, "de-en", "tokenised")), None)


TABLES: dict[str, Callable[[Sequence[Line]], str]] = {
    "multi30k": multi30k_table,
    "by-length": by_length_table,
    "tatoeba": tatoeba_table,
    "shakespeare": shakespeare_table,
    "features": features_table,
    "letters": letters_table,
}


def verdict(goal: Goal, values: Sequence[float], *, lower: bool = False) -> str:
    """Whether the mean is where it shall be."""
    if not values or goal.required is None:
        return "" if values else OPEN
    ahead = (goal.required - mean(values)) if lower else mean(values) - goal.required
    return "**met**" if ahead >= 0 else f"**missed** by {-ahead:.{3 if lower else 2}f}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean, and with several seeds the standard deviation and how many they are."""
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f} ({len(values)} seeds)"


def draw_picture(results: Sequence[Line], path: Path = PICTURE) -> Path:
    """BLEU by sentence length of the GRU with and without attention, German to English; D17."""
    from regard.evaluation.bleu import Score
    from regard.evaluation.by_length import Bucket
    from regard.look.pictures.by_length import length_plot
    from regard.look.pictures.drawing import figures

    curves = {}
    for name, label in PAIR.items():
        line = _pair_line(results, name)
        if line is None:
            raise SystemExit(f"there is no result of {name} yet: --run --only gru seq2seq")
        curves[label] = []
        for bucket in line["by_length"]:
            score = Score("BLEU", bucket["bleu"], line["bleu"]["signature"], tuple(bucket["interval"]))
            curves[label].append(Bucket(bucket["low"], bucket["high"], bucket["count"], score, score, bucket["merged"]))
    figures.save(length_plot(curves), path)
    return path


def _goals(data: str, *, features: bool = False) -> list[tuple[System, str, Goal]]:
    systems = [s for s in SYSTEMS if s.data == data and bool(s.features) == features]
    return [(s, direction, goal) for s in systems for direction, goal in s.goals.items()]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _bleu(lines: Sequence[Line]) -> list[float]:
    return [line["bleu"]["value"] for line in lines]


def _with_stride(values: Sequence[float], lines: Sequence[Line]) -> str:
    return spread(values, 4) + (f", stride {lines[0]['stride']}" if lines else "")


def _size(lines: Sequence[Line]) -> str:
    return f"{lines[0]['parameters'] / 1e6:.1f} M" if lines else "–"


def _work(lines: Sequence[Line]) -> str:
    """Steps, and the seconds of those trainings that had the machine for themselves; to prepare steps is told apart."""
    if not lines:
        return "–"
    alone = [line for line in lines if line["at_once"] == 1]
    work = f"{lines[0]['steps']:,} steps"
    if alone:
        work += f", {mean(line['seconds'] - line['preparing'] for line in alone):.0f} s"
    if any(line["preparing"] >= 1 for line in alone):
        work += f" and {mean(line['preparing'] for line in alone):.0f} s to prepare"
    return work


def _name(system: System) -> str:
    return f"`{system.recipe}`" + (f", {system.change}" if system.change else "")


def _published(system: System, goal: Goal) -> str:
    return "–" if goal.published is None else f"{goal.published} ({system.others})"


def _required(goal: Goal) -> str:
    return "–" if goal.required is None else str(goal.required)


def _arrow(direction: str) -> str:
    return direction.title().replace("-", "–")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
