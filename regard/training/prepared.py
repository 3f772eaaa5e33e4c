"""What a training run, a forecast and a dry run start from. `prepare` (run/prepare.py) makes it from a recipe."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from regard.tasks.corpora import Corpora
from regard.tasks.imported_start import ImportedStart
from regard.tasks.task import Data, Tokenizers
from regard.training.recipe.defaults import Choice
from regard.training.recipe.schema import Recipe


@dataclass(frozen=True)
class Prepared:
    """A complete recipe, with its data, tokenizers and model."""

    recipe: Recipe
    corpora: Corpora
    tokenizers: Tokenizers
    train: Data
    validation: Data
    model: nn.Module
    device: torch.device
    choices: list[Choice]  # settings that were chosen, each with its reason
    start: ImportedStart | None = None  # the imported model that the run starts from, if it is one
