"""From a recipe to what the loop needs: data read and split, tokenizers trained, texts cut into tokens.

How that is done is up to the task of the recipe; regard/tasks has one file for each.
"""

from __future__ import annotations

from pathlib import Path

import torch

from regard.machine import free_memory
from regard.tasks.corpora import Corpora
from regard.tasks.task import Data, Tokenizers
from regard.text.files.corpus import Corpus
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.recipe.schema import Recipe

__all__ = ["Corpora", "Data", "lay", "make_data", "make_tokenizers", "read_corpora"]

MOST_TOKENS = 0.05  # of a device's free memory: the rest is for the model


def read_corpora(recipe: Recipe) -> Corpora:
    """Read the data of a recipe; without validation files a part is held out."""
    return recipe.task.read(recipe)


def make_tokenizers(recipe: Recipe, corpus: Corpus) -> Tokenizers:
    """Train the source's and the target's tokenizer; one and the same where they are shared or there is one side."""
    return recipe.task.make_tokenizers(recipe, corpus)


def make_data(
    recipe: Recipe,
    corpora: Corpora,
    source: Tokenizer,
    target: Tokenizer,
    *,
    cache: Path | None = None,
    device: torch.device | None = None,
) -> tuple[Data, Data]:
    """Tokenise the training and the validation part; the latter is always cut into the same batches.

    The folder `cache` keeps the tokens for the next start. They are moved to the device where they fit.
    """
    parts = []
    for name, corpus in (("train", corpora.train), ("validation", corpora.validation)):
        folder = cache and cache / name
        data = recipe.task.make_data(recipe, corpus, (source, target), training=name == "train", cache=folder)
        parts.append(data)
    for data in parts:
        data.where = lay(data, device)
    train, validation = parts
    return train, validation


def lay(data: Data, device: torch.device | None) -> str:
    """Move the tokens to a device if they take little of its memory; return where they are and why."""
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
