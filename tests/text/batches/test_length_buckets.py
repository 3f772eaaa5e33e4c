"""Few shapes: the best buckets, and batches that are the same but for padding."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies as st

from regard.text.batches import length_buckets
from regard.text.batches.batch import Batch
from regard.text.batches.length_buckets import choose_buckets, pad_rows
from regard.text.batches.pairs import PairData
from regard.text.batches.windows import WindowData
from regard.text.files.corpus import make_corpus
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.special_tokens import END, PAD, START, UNKNOWN
from regard.text.tokenizers.subwords import train_subwords

from ...repeats import by_default


def cells(lengths: list[int], buckets: list[int]) -> int:
    return sum(min(bucket for bucket in buckets if bucket >= length) for length in lengths)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.integers(1, 4))
@example([1, 8], 4)  # fewer lengths than buckets
def test_the_best_ladder_of_all(lengths: list[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length_buckets, "MAX_BUCKETS", most)
        buckets = choose_buckets(np.array(lengths), limit=100)
    assert 1 <= len(buckets) <= most
    assert buckets == sorted(set(buckets))
    assert buckets[-1] - length_buckets.STEP_TOKENS < max(lengths) <= buckets[-1]
    candidates = [*range(length_buckets.STEP_TOKENS, buckets[-1], length_buckets.STEP_TOKENS)]
    every = (
        [*some, buckets[-1]]
        for size in range(min(most, len(candidates) + 1))
        for some in combinations(candidates, size)
    )
    assert cells(lengths, buckets) == min(cells(lengths, other) for other in every)


def test_ladders_of_long_texts_have_wider_steps_and_end_at_the_limit() -> None:
    lengths = np.arange(1, 5_000)
    buckets = choose_buckets(lengths, limit=4_999)
    assert len(buckets) == length_buckets.MAX_BUCKETS
    assert buckets[-1] == 4_999
    assert all(bucket % 80 == 0 for bucket in buckets[:-1])  # 64 candidates


def test_filled() -> None:
    batch = Batch([3], torch.tensor([[7, END]]), torch.tensor([[START, 8]]), torch.tensor([[8, END]]), 2)
    more = pad_rows(batch, 3)
    assert more.source is not None
    assert more.source.tolist() == [[7, END], [END, PAD], [END, PAD]]
    assert more.inputs.tolist() == [[START, 8], [START, PAD], [START, PAD]]
    assert more.labels.tolist() == [[8, END], [PAD, PAD], [PAD, PAD]]
    assert (more.ids, more.tokens, more.fixed, batch.fixed) == ([3], 2, True, False)
    assert (more.global_ids, more.global_tokens) == ([3], 2)


def made(**settings: object) -> PairData:
    names = ["Ana", "Boris", "Chloé", "Dmitri"]
    source = [f"{names[i % 4]} habite à Rome depuis {i} ans" + " déjà" * (i % 23) for i in range(600)]
    target = [f"{names[i % 4]} has lived in Rome for {i} years" + " already" * (i % 19) for i in range(600)]
    tokenizer = train_subwords([*source, *target], size=None, kind="unigram", lossless=False)
    both = make_corpus(source, target, name="x")
    return PairData(both, tokenizer, tokenizer, **{"batch_tokens": 512, "seed": 2, **settings})  # type: ignore[arg-type]


def cut(batch: Batch, width: int) -> Batch:
    """The rows that are none of padding, and the columns up to that width; the rest is padding."""
    rows = len(batch.ids)
    assert bool((batch.labels[rows:] == PAD).all()) and bool((batch.labels[:, width:] == PAD).all())
    assert bool((batch.inputs[:, width:] == PAD).all())
    return Batch(batch.ids, None, batch.inputs[:rows, :width], batch.labels[:rows, :width], batch.tokens)


@pytest.mark.parametrize("sampling", by_default({0.1}, [0.0, 0.1]))
@pytest.mark.parametrize("world", [1, 3])
def test_pairs_in_few_shapes(sampling: float, world: int) -> None:
    data, free = made(sampling=sampling, bucketed=True), made(sampling=sampling)
    assert data.buckets is not None
    seen = set()
    for epoch in range(3):
        ids: list[int] = []
        shares = [data.batches(epoch, rank=rank, world=world) for rank in range(world)]
        for parts in zip(*shares, strict=True):
            ids += parts[0].global_ids
            assert len({part.labels.shape for part in parts}) == 1
            for part in parts:
                assert part.fixed
                assert part.source is not None and part.source.shape == part.inputs.shape == part.labels.shape
                seen.add(part.labels.shape)
                assert part.labels.shape[0] * world <= 512 // part.labels.shape[1] + world - 1
                assert part.tokens == int((part.labels != PAD).sum())
            if not sampling:  # then those that are too long for the buckets are the same as well
                part = parts[-1]
                alone = free.collate(part.ids, epoch)
                assert alone.source is not None and part.source is not None
                same = cut(part, alone.labels.shape[1])
                assert same.labels.equal(alone.labels) and same.inputs.equal(alone.inputs)
                width = alone.source.shape[1]
                assert part.source[: len(part.ids), :width].equal(alone.source)
                assert bool((part.source[: len(part.ids), width:] == PAD).all())
        assert sorted(ids) == list(range(600))
    assert 2 < len(seen) <= len(data.buckets) <= length_buckets.MAX_BUCKETS
    cell_count = sum(batch.labels.numel() * 2 for batch in data.batches(0))
    tokens = sum(
        int((one[: len(batch.ids)] != PAD).sum()) for batch in data.batches(0) for one in (batch.source, batch.labels)
    )  # type: ignore[index]
    if world == 1:
        assert data.padding == pytest.approx(1 - tokens / cell_count)


def test_more_samples_than_a_batch_has_rows() -> None:
    """Only who asks for them gets them, and the shape is one more."""
    data = made(bucketed=True)
    assert data.collate(range(600), 0).labels.shape[0] == 600
    text = make_corpus(["abc" * 50], name="x")
    windows = WindowData(text, train_characters(["abc"]), context=8, batch_tokens=50, bucketed=True)
    assert windows.collate(range(9), 0).labels.shape == (9, 8)


@pytest.mark.parametrize("sources", [["abc"] * 9, ["abc"] * 5 + ["abcabcabc"] * 4])
def test_pairs_know_whether_all_batches_have_one_shape(sources: list[str]) -> None:
    letters, both = train_characters(["abc"]), make_corpus(sources, ["cab"] * 9, name="x")
    for fixed in (False, True):
        data = PairData(both, letters, letters, batch_tokens=20, bucketed=fixed)
        found = {batch.labels.shape for batch in data.batches(0)}
        assert data.one_shape == (fixed and len(set(sources)) == 1)
        assert not data.one_shape or len(found) == 1


def test_pairs_that_were_short_in_the_first_epoch() -> None:
    """A long word that both sides have is hidden in some epochs: a bucket fits the whole pair."""
    word = "qwertzuiopasdfgh" * 3
    source, target = [*["le chat"] * 9, f"le {word}"], [*["the cat"] * 9, f"the {word}"]
    tokenizer = train_subwords([*source[:9], *target[:9]], size=None, kind="bpe", lossless=False)
    hidden = []
    for seed in range(6):
        both = make_corpus(source, target, name="x")
        data = PairData(both, tokenizer, tokenizer, batch_tokens=200, seed=seed, copy=0.5, bucketed=True)
        for epoch in range(6):
            batches = list(data.batches(epoch))
            (longest,) = (batch for batch in batches if 9 in batch.ids)
            assert longest.labels.shape[1] <= (data.buckets or [])[-1]
            hidden.append(bool((longest.labels[longest.ids.index(9)] == UNKNOWN).any()))
    assert 0 < sum(hidden[::6]) < 6  # in some first epochs


def test_windows_in_one_shape() -> None:
    text = make_corpus(["abc" * 50, "cab" * 9], name="x")
    data = WindowData(text, train_characters(["abc"]), context=8, batch_tokens=50, seed=1, bucketed=True)
    free = WindowData(text, train_characters(["abc"]), context=8, batch_tokens=50, seed=1)
    for epoch in range(3):
        ids: list[int] = []
        for batch in data.batches(epoch):
            assert batch.labels.shape == batch.inputs.shape == (6, 8)
            assert batch.fixed
            alone = free.collate(batch.ids, epoch)
            same = cut(batch, alone.labels.shape[1])
            assert same.labels.equal(alone.labels) and same.inputs.equal(alone.inputs)
            assert (batch.tokens, batch.global_tokens) == (alone.tokens, alone.tokens)
            ids += batch.ids
        assert sorted(ids) == list(range(len(ids)))
    for batch in data.batches(0, rank=1, world=4):
        assert batch.labels.shape == (2, 8)
    # two short windows that would go together, and a text shorter than a window
    for texts in (["abc" * 50, "cab" * 9], ["ab"]):
        text = make_corpus(texts, name="x")
        data = WindowData(text, train_characters(["abc"]), context=8, batch_tokens=8, seed=1, bucketed=True)
        assert {batch.labels.shape for epoch in range(4) for batch in data.batches(epoch)} == {(1, 8)}
