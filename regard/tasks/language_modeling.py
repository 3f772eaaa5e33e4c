"""Language modeling: from plain text to a `Writer`.

C2, E10. The text is divided into windows; the score of a validation is the likelihood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from regard.api.writer import Writer
from regard.models.config import Config, RecurrentConfig
from regard.models.presets import MODELS
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.required import required
from regard.recipes.tables import SHARES, RecipeTables, TrainingRecipe
from regard.tasks.corpora import Corpora, numbered_tokens, read_text_corpora, train_tokenizer
from regard.tasks.imported_start import ImportedStart
from regard.tasks.loading import one_tokenizer
from regard.tasks.losses import Objective, Together, language_model_loss
from regard.tasks.task import Data, Misfit, Task, Tokenizers
from regard.text.batches.batch import Batch
from regard.text.batches.windows import WindowData
from regard.text.files.corpus import Corpus
from regard.text.tokenizers.special_tokens import DEFAULT, SpecialTokens
from regard.text.tokenizers.tokenizer import Tokenizer

MIN_SUBWORD_CHARACTERS = 5_000_000  # a language model of less text learns better from characters


class LanguageModeling(Task):
    """Predict each token of a text from the tokens before it."""

    name = "language modeling"
    models: ClassVar = {kind: MODELS[kind] for kind in ("transformer-lm", "rnn-lm")}
    forms = ("text", "demo")
    needs = "text"
    usage = 'regard generate -m FOLDER "…"\nregard evaluate -m FOLDER text.txt\nregard explore FOLDER'
    face = "writer"
    fixed_shapes = True
    length_key = "data.context"
    default_model = "a language model for text"
    recurrent_layers = 2
    own_special_tokens = True

    def read_corpora(self, recipe: RecipeTables) -> Corpora:
        return read_text_corpora(recipe)

    def held_out(self, corpora: Corpora) -> int:
        return sum(map(len, corpora.validation.source))

    def make_tokenizers(self, recipe: RecipeTables, corpus: Corpus) -> Tokenizers:
        tokenizer = train_tokenizer(recipe, corpus.source, lossless=True)
        return tokenizer, tokenizer

    def make_data(
        self, recipe: RecipeTables, corpus: Corpus, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> WindowData:
        return self._windows(recipe, corpus, tokenizers, DEFAULT, training=training, cache=cache)

    def make_imported_data(
        self,
        recipe: RecipeTables,
        corpus: Corpus,
        tokenizers: Tokenizers,
        start: ImportedStart,
        *,
        training: bool,
        cache: Path | None,
    ) -> WindowData:
        return self._windows(recipe, corpus, tokenizers, start.special, training=training, cache=cache)

    def _windows(
        self,
        recipe: RecipeTables,
        corpus: Corpus,
        tokenizers: Tokenizers,
        special: SpecialTokens,
        *,
        training: bool,
        cache: Path | None,
    ) -> WindowData:
        settings = recipe.training
        assert recipe.data.context is not None  # the recipe is complete
        assert settings.batch_tokens is not None
        return WindowData(
            corpus,
            tokenizers[0],
            context=recipe.data.context,
            batch_tokens=settings.batch_tokens,
            seed=settings.seed,
            shuffle=training,
            bucketed=training and settings.fixed_shapes,
            cache=cache,
            special=special,
        )

    def longest_row(self, recipe: RecipeTables, corpora: Corpora, tokenizers: Tokenizers) -> int:
        return required(recipe.data.context)

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        numbers = torch.arange(rows * length, device=device).view(rows, length)  # (B, L)
        (vocabulary,) = config.vocabularies
        tokens = numbered_tokens(numbers, vocabulary)
        return Batch(list(range(rows)), None, tokens, tokens, tokens.numel())

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return partial(
            language_model_loss,
            smoothing=training.label_smoothing or 0.0,
            r_drop=training.r_drop,
            kernels=training.kernels != "off",
        )

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        data, tokenizer, training = recipe.data, recipe.tokenizer, recipe.training
        if tokenizer.shared is not None:
            yield "tokenizer.shared", "has one side only"
        if tokenizer.sampling:
            yield "tokenizer.sampling", "reads windows that are cut once"
        if data.max_length is not None:
            yield "data.max_length", "reads windows: give context"
        for share in (*SHARES, "placeholders"):
            if getattr(data, share):
                yield f"data.{share}", "translates nothing"
        if training.compile and issubclass(self.models[recipe.kind][0], RecurrentConfig):
            yield "training.compile", "runs in torch's own kernels, whole windows at a time"
        if training.temperature != TrainingRecipe.temperature:
            yield "training.temperature", "has no use for it"
        if training.pointing:
            yield "training.pointing", "has no pointer"

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        if facts.characters < MIN_SUBWORD_CHARACTERS and tables["tokenizer"]["size"] is None:
            why = f"{facts.characters:,} characters are too few to learn words from"
            yield Choice("tokenizer.kind", "characters", why)
        else:
            yield Choice("tokenizer.kind", "bpe", f"{facts.characters:,} characters to learn subwords from")

    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        data, batch = tables["data"], tables["training"]["batch_tokens"]
        why = "short on a CPU" if on_cpu else "fits a batch well"
        yield Choice("data.context", min(batch, 128 if on_cpu else 256), why)
        if not any(data[f"validation_{form}"] for form in ("source", "pairs", "text")):
            yield Choice("data.validation", max(1, facts.characters // 10), "the last tenth of the characters")

    def info(self, recipe: RecipeTables, train: Data, tokenizers: Tokenizers) -> dict[str, Any]:
        """Return the context that the model was trained with, in tokens."""
        return {"context": recipe.data.context}

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Writer:
        return Writer(model, one_tokenizer(model, source, target), info=info, pack=pack)


TASK = LanguageModeling()
