"""Demo series: hourly values with a daily and a weekly rhythm, a slow trend and noise. Free of rights.

T hours   C columns
"""

from __future__ import annotations

import numpy as np

from regard.arrays.samples import ArrayReport
from regard.arrays.series import Series

COLUMNS = ("power", "heat", "traffic")
DAY, WEEK, YEAR = 24, 168, 8766  # hours
NOISE = 0.3  # of the rhythms' size
MEMORY = 0.8  # share of the noise that remains after an hour
START = np.datetime64("2024-01-01T00")


def demo_series(hours: int, *, seed: int = 1) -> Series:
    """Return `hours` rows of three columns; each has its own rhythm, trend and noise."""
    generator = np.random.Generator(np.random.PCG64(seed))
    time = np.arange(hours)
    values = np.empty((hours, len(COLUMNS)))
    for i in range(len(COLUMNS)):
        daily, weekly, yearly = generator.uniform(0.6, 1.4, size=3)
        phase = generator.uniform(0, 2 * np.pi, size=3)
        shape = np.sin(2 * np.pi * time / DAY + phase[0]) + 0.4 * np.sin(4 * np.pi * time / DAY + phase[1])
        week = np.sin(2 * np.pi * time / WEEK + phase[2])
        trend = yearly * np.sin(2 * np.pi * time / YEAR)
        noise = np.empty(hours)
        last = 0.0
        for hour, step in enumerate(generator.normal(0, NOISE, size=hours)):
            noise[hour] = last = MEMORY * last + step
        values[:, i] = 10 * (i + 1) + 3 * (daily * (1 + 0.3 * week) * shape + 0.5 * weekly * week + trend + noise)
    times = tuple(np.datetime_as_string(START + time.astype("timedelta64[h]"), unit="s").tolist())
    content = f"{hours:,} points in time with {len(COLUMNS)} columns"
    return Series(values, COLUMNS, times, ArrayReport(("demo series",), content), first_line=0)
