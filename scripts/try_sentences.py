"""Translate sentences that people type, side by side for a reader, with a mark on what looks wrong.

    python scripts/try_sentences.py fr-en
    python scripts/try_sentences.py runs/fr-en --beam 1 --file mine.txt

The file has a sentence a line; after tabs stand words that the translation must hold. Lines with # name what follows.
A mark is a reason to look, and no mark no reason to trust: read every line. The exit code is 1 where there are marks.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.api.translator import Translator
from regard.decoding.searches.repetition import find_repetition
from regard.tasks.loading import load

FILE = Path(__file__).with_suffix(".txt")
LONGEST, SHORTEST = 2.5, 0.4  # words of a translation for each of its source, a few more or less aside
ROOM = 4
OFTEN = 3


class Try(NamedTuple):
    """A sentence, the words that its translation must hold, and what it is an example of."""

    text: str
    keep: list[str]
    about: str


def read_tries(path: Path) -> list[Try]:
    """The sentences of a file."""
    about, tries = "", []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            about = line.lstrip("# ")
        elif line:
            text, *keep = line.split("\t")
            tries.append(Try(text, keep, about))
    return tries


def warnings_for(attempt: Try, translation: str) -> Iterator[str]:
    """What looks wrong with a translation."""
    ours, theirs = (re.findall(r"\w+", text.lower()) for text in (attempt.text, translation))
    if not translation.strip():
        yield "empty"
    if len(theirs) > LONGEST * len(ours) + ROOM or len(theirs) < SHORTEST * len(ours) - ROOM:
        yield f"{len(theirs)} words for {len(ours)}"
    if find_repetition(theirs).copies > max(OFTEN - 1, find_repetition(ours).copies):
        yield "the same words in a row, again and again"
    phrase, count = most_frequent(theirs)
    if count > max(OFTEN - 1, most_frequent(ours)[1]):
        yield f"{count} times: {phrase}"
    if re.search("<unk>|⁇|�", translation):
        yield "unknown mark"
    if lost := [word for word in attempt.keep if word.lower() not in translation.lower()]:
        yield f"lost: {', '.join(lost)}"


def most_frequent(words: Sequence[str]) -> tuple[str, int]:
    """The most frequent three words in a row, and how often they stand in a text."""
    phrases = Counter(" ".join(words[i : i + 3]) for i in range(len(words) - 2))
    return phrases.most_common(1)[0] if phrases else ("", 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="fr-en", help="model folder or shipped name")
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--beam", type=int, default=5)
    args = parser.parse_args()
    translator = load(args.model)
    assert isinstance(translator, Translator)
    tries = read_tries(args.file)
    translations = translator.translate([attempt.text for attempt in tries], beam=args.beam)
    marked, about = 0, ""
    for attempt, translation in zip(tries, translations, strict=True):
        if attempt.about != about:
            about = attempt.about
            sys.stdout.write(f"\n## {about}\n")
        wrong = list(warnings_for(attempt, translation.text))
        marked += bool(wrong)
        sys.stdout.write(f"  {attempt.text}\n  {translation.text}\n" + "".join(f"  !! {why}\n" for why in wrong) + "\n")
    sys.stdout.write(f"{len(tries)} sentences, {marked} marked\n")
    return int(marked > 0)


if __name__ == "__main__":
    sys.exit(main())
