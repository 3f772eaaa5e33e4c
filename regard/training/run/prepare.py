"""From a recipe to what the loop needs: corpora read and split, tokenizers trained, sentences cut into tokens."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from regard.demo.corpus import demo_pairs, demo_text
from regard.errors import DataError
from regard.machine import free_memory
from regard.text.batches.pairs import PairData, WindowData
from regard.text.files.compressed import missing_file
from regard.text.files.corpus import Corpus, Policy, make_corpus, read_documents, read_pairs, read_parallel
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.recipe.schema import LANGUAGE_MODELS, SHARES, DataRecipe, Recipe
from regard.training.recipe.toml_file import FILES

Data = PairData | WindowData

MOST_TOKENS = 0.05  # of a device's free memory: the rest is for the model
VALIDATION_SHARE = 0.1  # of a language model's text, from its end, when the recipe does not say


@dataclass(frozen=True)
class Corpora:
    """The training and the validation part; gold alignments where the data has them."""

    train: Corpus
    validation: Corpus
    gold: Sequence[set[tuple[int, int]]] | None = None

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.train.fingerprint} {self.validation.fingerprint}".encode()).hexdigest()


def read_corpora(recipe: Recipe) -> Corpora:
    """The files of a recipe, or the demo corpus; without validation files a part is held out."""
    data = recipe.data
    check_files(data)
    faults: Policy = data.faults  # type: ignore[assignment]  # checked
    if recipe.kind in LANGUAGE_MODELS:
        if data.demo:
            train = make_corpus([demo_text(data.demo, seed=recipe.training.seed)], name="demo text")
        else:
            train = read_documents(data.text, faults=faults)
        if data.validation_text:
            return Corpora(train, read_documents(data.validation_text, faults=faults))
        return split_text(train, data.validation)
    if data.demo:
        return _demo_corpora(data.demo, data.validation or 1000, recipe.training.seed)
    if data.pairs:
        train = read_pairs(data.pairs, data.columns, faults=faults)
    else:
        train = read_parallel(data.source, data.target, faults=faults)
    if data.validation_pairs:
        return Corpora(train, read_pairs(data.validation_pairs, data.columns, faults=faults))
    if data.validation_source:
        return Corpora(train, read_parallel(data.validation_source, data.validation_target, faults=faults))
    return split_pairs(train, data.validation, recipe.training.seed)


def check_files(data: DataRecipe) -> None:
    """DataError for the first file that is not there, before any is read."""
    for key in FILES:
        for name in getattr(data, key):
            if not Path(name).exists():
                raise DataError(
                    f"{missing_file(Path(name))} (data.{key} names it). Where the data of regard's own recipes comes "
                    f"from and how to lay it out is in docs/data.md; --set data.{key}=FILE names another file"
                )


def split_pairs(corpus: Corpus, count: int | None, seed: int) -> Corpora:
    """Hold `count` pairs out, chosen by the hash of their source, so that all copies of a sentence go together."""
    count = count or max(1, min(1000, len(corpus) // 20))
    if count >= len(corpus):
        raise DataError(
            f"{count} of {len(corpus)} sentence pairs shall be held out for validation, which leaves none to train on: "
            f"lower data.validation or give validation files"
        )

    def place(source: str) -> bytes:
        return hashlib.blake2b(source.encode(), digest_size=8, key=str(seed).encode()).digest()

    places = [place(source) for source in corpus.source]
    limit = sorted(places)[count - 1]
    held = [i for i, where in enumerate(places) if where <= limit][:count]
    kept = [i for i, where in enumerate(places) if where > limit]
    if not kept:
        raise DataError("every sentence pair has the same source, so none can be held out: give validation files")
    return Corpora(_select(corpus, kept), _select(corpus, held))


def split_text(corpus: Corpus, count: int | None) -> Corpora:
    """Hold the last `count` characters of a text out, a tenth when not given."""
    total = sum(map(len, corpus.source))
    count = count or int(total * VALIDATION_SHARE)
    if not 0 < count < total:
        raise DataError(
            f"{count} of {total} characters shall be held out for validation: "
            f"the text is too short, or data.validation too large"
        )
    train, validation, left = {}, [], total - count  # the training part by rows of the corpus
    for i, document in enumerate(corpus.source):
        if document[: max(left, 0)].strip():
            train[i] = document[:left]
        if len(document) > left:
            validation.append(document[max(left, 0) :])
        left -= len(document)
    if not train:
        raise DataError("the text begins with blanks only, which leaves nothing to train on: lower data.validation")
    kept = replace(_select(corpus, list(train)), source=list(train.values()))
    return Corpora(kept, make_corpus(validation, name=corpus.shards[0][1]))


def make_tokenizers(recipe: Recipe, corpus: Corpus) -> tuple[Tokenizer, Tokenizer]:
    """The source's and the target's, one and the same where they are shared or there is one side only."""
    lossless = recipe.kind in LANGUAGE_MODELS

    def make(texts: Sequence[str]) -> Tokenizer:
        if recipe.tokenizer.kind == "characters":
            return train_characters(texts)
        asked = recipe.tokenizer
        kind: Any = asked.kind or "unigram"  # checked
        return train_subwords(texts, size=asked.size, kind=kind, lossless=lossless, tokenised=asked.tokenised)

    if corpus.target is None or recipe.tokenizer.shared or recipe.kind == "encoder":
        one = make([*corpus.source, *(corpus.target or [])])
        return one, one
    return make(corpus.source), make(corpus.target)


def make_data(
    recipe: Recipe,
    corpora: Corpora,
    source: Tokenizer,
    target: Tokenizer,
    *,
    cache: Path | None = None,
    device: torch.device | None = None,
) -> tuple[Data, Data]:
    """Training and validation data; the latter always in the same pieces.

    In the folder `cache` their tokens are kept for the next start. They are laid on the device where they fit.
    """
    make = _make_windows if recipe.kind in LANGUAGE_MODELS else _make_pairs
    train = make(recipe, corpora.train, source, target, cache=cache and cache / "train", training=True)
    validation = make(recipe, corpora.validation, source, target, cache=cache and cache / "validation", training=False)
    for data in (train, validation):
        data.where = lay(data, device)
    return train, validation


def lay(data: Data, device: torch.device | None) -> str:
    """Lay the tokens on a device if they take little of it, and say where they lie and why."""
    if device is None or device.type == "cpu":
        return "in main memory, where the model is"
    if device.type == "cuda" and device.index is None:  # which one is current differs from thread to thread
        device = torch.device("cuda", torch.cuda.current_device())
    free = free_memory(str(device))
    share = f"{data.size / 2**20:,.0f} MB, {data.size / max(free, 1):.1%} of what is free on {device}"
    if data.size > MOST_TOKENS * free:
        return f"in main memory: {share}, and more than {MOST_TOKENS:.0%} shall not go to tokens"
    data.move(device)
    return f"on {device}: {share}"


def _make_windows(
    recipe: Recipe, corpus: Corpus, source: Tokenizer, target: Tokenizer, *, cache: Path | None, training: bool
) -> WindowData:
    settings = recipe.training
    assert recipe.data.context is not None  # the recipe is complete
    assert settings.batch_tokens is not None
    return WindowData(
        corpus,
        source,
        context=recipe.data.context,
        batch_tokens=settings.batch_tokens,
        seed=settings.seed,
        shuffle=training,
        shapes=training and settings.fixed_shapes,
        cache=cache,
    )


def _make_pairs(
    recipe: Recipe, corpus: Corpus, source: Tokenizer, target: Tokenizer, *, cache: Path | None, training: bool
) -> PairData:
    settings = recipe.training
    assert settings.batch_tokens is not None  # the recipe is complete
    return PairData(
        corpus,
        source,
        target,
        batch_tokens=settings.batch_tokens,
        seed=settings.seed,
        shuffle=training,
        max_length=recipe.data.max_length,
        sampling=recipe.tokenizer.sampling if training else 0.0,
        **({share: getattr(recipe.data, share) for share in SHARES} if training else {}),
        # A sentence encoder compares the rows of a batch with each other, so it can have no rows of padding.
        shapes=training and settings.fixed_shapes and recipe.kind != "encoder",
        cache=cache,
    )


def _demo_corpora(count: int, held_out: int, seed: int) -> Corpora:
    train, validation = demo_pairs("train", count, seed=seed), demo_pairs("validation", held_out, seed=seed)
    sides = [([pair.source for pair in part], [pair.target for pair in part]) for part in (train, validation)]
    return Corpora(
        make_corpus(*sides[0], name="demo corpus"),
        make_corpus(*sides[1], name="demo corpus, validation"),
        [set(pair.alignment) for pair in validation],
    )


def _select(corpus: Corpus, rows: list[int]) -> Corpus:
    """Some rows of a corpus, in order; they keep their places."""
    shards = tuple((bisect_left(rows, first), name) for first, name in corpus.shards)
    target = None if corpus.target is None else [corpus.target[i] for i in rows]
    return replace(
        corpus,
        source=[corpus.source[i] for i in rows],
        target=target,
        shards=shards,
        lines=array("q", (corpus.lines[i] for i in rows)),
    )
