"""Cut a series into past and future (G6)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def past_and_future(series: Tensor, past: int, horizon: int) -> tuple[Tensor, Tensor]:
    """Series (N); return all windows: past values, scaled (B, past), and the values after them, scaled (B, horizon)."""
    raise NotImplementedError
'''


def reference(
    series: Tensor, past: int, horizon: int, *, overlap: int = 0, statistics: str = "past", last: int = 0
) -> tuple[Tensor, Tensor]:
    """Return windows scaled by the mean and the standard deviation (divided by n) of their past."""
    count = len(series) - past - horizon + 1 - last
    X = torch.stack([series[i : i + past] for i in range(count)])
    Y = torch.stack([series[i + past - overlap : i + past + horizon - overlap] for i in range(count)])
    whole = {"past": X, "window": torch.cat([X, Y], 1), "series": series.expand(count, -1), "future": Y}
    base = whole[statistics if statistics in whole else "past"]
    mean, deviation = base.mean(1, keepdim=True), base.std(1, keepdim=True, unbiased=False)
    if statistics == "none":
        return X, Y
    if statistics == "apart":
        own_mean, own_deviation = Y.mean(1, keepdim=True), Y.std(1, keepdim=True, unbiased=False)
        return (X - mean) / deviation, (Y - own_mean) / own_deviation
    return (X - mean) / deviation, (Y - mean) / deviation


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a short series", (draw(9), 4, 2))
    yield Case("a series with a trend", (draw(20) + torch.arange(20), 6, 3))


EXERCISE = CodeExercise(
    question="""
        A model should forecast the next `horizon` values of a series from the last `past` ones. Make its training data:
        all windows, the first beginning at the first value, the last ending at the last value.

        Series are of any size, so each window is scaled: subtract the mean of its past and divide by the standard
        deviation of its past (the root of the mean squared deviation, without n - 1). The future is scaled with the
        same two numbers.
    """,
    function="past_and_future",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "future-overlaps-past",
            "The future begins with the last value of the past.",
            "The model is asked for a number that it was given: the error looks too small.",
            overlap=1,
        ),
        mistake(
            "future-in-the-statistics",
            "Mean and deviation are those of the whole window, future included.",
            "They tell the model something about the future, which nobody knows when it is used.",
            statistics="window",
        ),
        mistake(
            "statistics-of-the-series",
            "Mean and deviation are those of the whole series.",
            "They contain the future, too, and do not follow a trend.",
            statistics="series",
        ),
        mistake(
            "future-scaled-apart",
            "The future is scaled by its own mean and deviation.",
            "To undo the scaling of a forecast one would have to know the future.",
            statistics="apart",
        ),
        mistake(
            "not-scaled",
            "The windows are not scaled.",
            "A series in millions and one in percent cannot share a model then.",
            statistics="none",
        ),
        mistake(
            "last-window-lost",
            "The last window is missing.",
            "Of N values there are N - past - horizon + 1 windows.",
            last=1,
        ),
    ),
)
