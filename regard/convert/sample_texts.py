"""The text that a model is converted by: batches that show its attention what it sees in use.

A translator needs both sides, and writes the target itself: what it does with a text is what shall stay as it is.

    B batch   n source tokens   m target tokens
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from regard.api.embedder import Embedder
from regard.api.translator import Translator
from regard.api.writer import Writer
from regard.errors import DataError
from regard.text.tokenizers.special_tokens import END, START, pad_batch

LINES = 1000  # of a text that are read
BATCH_TOKENS = 1024  # of a batch at most, a longer text alone; the larger side of a translator counts
MEASURED = 4  # batches that are for measuring, not more than one of EACH; the others are learnt from
EACH = 8

Tokens = tuple[Tensor, ...]  # what the model is called with: (source, inputs) or (tokens,)


def calibration_batches(face: Translator | Writer | Embedder, lines: Sequence[str]) -> list[Tokens]:
    """The lines as batches of about one length, on the model's device; empty ones are no text."""
    lines = [line for line in lines if line.strip()][:LINES]
    samples: list[tuple[list[int], ...]]
    if isinstance(face, Translator):
        found = [part for one in face.translate(lines, beam=1) for part in one.parts or [one]]
        samples = [(list(one.source_ids), [START, *one.ids[:-1]]) for one in found if one.ids]
    elif isinstance(face, Writer):
        tokens = [START, *face.tokenizer.encode("\n".join(lines))] if lines else []
        windows = [tokens[start : start + face.window] for start in range(0, len(tokens), face.window)]
        samples = [(window,) for window in windows if len(window) == len(windows[0])]
    else:
        samples = [([*ids, END],) for ids in face.tokenizer.encode_all(lines)]
    if not samples:
        raise DataError("there is no text to calibrate with: give some lines such as the model will see")
    device = next(face.model.parameters()).device
    samples.sort(key=lambda sample: [len(side) for side in sample])
    batches: list[list[tuple[list[int], ...]]] = [[]]
    for sample in samples:  # they grow longer, so the last one says how wide the batch is
        if batches[-1] and (len(batches[-1]) + 1) * max(map(len, sample)) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(sample)
    return [tuple(pad_batch(side).to(device) for side in zip(*batch, strict=True)) for batch in batches]


def held_out(batches: Sequence[Tokens]) -> tuple[list[Tokens], list[Tokens]]:
    """(batches to learn from, batches to measure with); a text of one batch is both."""
    step = max(EACH, len(batches) // MEASURED)
    places = range(step // 2, len(batches), step)[:MEASURED]
    measured = [batches[place] for place in places] or list(batches[:1])
    return [batch for place, batch in enumerate(batches) if place not in places], measured
