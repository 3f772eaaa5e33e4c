"""Places on the grid of an input: the cells of images and frames, the patches of a series, the moments of a recording.

T frames   R rows of cells   K columns of cells   n places
"""

from __future__ import annotations

from regard.look.trace.inputs.input_trace import Place


def cell_places(grid: tuple[int, int, int], height: int, width: int) -> tuple[Place, ...]:
    """Return the cells of frames of height x width pixels, cut into a grid (T, R, K), frame by frame, row by row."""
    frames, rows, columns = grid
    high, wide = height / rows, width / columns
    return tuple(
        Place(
            (f"frame {frame}, " if frames > 1 else "") + f"row {row}, column {column}",
            (float(frame), column * wide, row * high, wide, high),
        )
        for frame in range(frames)
        for row in range(rows)
        for column in range(columns)
    )


def span_places(
    count: int, *, name: str, size: int, stride: int, columns: int, rows: int, first: int = 0
) -> tuple[Place, ...]:
    """Return `count` spans of `size` columns, each `stride` after the one before, cut off at the end of the grid.

    `first` is added to the numbers of the columns in their names.
    """
    places = []
    for i in range(count):
        start = min(i * stride, columns - 1)
        stop = min(columns, start + size)
        text = f"{name} {i}: {first + start} to {first + stop - 1}"
        places.append(Place(text, (0.0, float(start), 0.0, float(stop - start), float(rows))))
    return tuple(places)
