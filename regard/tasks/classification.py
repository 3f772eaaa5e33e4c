"""Text classification: from labelled texts to a `Classifier`. Many tokens to one label.

A3, D2. The files have the label in the first column and the text in the second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from regard.api.classifier import Classifier
from regard.errors import ModelError
from regard.models.config import Config
from regard.models.presets import MODELS
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.tables import SHARES, RecipeTables, TrainingRecipe
from regard.tasks.corpora import Corpora, longest_pair, numbered_tokens, read_pair_corpora, train_tokenizer
from regard.tasks.losses import Objective, Together, classification_loss
from regard.tasks.task import Misfit, Task, Tokenizers
from regard.tasks.translation import make_pairs, pair_defaults
from regard.tasks.validation import Validator
from regard.text.batches.batch import Batch
from regard.text.batches.pairs import PairData
from regard.text.files.corpus import Corpus, make_corpus
from regard.text.tokenizers.labels import LabelTokenizer, train_labels
from regard.text.tokenizers.tokenizer import Tokenizer

DEMO_VALIDATION = 1000
TABLE_COLUMNS = (1, 0)  # of .tsv and .csv: the text, and the label before it
RECORD_COLUMNS = ("text", "label")  # keys of .jsonl, columns of .parquet


class TextClassification(Task):
    """Say which of some classes a text belongs to."""

    name = "text classification"
    models: ClassVar = {"classifier": MODELS["classifier"]}
    forms = ("source", "pairs", "demo")
    needs = "pairs (a label and a text in each line), or source (texts) and target (labels)"
    usage = "regard classify -m FOLDER texts.txt"
    face = "classifier"
    loss_unit = "samples"
    predicts_tokens = False

    def read_corpora(self, recipe: RecipeTables) -> Corpora:
        data = recipe.data
        if data.demo:
            return demo_corpora(data.demo, data.validation or DEMO_VALIDATION, recipe.training.seed)
        if data.columns is not None or not data.pairs:
            return read_pair_corpora(recipe)
        records = any(".jsonl" in name or name.endswith(".parquet") for name in data.pairs)
        with_columns = dataclasses.replace(data, columns=RECORD_COLUMNS if records else TABLE_COLUMNS)
        return read_pair_corpora(dataclasses.replace(recipe, data=with_columns))  # type: ignore[type-var]

    def make_tokenizers(self, recipe: RecipeTables, corpus: Corpus) -> Tokenizers:
        return train_tokenizer(recipe, corpus.source), train_labels(corpus.target or [])

    def make_data(
        self, recipe: RecipeTables, corpus: Corpus, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> PairData:
        return make_pairs(recipe, corpus, tokenizers, training=training, cache=cache, fixed_shapes=self.fixed_shapes)

    def longest_row(self, recipe: RecipeTables, corpora: Corpora, tokenizers: Tokenizers) -> int:
        return longest_pair(recipe, corpora, tokenizers)

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        numbers = torch.arange(rows * length, device=device).view(rows, length)  # (B, L)
        vocabulary, labels = config.vocabularies
        tokens = numbered_tokens(numbers, vocabulary)
        return Batch(list(range(rows)), tokens, tokens, numbered_tokens(numbers, labels), tokens.numel())

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return partial(classification_loss, smoothing=training.label_smoothing or 0.0)

    def validator(self, *args: Any, **options: Any) -> Validator:
        return AccuracyValidator(*args, **options)

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        data, training = recipe.data, recipe.training
        if data.context is not None:
            yield "data.context", "reads whole texts: give max_length"
        for share in (*SHARES, "placeholders"):
            if getattr(data, share):
                yield f"data.{share}", "translates nothing"
        if recipe.tokenizer.shared:
            yield "tokenizer.shared", "has labels on one side, which are no text"
        if training.r_drop:
            yield "training.r_drop", "predicts no tokens"
        if training.temperature != TrainingRecipe.temperature:
            yield "training.temperature", "has no use for it"
        if training.pointing:
            yield "training.pointing", "has no pointer"

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        yield Choice("tokenizer.kind", "unigram", "subwords leave no word unknown")
        yield Choice("tokenizer.shared", False, "labels are no text")

    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        return pair_defaults(tables, facts)

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Classifier:
        if not isinstance(target, LabelTokenizer):
            raise ModelError(f"the labels of the classifier are missing: the file target.{LabelTokenizer.FILE}")
        return Classifier(model, source, target, info=info)


class AccuracyValidator(Validator):
    """A validator whose score is the share of texts with the right label."""

    def quality(self, loss: float, accuracy: float) -> dict[str, float]:
        return {"accuracy": accuracy}

    def summary(self) -> str:
        return f"accuracy {self.scores['accuracy']:.1%}"


def demo_corpora(count: int, held_out: int, seed: int) -> Corpora:
    """Return labelled sentences of the demo grammar."""
    from regard.demo.corpus import demo_kinds

    train, validation = demo_kinds("train", count, seed=seed), demo_kinds("validation", held_out, seed=seed)
    sides = [([text for text, _ in part], [label for _, label in part]) for part in (train, validation)]
    return Corpora(
        make_corpus(*sides[0], name="demo sentences"), make_corpus(*sides[1], name="demo sentences, validation")
    )


TASK = TextClassification()
