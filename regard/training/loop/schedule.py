"""Learning rate schedules. The rate depends on the step alone, so a resumed run needs nothing but its step.

Every schedule rises linearly from 0, reaches its peak at step `warmup`, and continues from there:

| kind | after the warm-up |
| noam | like inverse-sqrt; its peak follows from the model's width |
| inverse-sqrt | peak * sqrt(warmup / step) |
| cosine | half a cosine, down to `floor` times the peak at step `steps` |
| linear | a straight line, down to `floor` times the peak at step `steps` |
| constant | the peak |
"""

from __future__ import annotations

import math

from regard.errors import UsageError, unknown_name

SCHEDULES = ("noam", "inverse-sqrt", "cosine", "linear", "constant")
DECAYING = ("cosine", "linear")  # schedules with an end


def learning_rate(
    step: int,
    *,
    kind: str,
    peak: float,
    warmup: int,
    steps: int | None = None,
    dim: int | None = None,
    floor: float = 0.0,
) -> float:
    """Return the learning rate of a step, counted from 1.

    Vaswani et al. 2017, eq. 3 (noam); Loshchilov & Hutter 2017 (cosine).

    `peak` is the highest rate. For noam it is the factor before the paper's formula (1 in the paper), and `dim` is the
    model's width. Cosine and linear end at step `steps` and stay at `floor` times the peak after it.
    """
    check_schedule(kind=kind, peak=peak, warmup=warmup, steps=steps, dim=dim, floor=floor)
    if step < 1:
        raise ValueError(f"steps count from 1, got step={step}")
    if kind == "noam":
        assert dim is not None
        return peak * dim**-0.5 * min(step**-0.5, step * warmup**-1.5)
    if step < warmup:
        return peak * step / warmup
    if kind == "constant":
        return peak
    if kind == "inverse-sqrt":
        return peak * math.sqrt(max(warmup, 1) / step)
    assert steps is not None
    decay = min(1.0, (step - warmup) / (steps - warmup))  # from 0 at the peak to 1 at the end
    factor = (1 + math.cos(math.pi * decay)) / 2 if kind == "cosine" else 1 - decay
    return peak * (floor + (1 - floor) * factor)


def check_schedule(*, kind: str, peak: float, warmup: int, steps: int | None, dim: int | None, floor: float) -> None:
    """Raise UsageError for impossible settings, and for settings that the schedule would ignore."""
    if kind not in SCHEDULES:
        raise UsageError(unknown_name("schedule", kind, SCHEDULES))
    if not (math.isfinite(peak) and peak > 0):
        raise UsageError(f"the learning rate must be a number above 0, got {peak}")
    if warmup < 0:
        raise UsageError(f"warmup counts steps, so it cannot be {warmup}")
    if not 0 <= floor <= 1:
        raise UsageError(f"floor is a share of the highest rate, from 0 to 1; got {floor}")
    if kind == "noam":
        if dim is None:
            raise UsageError("the noam schedule follows the model's width: give dim, or choose inverse-sqrt")
        if warmup < 1:
            raise UsageError("the noam schedule needs a warmup of at least 1 step, got 0")
    if kind in DECAYING:
        if steps is None:
            raise UsageError(f"the {kind} schedule needs to know how many steps there will be: give steps")
        if warmup >= steps:
            raise UsageError(
                f"the {kind} schedule has no steps left to come down: warmup={warmup}, steps={steps}; warm up for less"
            )
    elif floor:
        raise UsageError(f"floor={floor} belongs to {' and '.join(DECAYING)}; the {kind} schedule has no floor")
