"""Batches from corpora: the training and the validation part as tokens, on the device where they fit.

How texts become tokens and batches is up to the recipe's task; regard/tasks has one file for each.
"""

from __future__ import annotations

from pathlib import Path

import torch

from regard.machine import free_memory
from regard.tasks.corpora import Corpora
from regard.tasks.imported_start import ImportedStart
from regard.tasks.task import Data
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.recipe.schema import Recipe

MAX_TOKEN_SHARE = 0.05  # of a device's free memory: the rest is for the model


def make_data(
    recipe: Recipe,
    corpora: Corpora,
    source: Tokenizer,
    target: Tokenizer,
    *,
    cache: Path | None = None,
    device: torch.device | None = None,
    start: ImportedStart | None = None,
) -> tuple[Data, Data]:
    """Tokenise the training and the validation part; the batches of the validation part are always the same.

    The folder `cache` stores the tokens for the next start. They are moved to the device if they fit there. `start` is
    the imported model that the run starts from, if it is one.
    """
    task, tokenizers = recipe.task, (source, target)
    parts = []
    for name, corpus in (("train", corpora.train), ("validation", corpora.validation)):
        folder, is_training = cache and cache / name, name == "train"
        if start is None:
            data = task.make_data(recipe, corpus, tokenizers, training=is_training, cache=folder)
        else:
            data = task.make_imported_data(recipe, corpus, tokenizers, start, training=is_training, cache=folder)
        parts.append(data)
    for data in parts:
        data.where = place_tokens(data, device)
    train, validation = parts
    return train, validation


def place_tokens(data: Data, device: torch.device | None) -> str:
    """Move the tokens to a device if they take little of its memory; return where they are and why."""
    if device is None or device.type == "cpu":
        return "in main memory, where the model is"
    if device.type == "cuda" and device.index is None:  # which one is current differs from thread to thread
        device = torch.device("cuda", torch.cuda.current_device())
    free = free_memory(str(device))
    share = f"{data.size / 2**20:,.0f} MB, {data.size / max(free, 1):.1%} of what is free on {device}"
    if data.size > MAX_TOKEN_SHARE * free:
        return f"in main memory: {share}, and more than {MAX_TOKEN_SHARE:.0%} shall not go to tokens"
    data.move(device)
    return f"on {device}: {share}"
