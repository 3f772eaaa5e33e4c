"""Batches: every sample once, within the limit, little padding, the same order for the same seed and epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import UsageError
from regard.text.batches.batch import Batch, Sampler, TokenRows, batches_from
from regard.text.random_streams import random_fractions, random_keys
from regard.text.tokenizers.special_tokens import pad_batch

pair_lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 31)), max_size=60)


@given(lengths=pair_lengths, seed=st.integers(0, 2**32), epoch=st.integers(0, 9), shuffle=st.booleans())
def test_every_sample_once_and_within_the_limit(
    lengths: list[tuple[int, int]], seed: int, epoch: int, shuffle: bool
) -> None:
    array = np.array(lengths, dtype=np.int64).reshape(-1, 2)
    sampler = Sampler(array, batch_tokens=64, seed=seed, shuffle=shuffle)
    batches = sampler.batches(epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch
        assert len(batch) * max(max(lengths[i]) for i in batch) <= 64
    again = Sampler(array, batch_tokens=64, seed=seed, shuffle=shuffle)
    assert again.batches(epoch) == batches
    assert len(sampler) == len(lengths)
    longest = [[max(lengths[i][side] for i in batch) for side in (0, 1)] for batch in sampler.batches(0)]
    cells = sum(len(batch) * sum(sides) for batch, sides in zip(sampler.batches(0), longest, strict=True))
    assert sampler.padding == pytest.approx(1 - sum(map(sum, lengths)) / cells if cells else 0.0)


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=40), epoch=st.integers(0, 3), data=st.data())
def test_resuming_at_any_batch_gives_the_rest(lengths: list[int], epoch: int, data: st.DataObject) -> None:
    batches = Sampler(lengths, batch_tokens=30, seed=1).batches(epoch)
    done = data.draw(st.integers(0, len(batches)))
    start = sum(map(len, batches[:done]))
    assert batches_from(batches, start) == batches[done:]


def test_a_cursor_inside_a_batch_is_refused() -> None:
    for start in (1, 4, 6, 99):
        with pytest.raises(UsageError, match=f"no batch of this epoch ends after {start} samples"):
            batches_from([[0, 1], [2], [3, 4]], start)


def test_seeds_and_epochs_give_other_orders() -> None:
    lengths = [5, 6, 7, 8] * 50
    orders = {
        str(Sampler(lengths, batch_tokens=40, seed=seed).batches(epoch)) for seed in (0, 1) for epoch in (0, 1, 2)
    }
    assert len(orders) == 6
    # seed and epoch are no sum: (0, 1) and (1, 0) have nothing to do with each other
    assert Sampler(lengths, batch_tokens=40, seed=0).batches(1) != Sampler(lengths, batch_tokens=40, seed=1).batches(0)


def test_the_order_is_the_same_for_ever() -> None:
    """Recorded: a run that was saved on one machine goes on on another, with another numpy."""
    assert random_keys(2, 1, 2).tolist() == [8271799387826207682, 7948369750201702571]
    order = Sampler([3, 1, 2, 3, 1, 2, 3, 3], batch_tokens=6, seed=5).batches(2)
    assert order == [[6, 0], [2, 7], [3], [4, 1, 5]]


def test_without_shuffle_shortest_first() -> None:
    sampler = Sampler([3, 1, 2, 1], batch_tokens=4, seed=0, shuffle=False)
    assert sampler.batches(0) == sampler.batches(7) == [[1, 3], [2], [0]]


def test_batches_come_in_random_order_and_ties_too() -> None:
    sampler = Sampler([10] * 40 + [20] * 40, batch_tokens=40, seed=3)
    first, second = sampler.batches(0), sampler.batches(1)
    lengths = [sampler.lengths[batch[0]] for batch in first]
    assert lengths != sorted(lengths)
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}


def test_with_buckets_whatever_has_one_bucket_is_mixed() -> None:
    sides = np.array([(1 + i % 8, 8) for i in range(80)])
    sampler = Sampler(sides, batch_tokens=80, seed=3, buckets=[8, 16])
    assert all(len(batch) == 10 for batch in sampler.batches(0))
    assert all(len({int(sides[i, 0]) for i in batch}) > 2 for batch in sampler.batches(0))


def test_little_padding_on_both_sides() -> None:
    """Lengths like those of sentences: two sides that go together loosely."""
    draw = np.random.default_rng(0)
    source = np.clip(draw.lognormal(2.5, 0.5, 60_000), 2, 90).astype(np.int64)
    target = np.clip(source * draw.normal(1.0, 0.2, 60_000), 2, 99).astype(np.int64)
    sampler = Sampler(np.stack([source, target], axis=1), batch_tokens=4096, seed=0)
    assert sampler.padding < 0.05
    by_one_side = Sampler(np.maximum(source, target), batch_tokens=4096, seed=0).batches(0)
    cells = sum(len(batch) * int(source[batch].max() + target[batch].max()) for batch in by_one_side)
    assert (
        1 - (source.sum() + target.sum()) / cells > 2 * sampler.padding
    )  # what sorting by the longer side alone gives


def test_a_sample_longer_than_a_batch_is_refused() -> None:
    with pytest.raises(UsageError, match="sample 1 has 9 tokens, but a batch has at most batch_tokens=8"):
        Sampler([3, 9, 2], batch_tokens=8, seed=0)
    assert Sampler([3, 8, 2], batch_tokens=8, seed=0, shuffle=False).batches(0) == [[2, 0], [1]]
    assert Sampler([], batch_tokens=8, seed=0).batches(0) == []


def test_random_fractions() -> None:
    """Uniform: mean 1/2, variance 1/12, within [0, 1)."""
    drawn = random_fractions(20_000, 4)
    assert drawn.min() >= 0 and drawn.max() < 1
    assert drawn.mean() == pytest.approx(1 / 2, abs=0.01)
    assert drawn.var() == pytest.approx(1 / 12, abs=0.003)


@given(st.lists(st.lists(st.integers(4, 99), max_size=5), min_size=1, max_size=6), st.data())
def test_rows_are_padded_like_lists(sentences: list[list[int]], data: st.DataObject) -> None:
    rows = TokenRows.of(sentences)
    assert len(rows) == len(sentences)
    assert [rows[i] for i in range(len(rows))] == sentences
    ids = data.draw(st.lists(st.integers(0, len(sentences) - 1), max_size=5))
    assert rows.padded(ids).equal(pad_batch([sentences[i] for i in ids]))
    wrapped = rows.padded(ids, before=[2], after=[3, 1])
    assert wrapped.equal(pad_batch([[2, *sentences[i], 3, 1] for i in ids])) or not ids
    assert wrapped.dtype == torch.long


def test_batch_to_a_device() -> None:
    batch = Batch([0], torch.ones(1, 2).long(), torch.ones(1, 3).long(), torch.ones(1, 3).long(), 3)
    moved = batch.to("meta")
    assert moved.source is not None
    assert {moved.source.device.type, moved.inputs.device.type, moved.labels.device.type} == {"meta"}
    assert (moved.ids, moved.tokens) == ([0], 3)
    assert Batch([0], None, batch.inputs, batch.labels, 3).to("meta").source is None
    share = Batch([0], None, batch.inputs, batch.labels, 3, whole_ids=[0, 7], whole_tokens=9).to("meta")
    assert (share.whole_ids, share.whole_tokens, moved.whole_ids, moved.whole_tokens) == ([0, 7], 9, [0], 3)
