"""Read the texts for training from files or the demo corpus, and hold out a validation part."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor

from regard.errors import DataError
from regard.recipes.required import required
from regard.recipes.tables import FILES, DataRecipe, RecipeTables
from regard.text.files.compressed import missing_file
from regard.text.files.corpus import Corpus, Policy, make_corpus, read_documents, read_pairs, read_parallel
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import Tokenizer

VALIDATION_SHARE = 0.1  # default: the last part of a language model's text
DEMO_VALIDATION = 1000  # default number of pairs of the demo corpus
LONGEST_TEXTS = 64  # texts with the most characters; the one with the most tokens is searched among them
SAMPLING_FACTOR = 1.5  # sampled subwords make a text longer by up to this factor


Samples = TypeVar("Samples")  # a Corpus, Images or a Series


@dataclass(frozen=True)
class Corpora(Generic[Samples]):
    """The training part and the validation part, with gold alignments if the data has them."""

    train: Samples
    validation: Samples
    gold: Sequence[set[tuple[int, int]]] | None = None

    @property
    def fingerprint(self) -> str:
        parts: Any = self.train, self.validation
        return hashlib.sha256(" ".join(part.fingerprint for part in parts).encode()).hexdigest()


def check_files(data: DataRecipe) -> None:
    """Raise DataError for the first file that does not exist, before any is read."""
    for key in FILES:
        for name in getattr(data, key):
            if not Path(name).exists():
                raise DataError(
                    f"{missing_file(Path(name))} (data.{key} names it). Where the data of regard's own recipes comes "
                    f"from and how to lay it out is in docs/training/data.md; --set data.{key}=FILE names another file"
                )


def read_pair_corpora(recipe: RecipeTables) -> Corpora:
    """Read sentence pairs: parallel files, files of pairs, or the demo corpus."""
    data, seed = recipe.data, recipe.training.seed
    faults: Policy = data.faults  # type: ignore[assignment]  # checked
    if data.demo:
        return _demo_corpora(data.demo, data.validation or DEMO_VALIDATION, seed)
    if data.pairs:
        train = read_pairs(data.pairs, data.columns, faults=faults)
    else:
        train = read_parallel(data.source, data.target, faults=faults)
    if data.validation_pairs:
        return Corpora(train, read_pairs(data.validation_pairs, data.columns, faults=faults))
    if data.validation_source:
        return Corpora(train, read_parallel(data.validation_source, data.validation_target, faults=faults))
    return split_pairs(train, data.validation, seed)


def read_text_corpora(recipe: RecipeTables, *, share: float = VALIDATION_SHARE) -> Corpora:
    """Read plain text: files, or the demo text; hold out a share of it unless the recipe says how much."""
    data = recipe.data
    faults: Policy = data.faults  # type: ignore[assignment]  # checked
    if data.demo:
        from regard.demo.corpus import demo_text

        train = make_corpus([demo_text(data.demo, seed=recipe.training.seed)], name="demo text")
    else:
        train = read_documents(data.text, faults=faults)
    if data.validation_text:
        return Corpora(train, read_documents(data.validation_text, faults=faults))
    return split_text(train, data.validation, share=share)


def split_pairs(corpus: Corpus, count: int | None, seed: int) -> Corpora:
    """Hold out `count` pairs, chosen by the hash of their source, so that copies of a sentence stay together."""
    count = count or max(1, min(1000, len(corpus) // 20))
    if count >= len(corpus):
        raise DataError(
            f"{count} of {len(corpus)} sentence pairs are held out for validation, which leaves none to train on: "
            f"lower data.validation or give validation files"
        )

    def hashed(source: str) -> bytes:
        return hashlib.blake2b(source.encode(), digest_size=8, key=str(seed).encode()).digest()

    hashes = [hashed(source) for source in corpus.source]
    limit = sorted(hashes)[count - 1]
    validation = [i for i, value in enumerate(hashes) if value <= limit][:count]
    train = [i for i, value in enumerate(hashes) if value > limit]
    if not train:
        raise DataError("every sentence pair has the same source, so none can be held out: give validation files")
    return Corpora(_select(corpus, train), _select(corpus, validation))


def split_text(corpus: Corpus, count: int | None, *, share: float = VALIDATION_SHARE) -> Corpora:
    """Hold out the last `count` characters of a text, by default a share of it."""
    total = sum(map(len, corpus.source))
    count = count or int(total * share)
    if not 0 < count < total:
        raise DataError(
            f"{count} of {total} characters are held out for validation: "
            f"the text is too short, or data.validation too large"
        )
    train, validation, left = {}, [], total - count  # the training part, by row of the corpus
    for i, document in enumerate(corpus.source):
        if document[: max(left, 0)].strip():
            train[i] = document[:left]
        if len(document) > left:
            validation.append(document[max(left, 0) :])
        left -= len(document)
    if not train:
        raise DataError("the text begins with blanks only, which leaves nothing to train on: lower data.validation")
    selected = replace(_select(corpus, list(train)), source=list(train.values()))
    return Corpora(selected, make_corpus(validation, name=corpus.shards[0][1]))


def train_tokenizer(recipe: RecipeTables, texts: Sequence[str], *, lossless: bool = False) -> Tokenizer:
    """Train the kind of tokenizer that a recipe asks for; `lossless` keeps every space and line break."""
    settings = recipe.tokenizer
    if settings.kind == "characters":
        return train_characters(texts)
    kind: Any = settings.kind or "unigram"  # checked
    return train_subwords(texts, size=settings.size, kind=kind, lossless=lossless, tokenised=settings.tokenised)


def longest_pair(recipe: RecipeTables, corpora: Corpora, tokenizers: tuple[Tokenizer, Tokenizer]) -> int:
    """Return the number of tokens, with special tokens, of the longest side of a pair; only long texts are searched."""
    limit = min(required(recipe.training.batch_tokens), recipe.data.max_length or 2**31)
    longest = special = 1 + bool(recipe.model.get("source_start"))
    for texts, tokenizer in zip((corpora.train.source, corpora.train.target or []), tokenizers, strict=True):
        candidates = heapq.nlargest(LONGEST_TEXTS, texts, key=len)
        longest = max([longest, *(special + len(tokens) for tokens in tokenizer.encode_all(candidates))])
    return min(limit, int(longest * (SAMPLING_FACTOR if recipe.tokenizer.sampling else 1)))


def numbered_tokens(numbers: Tensor, vocabulary: int) -> Tensor:
    """Return token ids for a batch without a text: adjacent ones differ, and none is a special token."""
    return len(SPECIAL_TOKENS) + numbers % max(1, vocabulary - len(SPECIAL_TOKENS))


def _demo_corpora(count: int, held_out: int, seed: int) -> Corpora:
    from regard.demo.corpus import demo_pairs

    train, validation = demo_pairs("train", count, seed=seed), demo_pairs("validation", held_out, seed=seed)
    sides = [([pair.source for pair in part], [pair.target for pair in part]) for part in (train, validation)]
    return Corpora(
        make_corpus(*sides[0], name="demo corpus"),
        make_corpus(*sides[1], name="demo corpus, validation"),
        [set(pair.alignment) for pair in validation],
    )


def _select(corpus: Corpus, rows: list[int]) -> Corpus:
    """Return some rows of a corpus, in order; each keeps its line number."""
    shards = tuple((bisect_left(rows, first), name) for first, name in corpus.shards)
    target = None if corpus.target is None else [corpus.target[i] for i in rows]
    return replace(
        corpus,
        source=[corpus.source[i] for i in rows],
        target=target,
        support=None if corpus.support is None else [corpus.support[i] for i in rows],
        shards=shards,
        lines=array("q", (corpus.lines[i] for i in rows)),
    )
