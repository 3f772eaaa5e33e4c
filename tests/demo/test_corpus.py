"""The demo corpus as data: parts, sizes, determinism, the held-out sentence, and how hard it is."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

import numpy as np
import pytest
import sacrebleu

from regard.demo.corpus import DemoPair, demo_pairs, demo_text, demo_words, part_of, write_demo
from regard.demo.grammar.draft import Draft
from regard.demo.grammar.sentences import main_clause
from regard.demo.grammar.surface import Phrase, align, choose_articles, elide, join
from regard.demo.grammar.time_and_place import Time
from regard.errors import UsageError

JANE, JANE_ENGLISH = "Jane visite l'Afrique en septembre", "Jane visits Africa in September"


@pytest.fixture(scope="module")
def train() -> list[DemoPair]:
    return demo_pairs("train", 8_000)


@pytest.fixture(scope="module")
def test() -> list[DemoPair]:
    return demo_pairs("test", 2_000, seed=1)


def bare(text: str) -> str:
    return re.sub(r"[^\w' -]", "", text).lower()


def test_sentences_are_distinct_and_parts_disjoint(train: list[DemoPair], test: list[DemoPair]) -> None:
    validation = demo_pairs("validation", 1_000, seed=7)
    for side in ("source", "target"):
        parts = [{bare(getattr(pair, side)) for pair in pairs} for pairs in (train, validation, test)]
        assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    for pairs in (train, validation, test):
        assert len({pair.source for pair in pairs}) == len(pairs)


def test_there_are_hundreds_of_thousands_of_sentences(train: list[DemoPair]) -> None:
    """Two draws of n out of N sentences share about n²/N if all are alike; short ones, which are few, come up more."""
    long = {pair.source for pair in train if len(pair.source.split()) > 8}
    again = {pair.source for pair in demo_pairs("train", 4_000, seed=99) if len(pair.source.split()) > 8}
    assert len(long & again) < len(long) * len(again) / 10_000_000


def test_one_english_sentence_for_a_french_one(train: list[DemoPair], test: list[DemoPair]) -> None:
    english: dict[str, str] = {}
    others = demo_pairs("train", 4_000, seed=5)
    for pair in [*train, *test, *others]:
        assert english.setdefault(pair.source, pair.target) == pair.target


def test_lengths(test: list[DemoPair]) -> None:
    lengths = [len(pair.source.split()) for pair in test]
    assert min(lengths) == 3 and max(lengths) == 30
    assert 10 <= sum(lengths) / len(lengths) <= 12.5
    assert sum(25 <= length <= 30 for length in lengths) >= 100
    assert max(len(pair.target.split()) for pair in test) <= 30


def test_words(train: list[DemoPair]) -> None:
    forms = Counter(word.lower() for pair in train for word in demo_words(pair.source))
    assert sum(count >= 3 for count in forms.values()) >= 600
    assert set("".join(pair.source + pair.target for pair in train)) <= set(
        " '.,?-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZàâçèéêîïôûùœÀÉÊÎŒÔ"
    )


def test_marks_are_the_same_on_both_sides(train: list[DemoPair]) -> None:
    for pair in train:
        for mark in ".?":
            assert pair.source.endswith(mark) == pair.target.endswith(mark)
        assert pair.source.count(",") == pair.target.count(",")
        assert pair.source[0].isupper() and pair.target[0].isupper()
        assert "  " not in pair.source + pair.target
    unmarked = sum(pair.source[-1] not in ".?" for pair in train) / len(train)
    assert 0.07 < unmarked < 0.12


def test_alignments_lie_inside_the_sentences(train: list[DemoPair]) -> None:
    for pair in train[:2_000]:
        source, target = demo_words(pair.source), demo_words(pair.target)
        assert pair.alignment == tuple(sorted(set(pair.alignment)))
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in pair.alignment)
        # Almost everything has a partner; what has none is an article, a preposition or a particle.
        assert len({i for i, _ in pair.alignment}) >= 0.5 * len(source)
        assert len({j for _, j in pair.alignment}) >= 0.6 * len(target)
        last = (len(source) - 1, len(target) - 1)
        assert (last in pair.alignment) == (source[-1] in ".?") or source[-1] not in ".?"


# The running example


def test_jane_is_held_out(train: list[DemoPair], test: list[DemoPair]) -> None:
    assert part_of(JANE_ENGLISH) is None and part_of(JANE_ENGLISH + ".") is None
    assert part_of(f"Paul thinks that {JANE_ENGLISH}.") is None
    assert part_of("Jane visits Africa in May") is not None
    for pair in [*train, *test]:
        assert JANE.lower() not in pair.source.lower() and JANE_ENGLISH.lower() not in pair.target.lower()


def test_the_words_of_jane_are_in_training(train: list[DemoPair]) -> None:
    text = "\n".join(pair.source for pair in train)
    for words, least in {
        "Jane ": 80, " visite ": 16, "l'Afrique": 16, "visite l'Afrique": 1, "en septembre": 16, "Jane visite ": 1,
    }.items():  # fmt: skip
        assert text.count(words) >= least, words


T = TypeVar("T")


class Steered(Draft):
    """Dice that fall on what is wanted, if it is among the choices, and on the first choice otherwise."""

    wanted = ("Jane", "visiter", "country", "la Afrique", "septembre")

    def pick(self, choices: Sequence[T]) -> T:
        for choice in choices:
            names = (getattr(choice, "french", None), getattr(choice, "infinitive", None), choice)
            first = choice[0] if isinstance(choice, tuple) else None
            if any(isinstance(name, str) and name in self.wanted for name in (*names, first)):
                return choice
        return choices[0]

    def chance(self, probability: float) -> bool:
        return probability in (0.4, 0.5)  # a time phrase, not a habit; everything else is left out


def test_jane_can_be_derived() -> None:
    clause = main_clause(Steered(Random(0)), Time("présent"), None, deeds=True, timed=0.5)
    french, english = elide(clause.words.french), choose_articles(clause.words.english)
    assert (join(french), join(english)) == (JANE, JANE_ENGLISH)
    assert demo_words(JANE) == ["Jane", "visite", "l'", "Afrique", "en", "septembre"]
    assert align(Phrase(french, english)) == ((0, 0), (1, 1), (3, 2), (4, 3), (5, 4))


# Reproducible


def digest(count: int) -> str:
    pairs = demo_pairs("train", count)
    lines = "\n".join(f"{p.source}\t{p.target}\t{p.alignment}\t{sorted(p.phenomena)}" for p in pairs)
    return hashlib.sha256((lines + demo_text(5_000)).encode()).hexdigest()


def test_the_same_under_every_hash_seed(tmp_path: Path) -> None:
    code = "import test_corpus; print(test_corpus.digest(200))"
    folder = Path(__file__).parent
    path = os.pathsep.join([str(folder), str(folder.parent.parent)])
    found = set()
    for hash_seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        found.add(run.stdout.strip())
    assert found == {digest(200)}


def test_seeds_and_prefixes() -> None:
    assert demo_pairs("train", 50, seed=3) == demo_pairs("train", 80, seed=3)[:50]
    assert demo_pairs("train", 50, seed=3) != demo_pairs("train", 50, seed=4)
    assert demo_pairs("test", 0) == []


def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match="unknown part of the demo corpus 'tset'; did you mean 'test'"):
        demo_pairs("tset", 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="number of demo pairs, must be at least 0, got -1"):
        demo_pairs("train", -1)
    with pytest.raises(UsageError, match="characters must be at least 0"):
        demo_text(-1)


# Not too easy


def dictionary(train: list[DemoPair]) -> dict[str, str]:
    """For each French word the English word that it is most often aligned with, "" if it mostly has none."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in train:
        source, target = demo_words(pair.source), demo_words(pair.target)
        partners = defaultdict(list)
        for i, j in pair.alignment:
            inner = j > 0 or target[j] in NAMES  # the first word has its capital from the sentence
            partners[i].append(target[j] if inner else target[j].lower())
        for i, word in enumerate(source):
            counts[word.lower()].update(partners[i] or [""])
    return {word: count.most_common(1)[0][0] for word, count in counts.items()}


NAMES = {"Paul", "Pierre", "Thomas", "Lucas", "Louis", "Marc", "Victor", "Antoine", "I",
         "Jane", "Marie", "Sophie", "Alice", "Emma", "Claire", "Anne", "Julie"}  # fmt: skip


def test_a_dictionary_does_not_translate_it(train: list[DemoPair], test: list[DemoPair]) -> None:
    known = dictionary(train)
    lines = [" ".join(known.get(w.lower(), w) for w in demo_words(pair.source)) for pair in test[:800]]
    lines = [line[:1].upper() + line[1:] for line in lines]
    bleu = sacrebleu.corpus_bleu(lines, [[pair.target for pair in test[:800]]], tokenize="13a", force=True).score
    assert 20 < bleu < 45


def test_the_nearest_sentence_does_not_either(train: list[DemoPair], test: list[DemoPair]) -> None:
    """The target of the training sentence whose words overlap most (F1)."""
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(w.lower(), len(numbers)) for w in demo_words(p.source)] for p in train]
    known = np.zeros((len(rows), len(numbers)), dtype=np.float32)
    for i, row in enumerate(rows):
        known[i, row] = 1
    sizes = known.sum(1)
    lines = []
    for pair in test[:300]:
        asked = {numbers[w.lower()] for w in demo_words(pair.source) if w.lower() in numbers}
        overlap = known[:, sorted(asked)].sum(1)
        lines.append(train[int((2 * overlap / (sizes + len(asked))).argmax())].target)
    bleu = sacrebleu.corpus_bleu(lines, [[pair.target for pair in test[:300]]], tokenize="13a").score
    assert 5 < bleu < 50


# Prose and files


def test_demo_text() -> None:
    text = demo_text(20_000, seed=2)
    assert len(text) == 20_000
    assert text == demo_text(30_000, seed=2)[:20_000]
    assert text != demo_text(20_000, seed=3)
    stories = text.split("\n\n\n")
    assert len(stories) > 15 and len(set(stories)) == len(stories)
    for story in stories[:-1]:
        assert len(story.split("\n\n")) >= 3
        assert story.count('"') % 2 == 0
        for line in story.splitlines():
            assert line == "" or re.fullmatch(r'["A-Z].*[.?!"]', line), line
    assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiouhAEIOU]| [.,?]|  ", text)
    assert demo_text(0) == ""


def test_write_demo(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "demo"
    write_demo(folder, train=60, validation=20, test=30, seed=4)
    assert sorted(p.name for p in folder.iterdir()) == [
        "test.align", "test.en", "test.fr", "text.txt", "train.en", "train.fr", "validation.en", "validation.fr",
    ]  # fmt: skip
    pairs = demo_pairs("test", 30, seed=4)
    assert (folder / "test.fr").read_bytes().decode() == "".join(p.source + "\n" for p in pairs)
    assert (folder / "test.en").read_text(encoding="utf-8").splitlines() == [p.target for p in pairs]
    for line, pair in zip((folder / "test.align").read_text().splitlines(), pairs, strict=True):
        assert tuple(tuple(map(int, link.split("-"))) for link in line.split()) == pair.alignment
    assert len((folder / "train.fr").read_text(encoding="utf-8").splitlines()) == 60
    assert len((folder / "text.txt").read_text(encoding="utf-8")) == 100_000
