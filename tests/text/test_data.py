"""Pairs and windows as batches: what the model reads and writes, epoch by epoch, resumed or not."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import DataError, UsageError
from regard.text.batching import Batch
from regard.text.characters import train_characters
from regard.text.corpus import Corpus, make_corpus
from regard.text.data import BLOCK, PairData, WindowData
from regard.text.special import END, PAD, START, UNKNOWN
from regard.text.subwords import SubwordTokenizer, train_subwords
from regard.text.tokenizer import tokenizer_files

NAMES = ["Ana", "Boris", "Chloé", "Dmitri", "Esther", "Farid", "Greta", "Hugo"]
PLACES = ["Rome", "Paris", "Oslo", "Lima", "Quito"]


@cache
def corpus() -> Corpus:
    """Pairs that share a name and often a place: 2,000, which is more than one block."""
    source, target = [], []
    for i in range(2000):
        name, place = NAMES[i % 8], PLACES[i % 5]
        again = f" et {name}" if i % 9 == 0 else ""
        source.append(f"{name}{again} habite à {place} depuis {i % 37} ans" + " déjà" * (i % 4))
        target.append(f"{name} has lived in {place} for {i % 37} years" + " already" * (i % 4))
    return make_corpus(source, target, name="made")


@cache
def subwords(kind: str = "unigram") -> SubwordTokenizer:
    return train_subwords([*corpus().source, *(corpus().target or [])], size=None, kind=kind, lossless=False)


def pairs(**settings: object) -> PairData:
    return PairData(corpus(), subwords(), subwords(), **{"batch_tokens": 512, "seed": 1, **settings})


def rows(batches: list[Batch]) -> dict[int, tuple[list[int], list[int]]]:
    """Sample id to the source and the labels that its batch has, without padding."""
    got = {}
    for batch in batches:
        assert batch.source is not None
        for i, source, labels in zip(batch.ids, batch.source.tolist(), batch.labels.tolist(), strict=True):
            assert i not in got
            got[i] = [token for token in source if token], [token for token in labels if token]
    return got


def test_a_batch_by_hand() -> None:
    characters = train_characters(["abc"])  # a 4, b 5, c 6
    data = PairData(make_corpus(["ab", "c"], ["c", "ba"], name="x"), characters, characters, batch_tokens=100)
    batch = data.collate([1, 0], 0)
    assert batch.ids == [1, 0]
    assert batch.source is not None and batch.source.tolist() == [[6, END, PAD], [4, 5, END]]
    assert batch.inputs.tolist() == [[START, 5, 4], [START, 6, PAD]]
    assert batch.labels.tolist() == [[5, 4, END], [6, END, PAD]]
    assert batch.tokens == 5
    assert {batch.source.dtype, batch.inputs.dtype, batch.labels.dtype} == {torch.long}


@pytest.mark.parametrize(
    "settings", [{}, {"sampling": 0.2}, {"copy": 0.5}, {"sampling": 0.2, "copy": 0.5}, {"shuffle": False}]
)
def test_an_epoch(settings: dict[str, object]) -> None:
    """Every pair once, within the limit; the labels are the inputs moved by one."""
    data = pairs(**settings)
    batches = list(data.batches(3))
    assert [batch.ids for batch in batches] == data.plan(3)
    assert rows(batches).keys() == set(range(len(corpus())))
    for batch in batches:
        assert batch.source is not None
        assert max(batch.source.numel(), batch.labels.numel()) <= 512
        assert batch.tokens == int((batch.labels != PAD).sum())
        assert batch.inputs.shape == batch.labels.shape
        assert bool((batch.inputs[:, 0] == START).all())
        moved = batch.labels[:, :-1].masked_fill(batch.labels[:, :-1] == END, PAD)
        assert batch.inputs[:, 1:].equal(moved)
    assert len(data) == len(corpus())
    assert 0 <= data.padding < 0.05


@pytest.mark.parametrize("settings", [{}, {"sampling": 0.2, "copy": 0.3}])
def test_resuming_gives_the_rest(settings: dict[str, object]) -> None:
    whole = list(pairs(**settings).batches(2))
    start = sum(len(batch.ids) for batch in whole[:5])
    rest = list(pairs(**settings).batches(2, start=start))
    assert len(rest) == len(whole) - 5
    for one, other in zip(whole[5:], rest, strict=True):
        assert one.ids == other.ids
        assert one.source is not None and other.source is not None
        assert one.source.equal(other.source) and one.labels.equal(other.labels)
    with pytest.raises(UsageError, match="not at the end of a batch"):
        next(pairs(**settings).batches(2, start=start + 1))


# subword sampling


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_pieces_are_a_function_of_seed_epoch_and_sample(kind: str) -> None:
    def data(**settings: object) -> PairData:
        both = {"batch_tokens": 512, "seed": 1, "sampling": 0.2, **settings}
        return PairData(corpus(), subwords(kind), subwords(kind), **both)

    epoch_1 = rows(list(data().batches(1)))
    assert rows(list(data(batch_tokens=2000, shuffle=False).batches(1))) == epoch_1  # however batches are made
    one = data()
    list(one.batches(0))
    list(one.batches(2))
    assert rows(list(one.batches(1))) == epoch_1  # after other draws
    some = [7, BLOCK + 3, 1999, 0]
    assert rows([one.collate(some, 1)]) == {i: epoch_1[i] for i in some}
    usual = rows(list(data(sampling=0.0).batches(1)))
    others = [rows(list(data().batches(2))), rows(list(data(seed=2).batches(1))), usual]
    for other in others:
        changed = sum(other[i][0] != epoch_1[i][0] for i in epoch_1)
        assert 0.1 * len(epoch_1) < changed
    for i, (source, labels) in epoch_1.items():
        assert subwords(kind).decode(source) == corpus().source[i]
        assert subwords(kind).decode(labels) == (corpus().target or [])[i]
    # the sides of a pair, and the same sentence in two places, are drawn apart
    count = BLOCK + 40
    same = make_corpus(["Chloé habite"] * count, ["Chloé habite"] * count, name="x")
    drawn = rows(list(PairData(same, subwords(kind), subwords(kind), batch_tokens=512, sampling=0.3).batches(0)))
    assert any(source != labels[:-1] for source, labels in drawn.values())
    assert len({str(source) for source, _ in drawn.values()}) > 1
    assert [drawn[i] for i in range(40)] != [drawn[BLOCK + i] for i in range(40)]


FRESH = """
import sys
from regard.text.corpus import read_parallel
from regard.text.data import PairData
from regard.text.tokenizer import read_tokenizers
folder = sys.argv[1]
corpus = read_parallel(folder + "/a", folder + "/b")
data = PairData(corpus, *read_tokenizers(folder), batch_tokens=512, seed=1, sampling=0.2, copy=0.3)
for batch in data.batches(1):
    print(batch.ids, batch.source.tolist(), batch.labels.tolist())
"""


def test_another_process_makes_the_same_batches(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n".join(corpus().source), encoding="utf-8")
    (tmp_path / "b").write_text("\n".join(corpus().target or []), encoding="utf-8")
    for name, content in tokenizer_files(subwords(), subwords()).items():
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-c", FRESH, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    batches = pairs(sampling=0.2, copy=0.3).batches(1)
    here = [f"{b.ids} {b.source.tolist()} {b.labels.tolist()}" for b in batches if b.source is not None]
    assert done.stdout.splitlines() == here


# words that are copied


def test_shared_words_become_unknown_on_both_sides() -> None:
    got = rows(list(pairs(copy=1.0).batches(0)))
    places = set()
    for i, (source, labels) in got.items():
        assert source.count(UNKNOWN) == labels.count(UNKNOWN) == 1
        before, after = corpus().source[i].split(), (corpus().target or [])[i].split()
        left = [subwords().decode(source).split(), subwords().decode(labels).split()]
        gone = [word for word in before if before.count(word) > left[0].count(word)]
        assert gone and set(gone) == {word for word in after if after.count(word) > left[1].count(word)}
        word = gone[0]
        assert before.count(word) == after.count(word) == 1  # the name that stands twice is left alone
        assert len(word) >= 3
        assert subwords().decode(source, unknown=[word]).split() == before
        assert subwords().decode(labels, unknown=[word]).split() == after
        places.add(word)
    assert places == {*NAMES, *PLACES}


def test_the_share_of_copies() -> None:
    for share in (0.1, 0.5):
        got = rows(list(pairs(copy=share).batches(0)))
        assert sum(UNKNOWN in source for source, _ in got.values()) / len(got) == pytest.approx(share, abs=0.04)
        other = rows(list(pairs(copy=share).batches(1)))
        assert {i for i in got if UNKNOWN in got[i][0]} != {i for i in other if UNKNOWN in other[i][0]}
    assert not any(UNKNOWN in source for source, _ in rows(list(pairs().batches(0))).values())


def test_pairs_that_share_no_word_stay() -> None:
    texts = make_corpus(["il a un chat", "oh"], ["he has a cat", "oh"], name="x")
    tokenizer = train_subwords([*texts.source, *(texts.target or [])], size=None, kind="bpe", lossless=False)
    data = PairData(texts, tokenizer, tokenizer, batch_tokens=100, copy=1.0)
    assert all(UNKNOWN not in source + labels for source, labels in rows(list(data.batches(0))).values())


# lengths


def test_long_pairs_are_left_out_and_counted() -> None:
    characters = train_characters(["ab"])
    texts = make_corpus(["a", "aaaa", "a", "a" * 10**6, "aa"], ["b", "b", "bbbb", "b", "bb"], name="x")
    data = PairData(texts, characters, characters, batch_tokens=100, max_length=4)
    assert data.kept.tolist() == [0, 4]  # aaaa or bbbb and its end token are five
    assert (data.too_long.count, data.too_long.places) == (3, ["x:2", "x:3", "x:4"])
    assert sorted(i for ids in data.plan(0) for i in ids) == [0, 4]
    assert len(data) == 2
    assert PairData(texts, characters, characters, batch_tokens=5).kept.tolist() == [0, 1, 2, 4]
    with pytest.raises(DataError, match=r"x:1: this pair and all 5 have more than 1 tokens on a side"):
        PairData(texts, characters, characters, batch_tokens=100, max_length=1)


def test_drawn_pieces_keep_within_the_limit() -> None:
    usual = pairs()
    limit = int(max(side.lengths.max() for side in usual.rows)) + 1
    free = rows(list(pairs(sampling=0.05).batches(0)))
    assert max(len(source) for source, _ in free.values()) > limit
    kept = rows(list(pairs(sampling=0.05, max_length=limit).batches(0)))
    assert len(kept) == len(corpus())
    assert max(max(len(source), len(labels)) for source, labels in kept.values()) <= limit


def test_fingerprints() -> None:
    assert pairs().fingerprint == pairs(seed=9, batch_tokens=900, sampling=0.3).fingerprint
    assert pairs().fingerprint != pairs(max_length=int(pairs().rows[1].lengths.max())).fingerprint
    other = PairData(corpus(), subwords("bpe"), subwords("bpe"), batch_tokens=512)
    assert pairs().fingerprint != other.fingerprint


def test_settings_that_make_no_sense() -> None:
    characters = train_characters(["ab"])
    one = make_corpus(["a"], ["b"], name="x")
    for wrong in ({"copy": 1.5}, {"sampling": -0.1}):
        with pytest.raises(UsageError, match="between 0 and 1"):
            pairs(**wrong)
    for wrong in ({"copy": 0.1}, {"sampling": 0.1}):
        with pytest.raises(UsageError, match="for subwords"):
            PairData(one, characters, characters, batch_tokens=9, **wrong)
    with pytest.raises(UsageError, match="target side"):
        PairData(make_corpus(["a"], name="x"), characters, characters, batch_tokens=9)


# windows


def windows(texts: list[str], **settings: object) -> WindowData:
    return WindowData(make_corpus(texts, name="x"), train_characters(["abc\n"]), **{"batch_tokens": 8, **settings})


def test_windows_by_hand() -> None:
    """abc and ba, letters from 5 on: START a b c | START b a to a b c END | b a END, cut at 4."""
    data = windows(["abc", "ba"], context=4, shuffle=False)
    batch = data.collate([0, 1], 0)
    assert batch.source is None
    assert batch.inputs.tolist() == [[START, 5, 6, 7], [START, 6, 5, PAD]]
    assert batch.labels.tolist() == [[5, 6, 7, END], [6, 5, END, PAD]]
    assert (batch.tokens, data.tokens, len(data)) == (7, 7, 2)


@given(
    texts=st.lists(st.text("abc\n", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=4),
    context=st.integers(1, 8),
    epoch=st.integers(0, 4),
    shuffle=st.booleans(),
)
def test_every_token_is_predicted_once(texts: list[str], context: int, epoch: int, shuffle: bool) -> None:
    data = windows(texts, context=context, shuffle=shuffle, seed=3)
    tokenizer = train_characters(["abc\n"])
    stream = [(before, after) for text in texts for before, after in _steps(tokenizer.encode(text))]
    got: dict[int, list[tuple[int, int]]] = {}
    for batch in data.batches(epoch):
        assert batch.labels.numel() <= 8
        assert batch.tokens == int((batch.labels != PAD).sum())
        for i, inputs, labels in zip(batch.ids, batch.inputs.tolist(), batch.labels.tolist(), strict=True):
            got[i] = [(a, b) for a, b in zip(inputs, labels, strict=True) if b != PAD]
            assert 1 <= len(got[i]) <= context
    assert [step for i in sorted(got) for step in got[i]] == stream
    assert data.tokens == len(stream)
    assert len(data) <= len(got) <= len(data) + 1
    assert shuffle or len(got) == len(data)


def _steps(tokens: list[int]) -> list[tuple[int, int]]:
    return list(zip([START, *tokens], [*tokens, END], strict=True))


def test_the_first_cut_moves_from_epoch_to_epoch() -> None:
    data = windows(["abc" * 100], context=8, seed=1)
    firsts = [int((data.collate([0], epoch).labels != PAD).sum()) for epoch in range(60)]
    assert set(firsts) == set(range(1, 9))
    assert firsts == [int((data.collate([0], epoch).labels != PAD).sum()) for epoch in range(60)]
    still = windows(["abc" * 100], context=8, shuffle=False)
    assert {still.collate([0], epoch).tokens for epoch in range(9)} == {8}
    assert data.plan(0) != data.plan(1)


def test_windows_resume() -> None:
    whole = list(windows(["abc" * 100], context=4).batches(1))
    start = sum(len(batch.ids) for batch in whole[:7])
    rest = list(windows(["abc" * 100], context=4).batches(1, start=start))
    assert [batch.ids for batch in rest] == [batch.ids for batch in whole[7:]]
    assert all(one.labels.equal(other.labels) for one, other in zip(rest, whole[7:], strict=True))


def test_documents_are_cut_by_lines_into_the_same_pieces() -> None:
    text = "the cat\n\n\tsat  on the mat\nthe end"
    for kind in ("unigram", "bpe"):
        tokenizer = train_subwords([text] * 9, size=None, kind=kind, lossless=True)
        data = WindowData(make_corpus([text], name="x"), tokenizer, context=99, batch_tokens=99, shuffle=False)
        batch = next(data.batches(0))
        assert batch.labels.tolist() == [[*tokenizer.encode(text), END]]
        assert tokenizer.decode(batch.inputs[0].tolist()) == text


def test_window_settings_that_make_no_sense() -> None:
    for context in (0, 9):
        with pytest.raises(UsageError, match=rf"between 1 and batch_tokens \(8\), got {context}"):
            windows(["abc"], context=context)
    with pytest.raises(UsageError, match="needs a lossless tokenizer"):
        WindowData(make_corpus(["abc"], name="x"), subwords(), context=8, batch_tokens=8)
    assert windows(["abc"], context=4).fingerprint == windows(["abc"], context=3, seed=4).fingerprint
    assert windows(["abc"], context=4).fingerprint != windows(["ab", "c"], context=4).fingerprint
