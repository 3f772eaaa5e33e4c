"""How good captions are: the share that is exactly right, and whether attention points at what a word names.

G4.

    W words of a caption   T frames   R rows and K columns of cells
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.arrays.captions import CaptionedImages


def exact_share(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of captions that equal their references."""
    pairs = list(zip(outputs, references, strict=True))
    return sum(output == reference for output, reference in pairs) / max(1, len(pairs))


def pointing_share(maps: Sequence[NDArray], texts: Sequence[str], images: CaptionedImages, cell: int) -> float:
    """Return the share of nouns whose attention has its peak on an item that they name; NaN without right captions.

    `maps` are the weights of each word over the cells, (W, T, R, K), and `cell` the pixels on a side of one. The centre
    of the cell with the highest weight must lie in the box of an item. Only right captions count, because the words of
    others name something else.
    """
    assert images.places is not None
    hits = total = 0
    for weights, text, caption, places in zip(maps, texts, images.captions, images.places, strict=True):
        if text != caption:
            continue
        for word, boxes in places.items():
            frame, row, column = np.unravel_index(int(weights[word].argmax()), weights[word].shape)
            centre = (int(row) + 0.5) * cell, (int(column) + 0.5) * cell
            hits += any(box.contains(int(frame), *centre) for box in boxes)
            total += 1
    return hits / total if total else float("nan")
