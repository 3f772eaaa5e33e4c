"""Cut images into patches (Dosovitskiy et al. 2021; G5)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def patches(images: Tensor, size: int) -> Tensor:
    """Images (B, C, height, width); return their patches as rows (B, number of patches, C · size · size)."""
    raise NotImplementedError
'''


def reference(
    images: Tensor, size: int, *, cut: str = "blocks", order: str = "rows", channels: str = "first"
) -> Tensor:
    """Return the patches row by row, each with its channels one after the other."""
    B, C, height, width = images.shape
    rows, columns = height // size, width // size
    if cut == "reshape":
        return images.reshape(B, rows * columns, C * size * size)
    blocks = images.reshape(B, C, rows, size, columns, size)  # (B, C, row, y, column, x)
    grid = (2, 4) if order == "rows" else (4, 2)
    inside = {"first": (1, 3, 5), "last": (3, 5, 1), "transposed": (1, 5, 3)}[channels]
    return blocks.permute(0, *grid, *inside).reshape(B, rows * columns, C * size * size)


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a grey image", (draw(1, 1, 4, 4), 2))
    yield Case("images with three colours", (draw(2, 3, 6, 6), 3))
    yield Case("a wide image", (draw(1, 2, 4, 8), 2))


EXERCISE = CodeExercise(
    question="""
        To a Vision Transformer, an image is a sequence of patches. Cut images into patches of size × size pixels, row
        by row from the top left. A patch becomes one row of numbers: first its red pixels line by line, then green,
        then blue (the channels in their order). Height and width are multiples of the size.
    """,
    function="patches",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "reshape-only",
            "The patches are made by one reshape, so each has stripes of the image instead of a square.",
            "The shape is right and the content is not: split height and width into (number, size) each, then permute.",
            cut="reshape",
        ),
        mistake(
            "column-by-column",
            "The patches are in the order of columns, from top to bottom.",
            "Learned positions belong to a place in the image: trained weights expect rows.",
            order="columns",
        ),
        mistake(
            "channels-last",
            "Within a patch, the colours of each pixel stand together.",
            "The projection's weights expect all red pixels first.",
            channels="last",
        ),
        mistake(
            "patches-transposed",
            "Each patch is transposed: its pixels are read column by column.",
            "Keep the line (y) before the column (x) when you permute.",
            channels="transposed",
        ),
    ),
)
