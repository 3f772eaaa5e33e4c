"""What a task is: everything in training and use that depends on what a model is for.

A task has one file in this folder and one line in the table of `regard.tasks`. The rest of regard asks the task of a
model (`task_for(kind)`) and never tests the name of a kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from regard.models.config import Config
from regard.recipes.facts import Choice, DataFacts
from regard.recipes.tables import RecipeTables, TrainingRecipe
from regard.tasks.corpora import Corpora, check_files
from regard.tasks.losses import Objective, Together
from regard.tasks.validation import Validator
from regard.text.batches.batch import Batch
from regard.text.batches.pairs import PairData
from regard.text.batches.windows import WindowData
from regard.text.files.corpus import Corpus
from regard.text.tokenizers.tokenizer import Tokenizer

Data = PairData | WindowData
Tokenizers = tuple[Tokenizer, Tokenizer]  # the source's and the target's; one and the same where there is one
LossUnit = Literal["tokens", "samples"]  # what the loss is a mean over
Misfit = tuple[str, str]  # the key of a setting, and why it has no effect


class Task(ABC):
    """One thing that models are trained for. A task has no state, so one object serves all runs."""

    name: ClassVar[str]
    models: ClassVar[Mapping[str, tuple[type[Config], type[nn.Module]]]]  # by kind; the first is the default
    forms: ClassVar[tuple[str, ...]]  # of [data] that it learns from: "source", "pairs", "text", "demo"
    needs: ClassVar[str]  # the same in words
    usage: ClassVar[str]  # a command that uses the model in FOLDER
    face: ClassVar[str]  # what `regard.load` makes of a model: "translator"
    loss_unit: ClassVar[LossUnit] = "tokens"
    length_key: ClassVar[str] = "data.max_length"  # the setting that limits the length of a row
    compares_rows: ClassVar[bool] = False  # whether the loss of a row depends on the other rows of its batch
    predicts_tokens: ClassVar[bool] = True
    label_smoothing: ClassVar[tuple[float, str]] = (0.0, "likelihood is what counts here")  # the default and its reason
    default_model: ClassVar[str] = "learns most from the same sentences (regard compare)"  # why the first kind
    recurrent_layers: ClassVar[int] = 1  # the default of recurrent models

    # Data

    def read(self, recipe: RecipeTables) -> Corpora:
        """Read and split the data of a recipe."""
        check_files(recipe.data)
        return self.read_corpora(recipe)

    @abstractmethod
    def read_corpora(self, recipe: RecipeTables) -> Corpora:
        """Read the data, whose files exist; hold a part out where there are no validation files."""

    def held_out(self, corpora: Corpora) -> int:
        """Return the size of the validation part in the unit of data.validation."""
        return len(corpora.validation)

    @abstractmethod
    def make_tokenizers(self, recipe: RecipeTables, corpus: Corpus) -> Tokenizers:
        """Train the tokenizers on the training part."""

    @abstractmethod
    def make_data(
        self, recipe: RecipeTables, corpus: Corpus, tokenizers: Tokenizers, *, training: bool, cache: Path | None
    ) -> Data:
        """Tokenise a part of the data and cut it into batches; the validation part always into the same ones."""

    @abstractmethod
    def longest_row(self, recipe: RecipeTables, corpora: Corpora, tokenizers: Tokenizers) -> int:
        """Return the tokens of the longest row that training will meet."""

    @abstractmethod
    def full_batch(self, config: Any, rows: int, length: int, device: torch.device) -> Batch:
        """Return a batch without padding, to measure memory with: all rows of that length on each side."""

    # Learning

    @abstractmethod
    def objective(self, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
        """Return the loss that a recipe asks for, as a function of (model, batch).

        `together` gathers rows of a batch that are shared among several processes.
        """

    def validator(self, *args: Any, **options: Any) -> Validator:
        """Return what judges a model while it trains; the arguments are those of `Validator`."""
        return Validator(*args, **options)

    # Settings

    def misfits(self, recipe: RecipeTables) -> Iterator[Misfit]:
        """Yield the settings of a recipe that this task would ignore, with the reason."""
        yield from ()

    def tokenizer_defaults(self, tables: Mapping[str, Any], facts: DataFacts) -> Iterator[Choice]:
        """Yield defaults of [tokenizer] from the recipe's tables so far and the data."""
        yield from ()

    def model_defaults(self, tables: Mapping[str, Any]) -> Iterator[Choice]:
        """Yield defaults of [model] beside sizes and dropout."""
        yield from ()

    @abstractmethod
    def data_defaults(self, tables: Mapping[str, Any], facts: DataFacts, *, on_cpu: bool) -> Iterator[Choice]:
        """Yield defaults of [data]: lengths, and the size of the validation part where one is held out."""

    # Use

    def info(self, recipe: RecipeTables, train: Data, tokenizers: Tokenizers) -> dict[str, Any]:
        """Return what config.json of the trained model says for its use."""
        return {}

    @abstractmethod
    def wrap(
        self, model: nn.Module, source: Tokenizer, target: Tokenizer, *, info: dict[str, Any], pack: bool = False
    ) -> Any:
        """Return the model with its tokenizers as `regard.load` gives it; ModelError where they do not fit.

        With `pack`, weights are packed for decoding on a CPU.
        """
