"""Word vectors: from plain text to vectors of its words.

A2; Mikolov et al. 2013, Pennington et al. 2014. The score of a validation is the loss on text that is held out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from regard.api.word_vectors import WordVectors
from regard.errors import ModelError
from regard.kernels.native import word_vectors as native
from regard.models.config import Config
from regard.models.presets import MODELS
from regard.models.word_vectors import WordVectorModel
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.required import required
from regard.recipes.tables import SHARES, RecipeTables, TrainingRecipe
from regard.tasks.corpora import Corpora, numbered_tokens, read_text_corpora
from regard.tasks.losses import Objective, Together
from regard.tasks.task import Data, Misfit, Task, Tokenizers, Update
from regard.tasks.validation import LOSS, Validator
from regard.tasks.word_vectors.update import SLICE, PlainUpdate, word_vector_loss
from regard.text.batches.batch import Batch
from regard.text.batches.cooccurrences import CooccurrenceData
from regard.text.batches.windows import WindowData
from regard.text.files.corpus import Corpus
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.words import WordTokenizer, train_words

VALIDATION_SHARE = 0.02  # of the characters, by default
CONTEXT = 500  # words of a row; contexts do not cross its ends, and threads share the rows of a batch
MAX_BATCH = 32_768  # words whose examples are drawn together
STEPS_PER_EPOCH = 10  # at least
WORDS_TO_READ = 5_000_000  # over all epochs, at least; between MIN_EPOCHS and MAX_EPOCHS
MIN_EPOCHS, MAX_EPOCHS = 5, 40
MIN_STEPS = 2  # a linear schedule ends at 0
GLOVE_EPOCHS = 40  # at least: one example of GloVe stands for many occurrences, and it learns the biases first
# The learning rate of each method. word2vec's 0.025 is for billions of words. The rate of CBOW is higher, because the
# gradient of a mean is divided among its words (İrsoy et al. 2021).
RATES = {"skip-gram": 0.05, "cbow": 0.15, "glove": 0.05}
MAX_COUNT = 10.0  # of GloVe; with the paper's 100, nine of ten counts of a million words have a weight below 0.1
WITHOUT_EFFECT = {
    "clip": "takes a step for every example, and clips none",
    "weight_decay": "has no weight decay",
    "betas": "has no use for them",
    "r_drop": "has no dropout",
    "ema": "changes a few rows in a step, and keeps no moving average",
    "compile": "takes too small steps to compile",
    "freeze": "trains all its tables",
    "temperature": "has no use for it",
    "pointing": "has no pointer",
    "patience": "keeps the vectors of the last step",
    "average": "keeps the vectors of the last step",
}


class WordVectorTask(Task):
    """Map each word to a vector, so that words with similar contexts have similar vectors."""

    name = "word vectors"
    models: ClassVar = {"word-vectors": MODELS["word-vectors"]}
    forms = ("text", "demo")
    needs = "text"
    usage = "regard words nearest -m FOLDER WORD\nregard plot words -m FOLDER WORD WORD WORD"
    face = "word vectors"
    length_key = "data.context"
    device = "cpu"  # a GPU has too little to do in a step of a few examples
    compares_rows = True
    predicts_tokens = False
    tokenizer_kinds = ("words",)

    def read_corpora(self, recipe: RecipeTables) -> Corpora:
        return read_text_corpora(recipe, share=VALIDATION_SHARE)

    def held_out(self, corpora: Corpora) -> int:
        return sum(map(len, corpora.validation.source))

    def make_tokenizers(self, recipe: RecipeTables, corpus: Corpus) -> Tokenizers:
        settings = recipe.tokenizer
        least = required(settings.min_count)
        tokenizer = train_words(corpus.source, min_count=least, size=settings.size, tokenised=settings.tokenised)
        return tokenizer, tokenizer

    def start_model(self, model: nn.Module, tokenizers: Tokenizers, corpus: Corpus) -> None:
        """Store how often each word occurs; the noise distribution and subsampling need it."""
        assert isinstance(model, WordVectorModel)
        model.counts[len(SPECIAL_TOKENS) :] = torch.tensor(words_of(tokenizers[0]).counts)

    def make_data(
        self, recipe: RecipeTables, corpus: Corpus, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> Data:
        batch_tokens, seed = required(recipe.training.batch_tokens), recipe.training.seed
        options: dict[str, Any] = {"batch_tokens": batch_tokens, "seed": seed, "shuffle": training, "cache": cache}
        if recipe.model["method"] == "glove":
            return CooccurrenceData(corpus, tokenizers[0], window=recipe.model["window"], **options)
        return WindowData(corpus, tokenizers[0], context=required(recipe.data.context), **options)

    def longest_row(self, recipe: RecipeTables, corpora: Corpora, tokenizers: Tokenizers) -> int:
        return required(recipe.data.context)

    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        """Return the words of one gradient step: what a step takes does not grow with its batch."""
        (vocabulary,) = config.vocabularies
        tokens = numbered_tokens(torch.arange(SLICE, device=device).view(-1, 2), vocabulary)  # (SLICE / 2, 2)
        return Batch([0], None, tokens, tokens.float(), tokens.numel())

    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        return word_vector_loss

    def update(self, model: nn.Module, training: TrainingRecipe) -> Update:
        assert isinstance(model, WordVectorModel)
        is_plain = training.kernels == "off" or native.why_not(model) is not None
        return (PlainUpdate if is_plain else native.NativeUpdate)(model, training.seed)

    def validator(self, *args: Any, **options: Any) -> Validator:
        return WordVectorValidator(*args, **options)

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        data, training = recipe.data, recipe.training
        if recipe.model.get("method") == "imported":
            yield "model.method", "with method imported comes from a file and is not trained"
        if recipe.tokenizer.shared is not None:
            yield "tokenizer.shared", "has one side only"
        if recipe.tokenizer.sampling:
            yield "tokenizer.sampling", "has whole words as tokens"
        if data.max_length is not None:
            yield "data.max_length", "reads windows: give context"
        for share in (*SHARES, "placeholders"):
            if getattr(data, share):
                yield f"data.{share}", "translates nothing"
        for name, why in WITHOUT_EFFECT.items():
            if getattr(training, name) != getattr(TrainingRecipe, name):
                yield f"training.{name}", why
        if training.label_smoothing:
            yield "training.label_smoothing", "predicts no distribution over tokens"
        if training.precision not in (None, "fp32"):
            yield "training.precision", "is trained in fp32"
        expected = optimizer_of(recipe.model.get("method", "skip-gram"))
        if training.optimizer not in (None, expected):
            yield "training.optimizer", f"is trained with {expected}"

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        yield Choice("tokenizer.kind", "words", "one vector for each word")
        least = 5 if facts.words >= 200_000 else 2 if facts.words >= 10_000 else 1
        yield Choice("tokenizer.min_count", least, f"rarer words of {facts.words:,} have too few contexts")

    def model_defaults(self, tables: Mapping[str, Any]) -> Iterator[Choice]:
        glove = tables["model"].get("method") == "glove"
        yield Choice("model.dropout", 0.0, "there is nothing to drop out")
        yield Choice("model.window", 10 if glove else 5, "as in the paper" if glove else "as in word2vec")
        if glove:
            yield Choice("model.max_count", MAX_COUNT, "suits some million words; the paper has 100 for billions")

    def training_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        method, words = tables["model"]["method"], max(facts.words, 1)
        yield Choice("training.optimizer", optimizer_of(method), f"the usual one for {method}")
        yield Choice("training.accumulate", 1, "a batch has many steps")
        allowed = 2 ** int(math.log2(max(words / STEPS_PER_EPOCH, 512)))
        batch = tables["training"]["batch_tokens"] or min(MAX_BATCH, allowed)
        yield Choice("training.batch_tokens", batch, f"at least {STEPS_PER_EPOCH} batches per epoch")
        epochs = min(MAX_EPOCHS, max(MIN_EPOCHS, round(WORDS_TO_READ / words)))
        epochs = max(epochs, GLOVE_EPOCHS) if method == "glove" else epochs
        steps = max(MIN_STEPS, math.ceil(epochs * words / batch))
        yield Choice("training.steps", steps, f"about {epochs} epochs")
        yield Choice("training.lr", RATES[method], f"suits {method} and some million words")
        yield Choice("training.warmup", 1, "the first step has the highest rate: each example changes a few rows only")
        schedule = "constant" if method == "glove" else "linear"
        yield Choice("training.schedule", schedule, "AdaGrad lowers it" if method == "glove" else "as in word2vec")

    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        data, batch = tables["data"], tables["training"]["batch_tokens"]
        yield Choice("data.context", min(batch, CONTEXT), "words of a row; lines end contexts")
        if not data["validation_text"]:
            held_out = max(1, int(facts.characters * VALIDATION_SHARE))
            yield Choice("data.validation", held_out, f"the last {VALIDATION_SHARE:.0%} of the characters")

    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> WordVectors:
        return WordVectors(model, words_of(source), info=info)


class WordVectorValidator(Validator):
    """A validator that shows the nearest words of some words.

    The vectors of the last step are kept, as in word2vec and GloVe. The loss is that of a few frequent words for the
    most part, and is low long before the vectors are good. With GloVe, held-out text is shorter than the training text
    and has smaller counts, so the loss even rises.
    """

    measure = replace(LOSS, newest=True, why="the loss says little of vectors")
    EXAMPLES = 3

    def quality(self, loss: float, accuracy: float) -> dict[str, float]:
        return {}

    def summary(self) -> str:
        vectors = WordVectors(self.model, words_of(self.tokenizers[0]))
        step = max(1, len(vectors.words) // (20 * self.EXAMPLES))  # frequent words, but not the most frequent ones
        shown = vectors.words[step::step][: self.EXAMPLES]
        return "; ".join(f"{word} ~ {' '.join(near.word for near in vectors.nearest(word, 3))}" for word in shown)


def optimizer_of(method: str) -> str:
    return "adagrad" if method == "glove" else "sgd"


def words_of(tokenizer: Tokenizer) -> WordTokenizer:
    """Return the tokenizer of words; ModelError if it is another one."""
    if not isinstance(tokenizer, WordTokenizer):
        raise ModelError("word vectors need the tokenizer words.json, but the folder has another one")
    return tokenizer


TASK = WordVectorTask()
