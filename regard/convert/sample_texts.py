"""Calibration text for a conversion: batches like those that the model gets in use.

A translator needs both sides; its own translations are the targets, because the conversion should preserve them.

    B batch   n source tokens   m target tokens
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from regard.api.embedder import Embedder
from regard.api.translator import Translator
from regard.api.writer import Writer
from regard.errors import DataError
from regard.text.tokenizers.special_tokens import START, pad_batch

MAX_LINES = 1000  # of a text
MAX_BATCH_TOKENS = 1024  # on the longer side; a longer text is a batch of its own
MEASURED_BATCHES = 4  # used for measuring, at most one in MIN_SPACING; the others are for training
MIN_SPACING = 8  # batches

Tokens = tuple[Tensor, ...]  # what the model is called with: (source, inputs) or (tokens,)


def calibration_batches(face: Translator | Writer | Embedder, lines: Sequence[str]) -> list[Tokens]:
    """Return the lines as batches of similar length, on the model's device; empty lines are ignored."""
    lines = [line for line in lines if line.strip()][:MAX_LINES]
    samples: list[tuple[list[int], ...]]
    if isinstance(face, Translator):
        translations = [part for whole in face.translate(lines, beam=1) for part in whole.parts or [whole]]
        samples = [(list(part.source_ids), [START, *part.ids[:-1]]) for part in translations if part.ids]
    elif isinstance(face, Writer):
        tokens = face.begin("\n".join(lines)) if lines else []
        windows = [tokens[start : start + face.window] for start in range(0, len(tokens), face.window)]
        samples = [(window,) for window in windows if len(window) == len(windows[0])]
    else:
        samples = [(face.token_ids(line),) for line in lines]
    if not samples:
        raise DataError("there is no text to calibrate with: give some lines such as the model will see")
    device = next(face.model.parameters()).device
    samples.sort(key=lambda sample: [len(side) for side in sample])
    batches: list[list[tuple[list[int], ...]]] = [[]]
    for sample in samples:  # sorted by length, so the last one determines the width of the batch
        if batches[-1] and (len(batches[-1]) + 1) * max(map(len, sample)) > MAX_BATCH_TOKENS:
            batches.append([])
        batches[-1].append(sample)
    return [tuple(pad_batch(side).to(device) for side in zip(*batch, strict=True)) for batch in batches]


def held_out(batches: Sequence[Tokens]) -> tuple[list[Tokens], list[Tokens]]:
    """Return the batches for training and those for measuring; a single batch is used for both."""
    step = max(MIN_SPACING, len(batches) // MEASURED_BATCHES)
    numbers = range(step // 2, len(batches), step)[:MEASURED_BATCHES]
    measured = [batches[number] for number in numbers] or list(batches[:1])
    return [batch for number, batch in enumerate(batches) if number not in numbers], measured
