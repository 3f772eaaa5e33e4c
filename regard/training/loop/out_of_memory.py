"""What a step does when a batch does not fit into memory: split it, and explain when halves do not fit either."""

from __future__ import annotations

import dataclasses

from regard.text.batches.batch import Batch
from regard.training.recipe.schema import TrainingRecipe


def halves(batch: Batch) -> list[Batch]:
    """Split a batch by rows; the second half is empty if there is only one row."""
    middle = (len(batch.labels) + 1) // 2
    parts = []
    for rows in (slice(0, middle), slice(middle, None)):
        labels = batch.labels[rows]
        source = None if batch.source is None else batch.source[rows]
        parts.append(
            dataclasses.replace(
                batch,
                ids=batch.ids[rows],
                source=source,
                inputs=batch.inputs[rows],
                labels=labels,
                support=None if batch.support is None else batch.support[rows],
                tokens=int((labels != batch.ignored).sum()),
            )
        )
    return parts


def out_of_memory(micro_batches: list[Batch], recipe: TrainingRecipe) -> str:
    """Return the message for the case that not even halves fit."""
    largest = max(micro_batches, key=lambda batch: batch.labels.numel())
    sides = [largest.labels.shape[1]] if largest.source is None else [largest.source.shape[1], largest.labels.shape[1]]
    tokens, parts = max(1, (recipe.batch_tokens or 4) // 4), 4 * (recipe.accumulate or 1)
    return (
        f"out of memory: a batch of {len(largest.labels)} rows with {' and '.join(map(str, sides))} tokens did not "
        f"fit, and neither did its halves. Try --set training.batch_tokens={tokens} --set training.accumulate={parts}, "
        f"which learns the same, into another --out; or use a smaller model. The last checkpoint is intact"
    )
