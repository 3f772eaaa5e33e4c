"""How well attention aligns words: the alignment error rate against a gold list, beside IBM model 1.

    python benchmarks/quality/alignment.py                            # the shipped fr-en and en-fr; one minute
    python benchmarks/quality/alignment.py --data data/tatoeba-fr-en  # also IBM model 1, trained on the training part
    python benchmarks/quality/alignment.py --models runs/mine --heads # also every head

data/alignment.tsv has 100 French and English sentences from the validation part of Tatoeba with gold links (sure: 0-1,
possible: 0?1), and 14 sentences with an adjective after its noun. The model is forced to write the given translation.
A way of aligning is chosen on the part `choose`; its error is that on the part `report`, which nothing is chosen by.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.timing import command, hardware, keep
from regard.api.translator import Translator
from regard.evaluation.alignment import (
    GoldLinks,
    Link,
    alignment_error_rate,
    hard_alignment,
    mutual_alignment,
    parse_links,
)
from regard.evaluation.alignment_heads import AligningHead
from regard.tasks.loading import load
from regard.text.files.corpus import read_parallel

GOLD = Path(__file__).parents[1] / "data" / "alignment.tsv"
PARTS = ("choose", "report")
RESAMPLES = 1000  # of the bootstrap
ITERATIONS = 5  # of expectation maximization
# The single heads that mutual information chose until 2026-11-18.
BEFORE = {"fr-en": AligningHead("decoder.2.cross", 3), "en-fr": AligningHead("decoder.1.cross", 7)}

Align = Callable[[str, str], set[Link]]  # from a source and a target text to links between their words


class GoldPair(NamedTuple):
    """A sentence pair, in the direction of the model, with its gold links."""

    part: str
    source: str
    target: str
    links: GoldLinks


def split_words(text: str) -> list[str]:
    """Split a text at spaces, around punctuation and after French elision; an English contraction is one word."""
    return re.findall(r"[^\s'’.,;:?!\"]+(?:['’](?:s|t|m|d|re|ll|ve)\b)?['’]?|\S", text)


def read_gold(path: Path = GOLD, *, source: str = "french") -> list[GoldPair]:
    """Read the gold list; `source` is the column that the model reads."""
    pairs = []
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE), start=2):
            links = parse_links(row["links"], where=f"{path}:{number}")
            if source == "french":
                pairs.append(GoldPair(row["part"], row["french"], row["english"], links))
            else:
                swapped = GoldLinks(*(frozenset((j, i) for i, j in side) for side in links))
                pairs.append(GoldPair(row["part"], row["english"], row["french"], swapped))
    return pairs


class ForcedAttention:
    """The cross-attention of a model while it is forced to write the targets, between words; each pair runs twice."""

    def __init__(self, translator: Translator, pairs: Sequence[GoldPair]) -> None:
        self.maps = {(pair.source, pair.target): _word_maps(translator, pair) for pair in pairs}

    def align(self, heads: Sequence[AligningHead], *, mutual: bool = False) -> Align:
        """Return the alignment by the mean of these heads."""

        def links(source: str, target: str) -> set[Link]:
            maps = self.maps[source, target]
            weights = [
                maps[shifted][layer].mean(0) if head is None else maps[shifted][layer][head]
                for layer, head, shifted in heads
            ]
            return (mutual_alignment if mutual else hard_alignment)(torch.stack(weights).mean(0))

        return links


def _word_maps(translator: Translator, pair: GoldPair) -> dict[bool, dict[str, Tensor]]:
    """Return the attention (heads, M, N) of each layer, at the step that writes a token and the one that reads it."""
    steps = {}
    for shifted in (False, True):
        maps, *_ = translator.word_attention(pair.source, pair.target, words=split_words, shifted=shifted)
        steps[shifted] = {name: weights[:, :-1, :-1].cpu() for name, weights in maps.items()}
    return steps


class IBM1:
    """IBM model 1 (Brown et al. 1993, section 4.1): p(t | s) of words, by expectation maximization.

    Each target word is linked to the source word with the highest p(t | s), unless the empty word has a higher one.
    """

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        self.numbers: dict[str, int] = {"": 0}  # the empty word
        sentences = [
            ([0, *self._encode(source)], self._encode(target)) for source, target in zip(sources, targets, strict=True)
        ]
        # Every target word with every source word of its sentence.
        cells = np.concatenate([np.array([(t, s) for t in target for s in source]) for source, target in sentences])
        lengths = np.concatenate([np.full(len(target), len(source)) for source, target in sentences])
        codes, pair = np.unique(cells[:, 0] * len(self.numbers) + cells[:, 1], return_inverse=True)
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        probability = np.ones(len(codes))
        for _ in range(ITERATIONS):
            weights = probability[pair]
            weights /= np.repeat(np.add.reduceat(weights, starts), lengths)  # p(s | t, sentence)
            counts = np.bincount(pair, weights)
            totals = np.bincount(codes % len(self.numbers), counts, minlength=len(self.numbers))
            probability = counts / totals[codes % len(self.numbers)]
        self.table = dict(zip(codes.tolist(), probability.tolist(), strict=True))

    def _encode(self, text: str) -> list[int]:
        return [self.numbers.setdefault(word.lower(), len(self.numbers)) for word in split_words(text)]

    def align(self, source: str, target: str) -> set[Link]:
        known = len(self.numbers)  # words that training never saw have larger numbers, and link to no word
        number = [[self.numbers.get(word.lower(), known) for word in split_words(text)] for text in (source, target)]
        links = set()
        for i, t in enumerate(number[1]):
            probabilities = [self.table.get(t * known + s, 0.0) if t < known else 0.0 for s in [0, *number[0]]]
            best = int(np.argmax(probabilities))
            if best:
                links.add((best - 1, i))
        return links


def error(pairs: Sequence[GoldPair], align: Align) -> tuple[float, float, float]:
    """Return the alignment error rate, and its 95% interval by resampling the sentences."""
    predicted = [align(pair.source, pair.target) for pair in pairs]
    sure, possible = [pair.links.sure for pair in pairs], [pair.links.possible for pair in pairs]
    rate = alignment_error_rate(predicted, sure, possible)
    hits = np.array([len(a & s) + len(a & (s | p)) for a, s, p in zip(predicted, sure, possible, strict=True)])
    links = np.array([len(a) + len(s) for a, s in zip(predicted, sure, strict=True)])
    drawn = np.random.default_rng(0).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    rates: NDArray[Any] = 1 - hits[drawn].sum(1) / links[drawn].sum(1)
    low, high = np.quantile(rates, [0.025, 0.975])
    return rate, float(low), float(high)


def words_right(pairs: Sequence[GoldPair], align: Align) -> tuple[int, int]:
    """Return how many target words of the gold links have exactly these links, and how many there are."""
    right = total = 0
    for pair in pairs:
        predicted = align(pair.source, pair.target)
        for link in pair.links.sure:
            right += {other for other in predicted if other[1] == link[1]} == {link}
            total += 1
    return right, total


def ways(translator: Translator, attention: ForcedAttention, name: str, *, heads: bool) -> dict[str, Align]:
    """Return the ways of aligning with the attention of a model, by name."""
    config = translator.model.config
    result: dict[str, Align] = {}
    if name in BEFORE:
        result[f"{BEFORE[name]} (before)"] = attention.align([BEFORE[name]])
    for shifted in (False, True):
        every = [AligningHead(layer, None, shifted) for layer in config.cross_layers]
        result |= {str(layer): attention.align([layer]) for layer in every}
        result[f"mean of all layers{' at the next step' if shifted else ''}"] = attention.align(every)
        if heads:
            single = [head._replace(head=i) for head in every for i in range(getattr(config, "heads", 1))]
            result |= {str(head): attention.align([head]) for head in single}
    result["chosen heads, largest weight"] = attention.align(translator.alignment_heads)
    result["chosen heads, mutual (regard)"] = lambda source, target: set(
        translator.align(source, target, words=split_words).pairs
    )
    return result


def measure(name: str, data: Path | None, *, heads: bool) -> dict[str, dict[str, Any]]:
    """Print the table of one model, and return its rows."""
    translator = load(name)
    assert isinstance(translator, Translator), f"{name} is not a translator"
    languages = translator.info.get("languages") or {}
    pairs = read_gold(source="english" if languages.get("source") == "en" else "french")
    rows = ways(translator, ForcedAttention(translator, pairs), name, heads=heads)
    if data is not None:
        sides = ("en", "fr") if languages.get("source") == "en" else ("fr", "en")
        corpus = read_parallel([data / f"train.{sides[0]}.gz"], [data / f"train.{sides[1]}.gz"])
        rows["IBM model 1"] = IBM1(corpus.source, corpus.target or []).align
    parts = {part: [pair for pair in pairs if pair.part == part] for part in (*PARTS, "crossing")}
    print(f"\n{name}\n{'':50} {'choose':>7} {'report':>7} {'95% interval':>15} {'adjectives':>11}")
    table = {}
    for way, align in rows.items():
        (chosen, *_), (rate, low, high) = (error(parts[part], align) for part in PARTS)
        right, total = words_right(parts["crossing"], align)
        table[way] = {"choose": chosen, "report": rate, "interval": [low, high], "right": right, "words": total}
        print(f"{way:50} {chosen:7.3f} {rate:7.3f} {low:7.3f} {high:7.3f} {right:5} of {total}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["fr-en", "en-fr"], help="model folders or shipped models")
    parser.add_argument("--data", type=Path, help="folder with train.fr.gz and train.en.gz, for IBM model 1")
    parser.add_argument("--heads", action="store_true", help="also every single head")
    parser.add_argument("--out", type=Path, help="write the JSON to this file too")
    options = parser.parse_args()
    report: dict[str, object] = {
        "date": date.today().isoformat(),
        "command": command(),
        **hardware("cpu"),
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "models": {name: measure(name, options.data, heads=options.heads) for name in options.models},
    }
    keep(report, options.out)
    print(json.dumps(report, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
