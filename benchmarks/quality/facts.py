"""How many sentences keep their numbers, dates, times, units, addresses and names in translation.

    python benchmarks/quality/facts.py
    python benchmarks/quality/facts.py runs/mine --show 20 --everyday --foreign

data/facts.fr.txt has French sentences that training never saw, with {braces} around each span that must survive. A span
counts as kept if the translation contains it exactly, as often as the source; a date with a month may be written as 3
March, March 3 or March 3rd. --everyday prints the translations of data/everyday.fr.txt for a reader to judge, and
--foreign counts the warnings about input in other languages. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from regard.api.translator import Translator
from regard.tasks.loading import load
from regard.text.placeholders.number_words import MONTHS, ordinal

DATA = Path(__file__).parents[1] / "data"
DATE = re.compile(rf"(\d{{1,2}})(?:er)? ({'|'.join(MONTHS['fr'])})(?: (\d{{4}}))?")


class Fact(NamedTuple):
    """A sentence, the spans that its translation must contain, and the kind of its spans."""

    text: str
    spans: list[str]
    kind: str


def read_sections(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file, each with the last heading (# …) before it."""
    heading = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            heading = line[2:]
        elif line:
            yield line, heading


def read_facts(path: Path = DATA / "facts.fr.txt") -> list[Fact]:
    """Return the sentences of a file without their braces."""
    return [
        Fact(re.sub(r"\{(.*?)\}", r"\1", line), re.findall(r"\{(.*?)\}", line), kind)
        for line, kind in read_sections(path)
    ]


def accepted(span: str) -> str:
    """Return a pattern of the texts that keep a span."""
    if not (date := DATE.fullmatch(span)):
        return re.escape(span)
    day, month, year = date[1], MONTHS["en"][MONTHS["fr"].index(date[2])], date[3]
    days = f"(?:{day}|{ordinal(int(day), 'en')})"
    both = rf"(?:(?:the )?{days} (?:of )?{month}|{month} (?:the )?{days})"
    return both + (rf",? {year}" if year else "")


def lost_spans(fact: Fact, translation: str) -> list[str]:
    """Return the spans that a translation does not contain as often as its source."""
    return [
        span
        for span, count in Counter(fact.spans).items()
        if len(re.findall(rf"(?<![\w-]){accepted(span)}(?!\w)", translation)) < count
    ]


def kept_table(facts: list[Fact], texts: list[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the sentences and the kept ones of each kind, and a line for each sentence that lost a span."""
    table: dict[str, dict[str, Any]] = {}
    lines = []
    for fact, text in zip(facts, texts, strict=True):
        lost = lost_spans(fact, text)
        for kind in (fact.kind, "all"):
            row = table.setdefault(kind, {"sentences": 0, "kept": 0})
            row["sentences"] += 1
            row["kept"] += not lost
        if lost:
            lines.append(f"  {fact.text}\n  → {text}   lost: {', '.join(lost)}")
    for row in table.values():
        row["percent"] = round(100 * row["kept"] / row["sentences"], 1)
    table["all"] = table.pop("all")
    return table, lines


def count_warnings(translator: Translator, texts: list[str]) -> list[bool]:
    """Return for each text whether its translation warns that the input looks like another language."""
    warned = []
    for text in texts:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            translator.translate(text)
        warned.append(any("does not look like" in str(warning.message) for warning in caught))
    return warned


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="fr-en", help="a model folder or the name of a shipped model")
    parser.add_argument("--show", type=int, default=10, help="how many sentences that lost something to print")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--everyday", action="store_true", help="print the translations of the everyday sentences")
    parser.add_argument("--foreign", action="store_true", help="count the warnings about other languages and code")
    options = parser.parse_args()
    translator = load(options.model)
    if not isinstance(translator, Translator):
        print(f"{options.model} is not a translator", file=sys.stderr)
        return 2
    facts = read_facts()
    texts = [result.text for result in translator.translate([fact.text for fact in facts], beam=options.beam)]
    table, lines = kept_table(facts, texts)
    print("\n".join(lines[: options.show]))
    print(f"{'kind':10} {'sentences':>9} {'kept':>5} {'percent':>8}")
    for kind, row in table.items():
        print(f"{kind:10} {row['sentences']:9} {row['kept']:5} {row['percent']:8.1f}")
    result: dict[str, Any] = {"model": options.model, "facts": table}
    everyday = (DATA / "everyday.fr.txt").read_text(encoding="utf-8").splitlines()
    if options.everyday:
        for text, translation in zip(everyday, translator.translate(everyday, beam=options.beam), strict=True):
            print(f"{text}\n  → {translation.text}")
    if options.foreign:
        foreign = [line for line, _ in read_sections(DATA / "not_french.txt")]
        result["warned"] = {
            "not French": [sum(count_warnings(translator, foreign)), len(foreign)],
            "everyday": [sum(count_warnings(translator, everyday)), len(everyday)],
            "facts": [sum(count_warnings(translator, [fact.text for fact in facts])), len(facts)],
        }
        for name, (count, total) in result["warned"].items():
            print(f"warnings about {name}: {count} of {total}")
    print(json.dumps(result, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
