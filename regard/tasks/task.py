"""The interface of a task: everything in training and use that depends on the purpose of a model.

A task has one file, here or in arrays/ or copying/, and one line in the table of `regard.tasks`. The rest of regard
uses the task of a model (`task_for(kind)`) and never compares the name of a kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.arrays.batches import ArrayData
from regard.arrays.speech.batches import SpeechData
from regard.errors import UsageError
from regard.models.config import Config
from regard.recipes.facts import Choice, DataFacts, facts_of
from regard.recipes.tables import RecipeTables, TrainingRecipe
from regard.tasks.corpora import Corpora, check_files
from regard.tasks.imported_start import ImportedStart
from regard.tasks.losses import Objective, Together
from regard.tasks.validation import Validator
from regard.text.batches.batch import Batch
from regard.text.batches.cooccurrences import CooccurrenceData
from regard.text.batches.pairs import PairData
from regard.text.batches.windows import WindowData
from regard.text.check.checker import DEFAULT_MAX_TOKENS, short_check
from regard.text.tokenizers.tokenizer import Tokenizer

Data = PairData | WindowData | CooccurrenceData | ArrayData | SpeechData
Tokenizers = tuple[
    Tokenizer, Tokenizer
]  # of source and target; the same object if they share one; NO_TOKENIZER without
LossUnit = Literal["tokens", "samples"]  # the unit that the loss is averaged over
# Change the weights by a batch in step i, with the optimizer's learning rate and state; return the mean loss.
Update = Callable[[Batch, torch.optim.Optimizer, int], Tensor]
Misfit = tuple[str, str]  # the key of a setting, and why it has no effect


class Task(ABC):
    """A purpose that models are trained for. Tasks have no state, so one object serves all runs."""

    name: ClassVar[str]
    models: ClassVar[Mapping[str, tuple[type[Config], type[nn.Module]]]]  # by kind; the first is the default
    forms: ClassVar[tuple[str, ...]]  # of [data] that it can learn from, of regard.recipes.tables.FORMS
    needs: ClassVar[str]  # the same in words
    usage: ClassVar[str]  # commands that use the model in FOLDER, one per line
    face: ClassVar[str]  # what `regard.load` returns, such as "translator"
    reads: ClassVar[str] = "text"  # what its models read; unless it is text, the face has `trace` and `examples`
    array_keys: ClassVar[tuple[str, ...]] = ()  # of [data], for images or series, that have an effect
    loss_unit: ClassVar[LossUnit] = "tokens"
    length_key: ClassVar[str] = "data.max_length"  # the setting that limits the length of a row
    device: ClassVar[str | None] = None  # where it is trained unless the recipe says otherwise; None: the fastest
    compares_rows: ClassVar[bool] = False  # whether the loss of a row depends on the other rows of its batch
    fixed_shapes: ClassVar[bool] = False  # whether batches can be padded to a few shapes, which can be captured
    predicts_tokens: ClassVar[bool] = True
    tokenizer_kinds: ClassVar[tuple[str, ...]] = ("unigram", "bpe", "characters")
    decodes_validation: ClassVar[bool] = False  # whether a validation decodes `decoding.sentences` samples
    label_smoothing: ClassVar[tuple[float, str]] = (0.0, "the likelihood is the goal")  # the default and its reason
    default_model: ClassVar[str] = "learns most from the same sentences (regard compare)"  # why the first kind
    recurrent_layers: ClassVar[int] = 1  # the default of recurrent models
    own_special_tokens: ClassVar[bool] = False  # whether its face follows the special tokens of an imported model

    # Data

    def read(self, recipe: RecipeTables) -> Corpora:
        """Read and split the data of a recipe."""
        check_files(recipe.data)
        return self.read_corpora(recipe)

    @abstractmethod
    def read_corpora(self, recipe: RecipeTables) -> Corpora:
        """Read the data, whose files exist, and hold out a part if there are no validation files."""

    def held_out(self, corpora: Corpora) -> int:
        """Return the size of the validation part in the unit of data.validation."""
        return len(corpora.validation)

    def facts(self, recipe: RecipeTables, corpora: Corpora) -> DataFacts:
        """Return the statistics of the data that settings are chosen from."""
        return facts_of(corpora.train, corpora.validation)

    def check(self, recipe: RecipeTables, corpora: Corpora) -> list[str]:
        """Return warnings about the data, one per line."""
        limit = recipe.data.max_length or DEFAULT_MAX_TOKENS
        return short_check(corpora.train, corpora.validation, limit=limit)

    @abstractmethod
    def make_tokenizers(self, recipe: RecipeTables, corpus: Any) -> Tokenizers:
        """Train the tokenizers on the training part."""

    @abstractmethod
    def make_data(
        self, recipe: RecipeTables, corpus: Any, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> Data:
        """Tokenise a part of the data and divide it into batches; those of the validation part never change."""

    def make_imported_data(
        self,
        recipe: RecipeTables,
        corpus: Any,
        tokenizers: Tokenizers,
        start: ImportedStart,
        *,
        training: bool,
        cache: Path | None,
    ) -> Data:
        """Return what `make_data` does, with the special tokens and the frame of an imported model."""
        raise UsageError(f"--init {start.name}: imported models of the kind {recipe.kind!r} cannot be trained further")

    @abstractmethod
    def longest_row(self, recipe: RecipeTables, corpora: Corpora, tokenizers: Tokenizers) -> int:
        """Return the number of tokens of the longest row in training."""

    @abstractmethod
    def full_batch(self, config: Config, rows: int, length: int, device: torch.device) -> Batch:
        """Return a batch without padding, for measuring memory: all rows have that length on each side."""

    def start_model(self, model: nn.Module, tokenizers: Tokenizers, corpus: Any) -> None:
        """Give a fresh model what it takes from its tokenizers and the training part before training begins."""
        return

    # Learning

    @abstractmethod
    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        """Return the loss that a recipe asks for, as a function of (model, batch).

        `together` gathers rows of a batch that are shared among several processes.
        """

    def update(self, model: nn.Module, training: TrainingRecipe) -> Update | None:
        """Return how a batch changes the weights; None: the optimizer takes one step with its gradient."""
        return None

    def validator(self, *args: Any, **options: Any) -> Validator:
        """Return the validator of a training run; the arguments are those of `Validator`."""
        return Validator(*args, **options)

    # Settings

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        """Yield the settings of a recipe that this task would ignore, with the reason."""
        yield from ()

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        """Yield defaults of [tokenizer] from the recipe's tables so far and the data."""
        yield from ()

    def input_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        """Yield defaults of [model] that follow from the shape of the data; others are chosen after them."""
        yield from ()

    def model_defaults(self, tables: Mapping[str, Any]) -> Iterator[Choice]:
        """Yield defaults of [model] that do not depend on the amount of data."""
        yield from ()

    def training_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        """Yield defaults of [training] that differ from those of other tasks."""
        yield from ()

    @abstractmethod
    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        """Yield defaults of [data]: lengths, and the size of the validation part if one is held out."""

    # Use

    def info(self, recipe: RecipeTables, train: Data, tokenizers: Tokenizers) -> dict[str, Any]:
        """Return the entries of config.json that the trained model needs in use."""
        return {}

    @abstractmethod
    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Any:
        """Return what `regard.load` returns for a model and its tokenizers; ModelError if they do not fit together.

        With `pack`, weights are packed for decoding on a CPU.
        """
