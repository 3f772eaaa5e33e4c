"""Sentence embedding: from pairs of sentences with the same meaning to an `Embedder`.

A3; Reimers & Gurevych 2019. The model learns which target of a batch belongs to which source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from regard.api.embedder import Embedder
from regard.models.config import Config
from regard.models.presets import MODELS
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.tables import SHARES, RecipeTables, TrainingRecipe
from regard.tasks.corpora import Corpora, longest_pair, numbered_tokens, read_pair_corpora, train_tokenizer
from regard.tasks.imported_start import ImportedStart
from regard.tasks.loading import one_tokenizer
from regard.tasks.losses import Objective, Together, alone, contrastive_loss
from regard.tasks.task import Misfit, Task, Tokenizers
from regard.tasks.translation import make_pairs, pair_defaults
from regard.tasks.validation import Validator
from regard.text.batches.batch import Batch
from regard.text.batches.pairs import PairData
from regard.text.files.corpus import Corpus
from regard.text.tokenizers.tokenizer import Tokenizer


class SentenceEmbedding(Task):
    """Map sentences to vectors that can be compared."""

    name = "sentence embedding"
    models: ClassVar = {"encoder": MODELS["encoder"]}
    forms = ("source", "pairs", "demo")
    needs = "pairs, or source and target"
    usage = "regard embed -m FOLDER sentences.txt"
    face = "embedder"
    own_special_tokens = True
    loss_unit = "samples"
    compares_rows = True
    predicts_tokens = False

    def read_corpora(self, recipe: RecipeTables) -> Corpora:
        return read_pair_corpora(recipe)

    def make_tokenizers(self, recipe: RecipeTables, corpus: Corpus) -> Tokenizers:
        tokenizer = train_tokenizer(recipe, [*corpus.source, *(corpus.target or [])])
        return tokenizer, tokenizer

    def make_data(
        self, recipe: RecipeTables, corpus: Corpus, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> PairData:
        # The rows of a batch are compared with each other, so there can be no rows of padding.
        return make_pairs(recipe, corpus, tokenizers, training=training, cache=cache, fixed_shapes=self.fixed_shapes)

    def make_imported_data(
        self,
        recipe: RecipeTables,
        corpus: Corpus,
        tokenizers: Tokenizers,
        start: ImportedStart,
        *,
        training: bool,
        cache: Path | None,
    ) -> PairData:
        frame, shapes = start.encoder_frame, self.fixed_shapes
        return make_pairs(recipe, corpus, tokenizers, training=training, cache=cache, fixed_shapes=shapes, frame=frame)

    def longest_row(self, recipe: RecipeTables, corpora: Corpora, tokenizers: Tokenizers) -> int:
        return longest_pair(recipe, corpora, tokenizers)

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        numbers = torch.arange(rows * length, device=device).view(rows, length)  # (B, L)
        (vocabulary,) = config.vocabularies
        tokens = numbered_tokens(numbers, vocabulary)
        return Batch(list(range(rows)), tokens, tokens, tokens, tokens.numel())

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return partial(contrastive_loss, temperature=training.temperature, together=together or alone)

    def validator(self, *args: Any, **options: Any) -> Validator:
        return RetrievalValidator(*args, **options)

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        data, training = recipe.data, recipe.training
        if data.context is not None:
            yield "data.context", "reads sentences: give max_length"
        for share in (*SHARES, "placeholders"):
            if getattr(data, share):
                yield f"data.{share}", "translates nothing"
        if recipe.tokenizer.shared is False:
            yield "tokenizer.shared", "with one table of vectors has one vocabulary"
        if training.label_smoothing:
            yield "training.label_smoothing", "predicts no tokens"
        if training.r_drop:
            yield "training.r_drop", "predicts no tokens"

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        yield Choice("tokenizer.kind", "unigram", "subwords leave no word unknown")
        yield Choice("tokenizer.shared", True, "a sentence encoder has one vocabulary")

    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        return pair_defaults(tables, facts)

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Embedder:
        return Embedder(model, one_tokenizer(model, source, target), info=info)


class RetrievalValidator(Validator):
    """A validator whose score is how often the right sentence of a batch is found."""

    def quality(self, loss: float, accuracy: float) -> dict[str, float]:
        return {"accuracy": accuracy}

    def summary(self) -> str:
        return f"right pair found {self.scores['accuracy']:.1%}"


TASK = SentenceEmbedding()
