"""G1: machine translation, measured in BLEU, by a small Transformer that learnt the demo corpus."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from regard.demo.corpus import DemoPair, demo_pairs, demo_words
from regard.evaluation.significance import Comparison, paired_bootstrap
from regard.tasks.loading import load

MODEL = Path(__file__).parents[2] / "data/demo-fr-en"


def dictionary(pairs: list[DemoPair]) -> dict[str, str]:
    """Each French word with the English words that are most often its translation, by the gold alignments."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        french, english = demo_words(pair.source), demo_words(pair.target)
        for i, word in enumerate(french):
            seen[word.lower()][" ".join(english[j] for source, j in pair.alignment if source == i)] += 1
    return {word: found.most_common(1)[0][0] for word, found in seen.items()}


@pytest.fixture(scope="module")
def compared() -> Comparison:
    """Word by word against the translator, on sentences that neither has seen."""
    known = dictionary(demo_pairs("train", 4000, seed=7))
    test = demo_pairs("test", 200, seed=7)
    by_word = [" ".join(known.get(word.lower(), word) for word in demo_words(pair.source)) for pair in test]
    by_word = [re.sub(r" (?=['.,?])", "", text) for text in by_word]
    translator = load(str(MODEL), device="cpu")
    translated = [found.text for found in translator.translate([pair.source for pair in test], beam=1)]
    return paired_bootstrap(by_word, translated, [pair.target for pair in test])


def test_G1_machine_translation_with_bleu(compared: Comparison) -> None:
    """A translator reads the whole sentence: far more than its words, one after the other."""
    assert 5 < compared.a.value < 60
    assert compared.interval[0] > 25 and compared.p_value < 0.01


def test_G1_bleu_says_how_it_was_counted(compared: Comparison) -> None:
    assert compared.b.name == "BLEU" and "tok:13a" in compared.b.signature
    low, high = compared.b.interval
    assert low <= compared.b.value <= high
