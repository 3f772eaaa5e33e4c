"""What is held out for validation, and what the tokenizers and batches are made from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.errors import DataError
from regard.tasks.corpora import split_pairs, split_text
from regard.tasks.task import Data
from regard.text.files.corpus import make_corpus, read_documents, read_parallel
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.special_tokens import PAD, UNKNOWN
from regard.training.recipe.schema import recipe_from
from regard.training.run.data import make_data


def numbered(count: int, *, copies: int = 1):
    sources = [f"phrase {i // copies}" for i in range(count)]
    return make_corpus(sources, [f"sentence {i}" for i in range(count)], name="made")


def test_held_out_pairs_are_not_trained_on() -> None:
    corpus = numbered(400)
    parts = split_pairs(corpus, 30, seed=1)
    assert len(parts.validation) == 30
    assert len(parts.train) == 370
    assert not set(parts.train.source) & set(parts.validation.source)
    both = {*zip(parts.train.source, parts.train.target, strict=True)}
    both |= {*zip(parts.validation.source, parts.validation.target, strict=True)}
    assert both == {*zip(corpus.source, corpus.target, strict=True)}


def test_copies_of_a_sentence_go_together() -> None:
    """A sentence that stands four times in the data is in one part only."""
    parts = split_pairs(numbered(400, copies=4), 30, seed=1)
    assert len(parts.validation) == 30
    assert not set(parts.train.source) & set(parts.validation.source)


def test_the_split_is_a_function_of_the_seed() -> None:
    one, same, other = (split_pairs(numbered(200), 20, seed=seed).validation.source for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_the_places_stay(tmp_path: Path) -> None:
    for side in ("fr", "en"):
        for shard in "ab":
            (tmp_path / f"{shard}.{side}").write_text("".join(f"{side} {shard} {i}\n" for i in range(1, 31)))
    sides = [[tmp_path / f"{shard}.{side}" for shard in "ab"] for side in ("fr", "en")]
    parts = split_pairs(read_parallel(*sides), 10, seed=3)
    for part in (parts.train, parts.validation):
        for i, source in enumerate(part.source):
            _, shard, line = source.split()
            assert part.location(i) == f"{tmp_path / shard}.fr:{line}"


def test_too_much_held_out() -> None:
    with pytest.raises(DataError, match=r"20 of 20 sentence pairs .* lower data\.validation"):
        split_pairs(numbered(20), 20, seed=0)
    with pytest.raises(DataError, match="every sentence pair has the same source"):
        split_pairs(make_corpus(["a"] * 9, ["b"] * 9, name="made"), 2, seed=0)


def test_the_end_of_a_text_is_held_out() -> None:
    corpus = make_corpus(["x" * 70, "y" * 30], name="made")
    parts = split_text(corpus, None)
    assert ("".join(parts.train.source), "".join(parts.validation.source)) == ("x" * 70 + "y" * 20, "y" * 10)
    parts = split_text(corpus, 40)
    assert (parts.train.source, parts.validation.source) == (["x" * 60], ["x" * 10, "y" * 30])
    with pytest.raises(DataError, match="100 of 100 characters"):
        split_text(corpus, 100)
    with pytest.raises(DataError, match="begins with blanks only"):
        split_text(make_corpus(["  abc"], name="made"), 3)


def test_the_places_of_a_text_stay(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(f"{name}\n" * 10)
    parts = split_text(read_documents([tmp_path / name for name in "abc"]), 30)
    assert [parts.train.location(i) for i in range(2)] == [f"{tmp_path}/a:1", f"{tmp_path}/b:1"]
    assert parts.train.source == ["a\n" * 10, "b\n" * 5]
    assert "".join(parts.validation.source) == "b\n" * 5 + "c\n" * 10


def demo_recipe(**tokenizer: object):
    return recipe_from(
        {
            "name": "d",
            "data": {"demo": 300, "validation": 20, "max_length": 60},
            "tokenizer": {"kind": "unigram", **tokenizer},
            "model": {"kind": "transformer"},
            "training": {"batch_tokens": 400, "steps": 5, "device": "cpu"},
        }
    )


def test_demo_parts_share_no_sentence() -> None:
    recipe = demo_recipe()
    parts = recipe.task.read(recipe)
    assert (len(parts.train), len(parts.validation), len(parts.gold or ())) == (300, 20, 20)
    assert not set(parts.train.source) & set(parts.validation.source)
    assert not set(parts.train.target) & set(parts.validation.target)


def test_shared_and_separate_vocabularies() -> None:
    shared, separate = demo_recipe(shared=True), demo_recipe(shared=False)
    corpora = shared.task.read(shared)
    source, target = shared.task.make_tokenizers(shared, corpora.train)
    assert source is target
    source, target = separate.task.make_tokenizers(separate, corpora.train)
    assert source is not target
    assert len(source.encode("Les enfants mangent.")) < len(target.encode("Les enfants mangent."))


def test_words_are_hidden_in_training_and_never_in_validation() -> None:
    recipe = demo_recipe(shared=True)
    recipe = replace(recipe, data=replace(recipe.data, copy=0.9))
    corpora = recipe.task.read(recipe)
    train, validation = make_data(recipe, corpora, *recipe.task.make_tokenizers(recipe, corpora.train))
    assert any(bool((batch.source == UNKNOWN).any()) for batch in train.batches(0))
    assert not any(bool((batch.source == UNKNOWN).any()) for batch in validation.batches(0))


def test_training_is_sampled_and_validation_never() -> None:
    recipe = demo_recipe(shared=True, sampling=0.5)
    corpora = recipe.task.read(recipe)
    tokenizers = recipe.task.make_tokenizers(recipe, corpora.train)

    def pieces(data: Data, epoch: int) -> dict[int, list[int]]:
        """Sample id to its source in that epoch, without padding."""
        batches = list(data.batches(epoch))
        return {
            i: [token for token in row if token != PAD]
            for batch in batches
            for i, row in zip(batch.ids, batch.source.tolist(), strict=True)
        }

    parts = make_data(recipe, corpora, *tokenizers)
    assert parts[0].plan(0) != parts[0].plan(1)
    assert parts[1].plan(0) == parts[1].plan(1)
    train, validation = ([pieces(part, epoch) for epoch in (0, 1)] for part in parts)
    for epoch in train:
        assert len(epoch) > 250  # of 300; the others are too long
        assert all(tokenizers[0].decode(row) == corpora.train.source[i] for i, row in epoch.items())
    assert sum(train[0][i] != train[1][i] for i in train[0]) > len(train[0]) / 2
    assert validation[0] == validation[1]


def language_model_recipe(**training: object):
    return recipe_from(
        {
            "name": "l",
            "data": {"demo": 3000, "context": 16},
            "tokenizer": {"kind": "characters"},
            "model": {"kind": "transformer-lm"},
            "training": {"batch_tokens": 64, "steps": 5, "device": "cpu", **training},
        }
    )


def test_tokens_are_kept_for_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for recipe in (demo_recipe(sampling=0.2), language_model_recipe()):
        corpora = recipe.task.read(recipe)
        tokenizers = recipe.task.make_tokenizers(recipe, corpora.train)
        cache = tmp_path / recipe.name
        first = make_data(recipe, corpora, *tokenizers, cache=cache)
        assert {path.name for path in cache.iterdir()} == {"train", "validation"}
        with monkeypatch.context() as patch:
            for name in ("encode_all", "cut"):
                patch.setattr(type(tokenizers[0]), name, None, raising=False)
            second = make_data(recipe, corpora, *tokenizers, cache=cache)
        for one, other in zip(first, second, strict=True):
            assert one.fingerprint == other.fingerprint
            for a, b in zip(one.batches(0), other.batches(0), strict=True):
                assert a.ids == b.ids and a.labels.equal(b.labels)


@pytest.mark.parametrize("setting", ["compile", "capture"])
def test_fixed_shapes_are_for_training_and_not_for_validation(setting: str) -> None:
    recipe = language_model_recipe(**{setting: True})
    corpora = recipe.task.read(recipe)
    train, validation = make_data(recipe, corpora, *recipe.task.make_tokenizers(recipe, corpora.train))
    assert {batch.labels.shape for batch in train.batches(0)} == {(4, 16)}
    assert not any(batch.fixed for batch in validation.batches(0))
    eager, _ = make_data(language_model_recipe(), corpora, train_characters(["a"]), train_characters(["a"]))
    assert not any(batch.fixed for batch in eager.batches(0))
    assert (train.one_shape, validation.one_shape, eager.one_shape) == (True, False, False)
    for kind, fixed in (("transformer", {True}), *([("encoder", {False})] if setting == "compile" else [])):
        recipe = replace(demo_recipe(), model={"kind": kind})
        recipe = replace(recipe, training=replace(recipe.training, **{setting: True}))
        corpora = recipe.task.read(recipe)
        train, validation = make_data(recipe, corpora, *recipe.task.make_tokenizers(recipe, corpora.train))
        assert {batch.fixed for batch in train.batches(0)} == fixed
        assert len({batch.labels.shape for batch in train.batches(0)}) > 1 and not train.one_shape
        assert not any(batch.fixed for batch in validation.batches(0))


def test_tokens_are_laid_on_a_device_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device "meta" stands for a GPU here."""
    recipe = language_model_recipe()
    corpora = recipe.task.read(recipe)
    tokenizers = recipe.task.make_tokenizers(recipe, corpora.train)
    device = torch.device("meta")

    def make(free: float, device: torch.device | None = device) -> Data:
        monkeypatch.setattr("regard.training.run.data.free_memory", lambda name: int(free))
        return make_data(recipe, corpora, *tokenizers, device=device)[0]

    size = make(0, None).size
    assert size == 2 * 4 * make(0, None).tokens
    there, here = make(size * 20), make(size * 20 - 20)
    assert there.device == device
    assert there.where == "on meta: 0 MB, 5.0% of what is free on meta"
    assert next(there.batches(0)).labels.device == device
    assert here.device.type == "cpu"
    assert here.where == "in main memory: 0 MB, 5.0% of what is free on meta, and more than 5% shall not go to tokens"
    for none in (None, torch.device("cpu")):
        assert make(10**12, none).where == "in main memory, where the model is"
