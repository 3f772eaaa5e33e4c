"""The data of a comparison as files of JSON lines: train.jsonl, validation.jsonl and test.jsonl.

They are copies, so that every system, and every later call, has the same sentences.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.demo.corpus import demo_pairs, demo_words
from regard.evaluation.alignment import Link, alignment_error_rate, format_links, parse_links
from regard.system.files import replace_file
from regard.tasks.corpora import split_pairs
from regard.text.files.corpus import Corpus, read_parallel
from regard.text.files.lines import read_lines
from regard.training.recipe.schema import SHARES, DataRecipe, Recipe

TEST_SENTENCES = 4000  # of the demo corpus; of other data a tenth, but not more
DEMO_EDGES = tuple(range(5, 29, 3))  # of the lengths of its test sentences, which are 3 to 30 words
ALIGNED_SENTENCES = 400  # of the test part, compared with gold alignments


@dataclass(frozen=True)
class HeldOut:
    """The test part, with word alignments for the demo corpus."""

    source: list[str]
    target: list[str]
    gold: list[frozenset[Link]] | None  # of the first sentences

    @property
    def words(self) -> Callable[[str], list[str]]:
        """The function that splits a sentence into the words that links refer to."""
        return demo_words

    @property
    def edges(self) -> Sequence[int] | None:
        """The edges of the length buckets; None chooses them from the lengths."""
        return None if self.gold is None else DEMO_EDGES

    def alignment_error(self, links_of: Callable[[str, str], set[Link]]) -> float | None:
        """Return the alignment error rate of the links that a function returns; None without gold alignments."""
        if self.gold is None:
            return None
        pairs = zip(self.source, self.target, self.gold, strict=False)  # gold ends first
        return alignment_error_rate([links_of(source, target) for source, target, _ in pairs], self.gold)

    def in_order(self, source: str, target: str) -> set[Link]:
        """Return the links of words aligned in order: word i of m is linked to word i n / m of n."""
        n, m = len(self.words(source)), len(self.words(target))
        return {(i * n // m, i) for i in range(m)}


def place_data(asked: Recipe, folder: Path, test: tuple[Path, Path] | None) -> Recipe:
    """Write the three files and return the recipe that reads them; without test files, hold out a test part."""
    corpora = asked.task.read(asked)
    train, links = corpora.train, None
    if asked.data.demo:
        pairs = demo_pairs("test", TEST_SENTENCES, seed=asked.training.seed)
        part = [pair.source for pair in pairs], [pair.target for pair in pairs]
        links = [format_links(pair.alignment) for pair in pairs[:ALIGNED_SENTENCES]]
    elif test is not None:
        part = _sides(read_parallel([test[0]], [test[1]]))
    else:
        split = split_pairs(train, max(1, min(TEST_SENTENCES, len(train) // 10)), asked.training.seed)
        train, part = split.train, _sides(split.validation)
    files = [folder / f"{name}.jsonl" for name in ("train", "validation", "test")]
    for file, (source, target) in zip(files, (_sides(train), _sides(corpora.validation), part), strict=True):
        rows = [{"source": s, "target": t} for s, t in zip(source, target, strict=True)]
        if file is files[-1] and links is not None:
            rows = [{**row, "links": text} for row, text in zip(rows, links, strict=False)] + rows[len(links) :]
        replace_file(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    data = DataRecipe(
        pairs=(str(files[0].absolute()),),
        validation_pairs=(str(files[1].absolute()),),
        source_language=asked.data.source_language,
        target_language=asked.data.target_language,
        max_length=asked.data.max_length,
        **{share: getattr(asked.data, share) for share in SHARES},
    )
    return dataclasses.replace(asked, data=data)


def read_test(folder: Path) -> HeldOut:
    """Read the test part that place_data wrote."""
    rows = [json.loads(line) for line in read_lines(folder / "test.jsonl")]
    gold = [parse_links(row["links"]).sure for row in rows if "links" in row]
    return HeldOut([row["source"] for row in rows], [row["target"] for row in rows], gold or None)


def _sides(corpus: Corpus) -> tuple[list[str], list[str]]:
    assert corpus.target is not None  # check_recipe refuses other data
    return corpus.source, corpus.target
