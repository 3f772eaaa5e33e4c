"""What `prepare` makes from a recipe and what a training, a forecast and a dry run start from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.loop.train_step import Count
from regard.training.recipe.defaults import Choice
from regard.training.recipe.schema import Recipe
from regard.training.run.prepare import Corpora, Data


@dataclass(frozen=True)
class Prepared:
    """A complete recipe, with its data, tokenizers and model."""

    recipe: Recipe
    corpora: Corpora
    tokenizers: tuple[Tokenizer, Tokenizer]  # source, target
    train: Data
    validation: Data
    model: nn.Module
    device: torch.device
    choices: list[Choice]  # settings that were chosen, each with its reason
    fingerprint: str  # of the data

    @property
    def count(self) -> Count:
        """What the loss is divided by: a sentence encoder's loss is over pairs of sentences, not over tokens."""
        return "samples" if self.recipe.kind == "encoder" else "tokens"
