"""Pairs as batches: what the model reads and writes, epoch by epoch, resumed or not."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch

from regard.errors import DataError, UsageError
from regard.text.augment.word_variants import bare_letters
from regard.text.batches.batch import Batch
from regard.text.batches.pairs import PairData
from regard.text.batches.windows import WindowData
from regard.text.files.corpus import Corpus, make_corpus
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.special_tokens import END, PAD, START, UNKNOWN
from regard.text.tokenizers.subwords import SubwordTokenizer, train_subwords
from regard.text.tokenizers.tokenizer import tokenizer_files

NAMES = ["Ana", "Boris", "Chloé", "Dmitri", "Esther", "Farid", "Greta", "Hugo"]
PLACES = ["Rome", "Paris", "Oslo", "Lima", "Quito"]


@cache
def corpus() -> Corpus:
    """Pairs that share a name and often a place: 2,000."""
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


EVERYTHING = {"sampling": 0.2, "copy": 0.3, "invent": 0.3, "typed": 0.3, "join": 0.3, "bare": 0.3, "max_length": 99}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sampling": 0.2},
        {"copy": 0.5},
        {"sampling": 0.2, "copy": 0.5},
        {"shuffle": False},
        {"join": 0.3},
        EVERYTHING,
    ],
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
    assert 0 <= data.padding < 0.1


@pytest.mark.parametrize("settings", [{}, {"sampling": 0.2, "copy": 0.3}, {"join": 0.3, "bare": 0.3}, EVERYTHING])
def test_resuming_gives_the_rest(settings: dict[str, object]) -> None:
    whole = list(pairs(**settings).batches(2))
    start = sum(len(batch.ids) for batch in whole[:5])
    rest = list(pairs(**settings).batches(2, start=start))
    assert len(rest) == len(whole) - 5
    for one, other in zip(whole[5:], rest, strict=True):
        assert one.ids == other.ids
        assert one.source is not None and other.source is not None
        assert one.source.equal(other.source) and one.labels.equal(other.labels)
    with pytest.raises(UsageError, match="no batch of this epoch ends after"):
        next(pairs(**settings).batches(2, start=start + 1))


# several processes


@pytest.mark.parametrize("world", [1, 2, 3, 40])
def test_shares_make_the_whole(world: int) -> None:
    """Each process takes every world-th sample, and knows what all of them have; some have nothing."""
    text = make_corpus(["abc" * 60], name="x")
    for data in (pairs(sampling=0.2), WindowData(text, train_characters(["abc"]), context=4, batch_tokens=8)):
        whole = list(data.batches(1))
        start = len(whole[0].ids)
        shares = [list(data.batches(1, start, rank=rank, world=world)) for rank in range(world)]
        assert {len(share) for share in shares} == {len(whole) - 1}
        assert (world == 40) == any(not batch.ids for share in shares[3:] for batch in share)
        for one, *parts in zip(whole[1:], *shares, strict=True):
            assert (one.global_ids, one.global_tokens) == (one.ids, one.tokens)
            assert {(*part.global_ids,) for part in parts} == {(*one.ids,)}
            assert {part.global_tokens for part in parts} == {one.tokens}
            assert sum(part.tokens for part in parts) == one.tokens
            for rank, part in enumerate(parts):
                assert part.ids == one.ids[rank::world]
                assert (part.source is None) == (one.source is None)
                assert part.inputs.shape == part.labels.shape and len(part.labels) == len(part.ids)
                width = part.labels.shape[1]
                assert part.labels.equal(one.labels[rank::world, :width])
                assert part.inputs.equal(one.inputs[rank::world, :width])
                assert bool((one.labels[rank::world, width:] == PAD).all())


def test_where_a_pair_stands() -> None:
    assert pairs().location(7, 3) == "made:8"


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
    some = [7, 1024 + 3, 1999, 0]
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
    count = 1024 + 40
    same = make_corpus(["Chloé habite"] * count, ["Chloé habite"] * count, name="x")
    drawn = rows(list(PairData(same, subwords(kind), subwords(kind), batch_tokens=512, sampling=0.3).batches(0)))
    assert any(source != labels[:-1] for source, labels in drawn.values())
    assert len({str(source) for source, _ in drawn.values()}) > 1
    assert [drawn[i] for i in range(40)] != [drawn[1024 + i] for i in range(40)]


FRESH = """
import sys
from regard.text.files.corpus import read_parallel
from regard.text.batches.pairs import PairData
from regard.text.tokenizers.tokenizer import read_tokenizers
folder = sys.argv[1]
corpus = read_parallel(folder + "/a", folder + "/b")
settings = {SETTINGS}
data = PairData(corpus, *read_tokenizers(folder), batch_tokens=512, seed=1, **settings)
for batch in data.batches(1):
    print(batch.ids, batch.source.tolist(), batch.labels.tolist())
"""


def test_another_process_makes_the_same_batches(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n".join(corpus().source), encoding="utf-8")
    (tmp_path / "b").write_text("\n".join(corpus().target or []), encoding="utf-8")
    for name, content in tokenizer_files(subwords(), subwords()).items():
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-c", FRESH.replace("{SETTINGS}", repr(EVERYTHING)), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    batches = pairs(**EVERYTHING).batches(1)
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
        assert len(word) >= 3 or word.isdigit()
        assert subwords().decode(source, unknown=[word]).split() == before
        assert subwords().decode(labels, unknown=[word]).split() == after
        places.add(word)
    assert places == {*NAMES, *PLACES, *map(str, range(37))}


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


# text as people type it


def words_of(tokens: list[int]) -> list[str]:
    return subwords().decode(tokens, unknown=["?"] * 9).split()


def test_invented_words_stand_on_both_sides() -> None:
    got = rows(list(pairs(invent=1.0).batches(0)))
    other = rows(list(pairs(invent=1.0).batches(1)))
    made = set()
    for i, (source, labels) in got.items():
        before, after = corpus().source[i].split(), (corpus().target or [])[i].split()
        sides = list(zip(before, words_of(source), strict=True)), list(zip(after, words_of(labels), strict=True))
        changes = [{(old, new) for old, new in side if old != new} for side in sides]
        assert changes[0] == changes[1] and len(changes[0]) <= 1  # none: a number that was drawn again
        made |= changes[0]
    assert {old for old, _ in made} == {*NAMES, *PLACES, *map(str, range(37))}
    assert len(made) > 200 and got != other


def test_what_is_invented_for_rare_names_stands_in_the_place_of_a_frequent_one() -> None:
    """Otherwise a model learns the few inventions for the frequent one by heart, and not to copy."""
    names = ["Tom"] * 400 + [f"{a}{b}o" for a in "BCDFGLMNPR" for b in "aeiou"]
    texts = make_corpus([f"{name} dort" for name in names], [f"{name} sleeps" for name in names], name="x")
    tokenizer = train_subwords([*texts.source, *(texts.target or [])], size=None, kind="unigram", lossless=False)
    data = PairData(texts, tokenizer, tokenizer, batch_tokens=100, invent=1.0)
    found = rows(list(data.batches(0)))
    made = {tokenizer.decode(source).split()[0] for i, (source, _) in found.items() if i < 400}
    assert len(made) > 100


def test_sources_as_people_type_them() -> None:
    got = rows(list(pairs(typed=0.8).batches(0)))
    kinds = Counter()
    for i, (source, labels) in got.items():
        text, typed = corpus().source[i], subwords().decode(source)
        assert subwords().decode(labels) == (corpus().target or [])[i]
        kinds[next(name for name, vary in KINDS.items() if vary(text) == typed)] += 1
    assert kinds["as it is"] / len(got) == pytest.approx(0.4, abs=0.04)  # ’ changes nothing here
    for name in ("small", "bare", "capitals"):
        assert kinds[name] / len(got) == pytest.approx(0.2, abs=0.04)


def test_all_habits_get_their_turn() -> None:
    texts = make_corpus(["L'eau"] * 400, ["Water"] * 400, name="x")
    tokenizer = train_subwords([*texts.source, "Water l’", "LUE"], size=None, kind="unigram", lossless=False)
    data = PairData(texts, tokenizer, tokenizer, batch_tokens=100, typed=1.0)
    found = Counter(tokenizer.decode(source) for source, _ in rows(list(data.batches(0))).values())
    assert found.keys() == {"l'eau", "L'EAU", "L’eau"}
    assert found["L’eau"] / 400 == pytest.approx(0.25, abs=0.08)


KINDS = {"as it is": str, "small": str.lower, "capitals": str.upper, "bare": bare_letters}


def test_all_changes_keep_within_the_limit() -> None:
    """What would be too long after a change goes without it, on both sides."""
    usual = pairs()
    limit = int(max(side.lengths.max() for side in usual.rows)) + 1
    settings = {**EVERYTHING, "typed": 1.0, "max_length": limit}
    data = pairs(**settings)
    assert len(data) == len(corpus())
    assert all(
        batch.source is not None and max(batch.source.shape[1], batch.labels.shape[1]) <= limit
        for batch in data.batches(0)
    )


def test_joined_pairs_carry_the_number_of_the_first() -> None:
    got = rows(list(pairs(join=0.5, max_length=200).batches(2)))
    longer = 0
    for i, (source, labels) in got.items():
        text, rest = subwords().decode(source), corpus().source[i]
        assert text.startswith(rest) and subwords().decode(labels).startswith((corpus().target or [])[i])
        longer += text != rest
    assert longer / len(got) == pytest.approx(0.5, abs=0.05)


# lengths


def test_long_pairs_are_left_out_and_counted() -> None:
    characters = train_characters(["ab"])
    texts = make_corpus(["a", "aaaa", "a", "a" * 10**6, "aa"], ["b", "b", "bbbb", "b", "bb"], name="x")
    data = PairData(texts, characters, characters, batch_tokens=100, max_length=4)
    assert data.samples.tolist() == [0, 4]  # aaaa or bbbb and its end token are five
    assert (data.too_long.count, data.too_long.locations) == (3, ["x:2", "x:3", "x:4"])
    assert sorted(i for ids in data.plan(0) for i in ids) == [0, 4]
    assert len(data) == 2
    assert PairData(texts, characters, characters, batch_tokens=5).samples.tolist() == [0, 1, 2, 4]
    with pytest.raises(DataError, match=r"x:1: this pair and all others \(5 in all\) have more than 1 tokens"):
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
    for wrong in ({"copy": 0.1}, {"sampling": 0.1}, {"join": 0.1}, {"bare": 0.1}, {"typed": 0.1}, {"invent": 0.1}):
        with pytest.raises(UsageError, match="needs subword tokenizers"):
            PairData(one, characters, characters, batch_tokens=9, **wrong)
    with pytest.raises(UsageError, match="target side"):
        PairData(make_corpus(["a"], name="x"), characters, characters, batch_tokens=9)


# kept tokens


class Silent(SubwordTokenizer):
    """A tokenizer that must not be asked for anything."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        raise AssertionError("tokenised again")

    def cut(self, text: str) -> list[str]:
        raise AssertionError("cut into words again")


def everything(data: PairData) -> list[object]:
    return [(b.ids, b.tokens, b.source.tolist(), b.labels.tolist()) for b in data.batches(1) if b.source is not None]


def test_a_second_start_tokenises_nothing(tmp_path: Path) -> None:
    settings = EVERYTHING
    without = pairs(**settings)
    first = pairs(**settings, cache=tmp_path)
    silent = Silent(subwords().save()[1])
    second = PairData(corpus(), silent, silent, batch_tokens=512, seed=1, **settings, cache=tmp_path)
    assert everything(first) == everything(second) == everything(without)
    assert first.fingerprint == second.fingerprint == without.fingerprint
    assert second.samples.tolist() == without.samples.tolist()


def test_kept_tokens_of_something_else_are_not_used(tmp_path: Path) -> None:
    settings = {"sampling": 0.2, "copy": 0.3}
    pairs(**settings, cache=tmp_path)
    assert everything(pairs(sampling=0.4, copy=0.3, cache=tmp_path)) == everything(pairs(sampling=0.4, copy=0.3))
    assert everything(pairs(copy=0.3, cache=tmp_path)) == everything(pairs(copy=0.3))
    one = corpus()
    changed = make_corpus([*one.source[:-1], "Ana habite à Lima"], [*(one.target or [])[:-1], "in Lima"], name="made")
    for texts, tokenizer in ((changed, subwords()), (one, subwords("bpe"))):
        pairs(**settings, cache=tmp_path)
        both = PairData(texts, tokenizer, tokenizer, batch_tokens=512, seed=1, cache=tmp_path, **settings)
        alone = PairData(texts, tokenizer, tokenizer, batch_tokens=512, seed=1, **settings)
        assert everything(both) == everything(alone)
        assert both.fingerprint == alone.fingerprint


def test_damaged_tokens_are_made_anew(tmp_path: Path) -> None:
    settings = {"sampling": 0.2, "copy": 0.3}
    expected = everything(pairs(**settings, cache=tmp_path))
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(files) > 15
    for path in files:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 8
        path.write_bytes(content)
    assert everything(pairs(**settings, cache=tmp_path)) == expected


# devices and threads


def test_tokens_can_lie_on_a_device() -> None:
    """The device "meta" has shapes and no values: whatever it is asked to do, nothing may come back to the CPU."""
    for settings in ({}, {"sampling": 0.2}, {"bucketed": True}, {"join": 0.3}, {"bare": 0.3}):
        here, there = pairs(**settings), pairs(**settings)
        there.move("meta")
        for one, other in zip(here.batches(1), there.batches(1), strict=True):
            assert (one.ids, one.tokens, one.global_tokens) == (other.ids, other.tokens, other.global_tokens)
            assert one.source is not None and other.source is not None
            assert one.source.shape == other.source.shape
            assert one.labels.shape == other.labels.shape
            assert {tensor.device.type for tensor in (other.source, other.inputs, other.labels)} == {"meta"}
        assert there.fingerprint == here.fingerprint
    sizes = sum(side.flat.nbytes + 16 * len(side) for side in pairs().rows)
    assert pairs().size == 2 * sizes  # two epochs


def test_the_next_epoch_is_drawn_while_this_one_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    data, drawn = pairs(sampling=0.2), []
    ahead = threading.Event()
    draw = PairData._augmented

    def watched(self: PairData, epoch: int) -> object:
        drawn.append(epoch)
        if epoch == 1:
            ahead.set()
        return draw(self, epoch)

    monkeypatch.setattr(PairData, "_augmented", watched)
    batches = data.batches(0)
    next(batches)
    assert drawn == [0]  # a single batch, as for a forecast, draws nothing more
    next(batches)
    assert ahead.wait(10)
    list(batches)
    list(data.batches(1))
    assert drawn.count(1) == drawn.count(0) == 1
