"""The crossover length, from which random features are faster than exact attention: measure it, store it, look it up.

F3. The time of exact attention is quadratic in the length, that of random features is linear; which one is less depends
on the device, the width of a head and the number of features. `regard bench --attention` measures it. regard ships a
table, crossover.json; the user's own table in the cache folder takes precedence.

    B batch   H heads   L length   d width   F features
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from regard.attention.dispatch import attend
from regard.attention.linear.features import RandomFeatures
from regard.errors import DataError
from regard.kernels.linear.attend import attend_features
from regard.machine import device_name
from regard.system.files import cache_folder, replace_file
from regard.version import __version__

SHIPPED = Path(__file__).with_name("crossover.json")
SHORTEST = 256  # tokens; then powers of two times this, up to all tokens as one text
WIDTHS = (32, 64)
FEATURES = (64, 128, 256)
HEADS = 8
SIZES = {"cpu": (8192, "float32"), "cuda": (65536, "bfloat16")}  # tokens of a batch, B · L, and the dtype
ROUNDS = 3

Watch = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class CrossoverRow:
    """Milliseconds of a causal forward pass by length, for one width of heads and one number of features."""

    width: int
    features: int
    exact: list[float]
    random: list[float]


@dataclass(frozen=True)
class Crossover:
    """The measurements on one device."""

    device: str  # "cpu", "mps", or a GPU's name
    threads: int
    dtype: str
    heads: int
    tokens: int  # of a batch, B · L
    lengths: list[int]
    rows: list[CrossoverRow]
    date: str
    torch: str
    regard: str

    def nearest(self, width: int, features: int) -> CrossoverRow:
        """Return the row of these sizes, or the closest one by the ratio of the sizes."""
        return min(
            self.rows,
            key=lambda row: abs(math.log(row.width / width)) + abs(math.log(row.features / features)),
        )

    def length(self, row: CrossoverRow) -> int | None:
        """Return the length from which random features are faster, or None if they never were."""
        return crossing(self.lengths, row.exact, row.random)

    def text(self) -> str:
        """Return the table as Markdown: milliseconds by length, and the crossover lengths."""
        where = f"{self.threads} threads of a CPU" if self.device == "cpu" else self.device
        lines = [
            f"Causal attention, forward, {self.heads} heads, {self.tokens:,} tokens in each batch, {self.dtype}, on "
            f"{where}; milliseconds of a call by itself, Python's part included. Measured on {self.date}, torch "
            f"{self.torch}."
        ]
        for width in dict.fromkeys(row.width for row in self.rows):
            rows = [row for row in self.rows if row.width == width]
            names = ["exact", *(f"{row.features} features" for row in rows)]
            lines += ["", f"| heads of width {width}, length | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
            for number, length in enumerate(self.lengths):
                times = [rows[0].exact[number], *(row.random[number] for row in rows)]
                lines.append(f"| {length:,} | {' | '.join(f'{milliseconds:.3g}' for milliseconds in times)} |")
            crossings = [self.length(row) for row in rows]
            cells = ["never" if crossing is None else f"from {crossing:,}" for crossing in crossings]
            lines.append(f"| faster than exact | | {' | '.join(cells)} |")
        return "\n".join(lines)


def crossing(lengths: Sequence[int], exact: Sequence[float], random: Sequence[float]) -> int | None:
    """Return the length from which `random` stays below `exact`, interpolated linearly in log time and log length.

    The first length if it is always below; None if it is not below at the last length.
    """
    gains = [math.log(a / b) for a, b in zip(exact, random, strict=True)]  # above 0: random is faster
    slower = [index for index, gain in enumerate(gains) if gain <= 0]
    if not slower:
        return lengths[0]
    last = slower[-1]
    if last == len(lengths) - 1:
        return None
    share = -gains[last] / (gains[last + 1] - gains[last])
    return round(lengths[last] * (lengths[last + 1] / lengths[last]) ** share)


def measure_crossover(
    device: torch.device,
    *,
    lengths: Sequence[int] = (),
    widths: Sequence[int] = WIDTHS,
    features: Sequence[int] = FEATURES,
    tokens: int | None = None,
    watch: Watch = iter,
    clock: Callable[[], float] = time.perf_counter,
) -> Crossover:
    """Measure exact attention and random features at each length, on batches with the same number of tokens.

    The contenders take turns, after a warm-up turn; the result is the median of the turns. `watch` wraps the cells, for
    a progress bar.
    """
    usual, dtype = SIZES.get(device.type, SIZES["cpu"])
    tokens = usual if tokens is None else tokens
    lengths = lengths or [SHORTEST << double for double in range((tokens // SHORTEST).bit_length())]
    cells = [(width, length) for width in widths for length in lengths]
    times: dict[tuple[int, int], list[float]] = {}  # of each cell, by contender; exact attention is the first
    for width, length in watch(cells):
        q, k, v = torch.randn(
            3, max(tokens // length, 1), HEADS, length, width, device=device, dtype=getattr(torch, dtype)
        )
        contenders: list[Callable[[], Any]] = [partial(attend, q, k, v, causal=True)]
        for number in features:
            phi = RandomFeatures(dim=width, features=number, heads=HEADS).to(device)
            contenders.append(partial(attend_features, q, k, v, features=phi, causal=True))
        times[width, length] = _take_turns(contenders, device, clock)

    def by_length(width: int, contender: int) -> list[float]:
        return [times[width, length][contender] for length in lengths]

    return Crossover(
        device=device_name(device),
        threads=torch.get_num_threads(),
        dtype=dtype,
        heads=HEADS,
        tokens=tokens,
        lengths=list(lengths),
        rows=[
            CrossoverRow(width, number, by_length(width, 0), by_length(width, column))
            for width in widths
            for column, number in enumerate(features, start=1)
        ],
        date=date.today().isoformat(),
        torch=torch.__version__,
        regard=__version__,
    )


@torch.inference_mode()
def _take_turns(
    contenders: Sequence[Callable[[], Any]], device: torch.device, clock: Callable[[], float]
) -> list[float]:
    """Return the median milliseconds of each contender, to four digits."""

    def now() -> float:
        if device.type != "cpu":
            getattr(torch, device.type).synchronize()
        return clock()

    taken: list[list[float]] = [[] for _ in contenders]
    for _ in range(ROUNDS + 1):
        for times, contender in zip(taken, contenders, strict=True):
            start = now()
            contender()
            times.append(now() - start)
    return [float(f"{1000 * median(times[1:]):.4g}") for times in taken]


def own_table() -> Path:
    """Return the path of the user's own table."""
    return cache_folder() / "crossover.json"


def read_tables(path: Path) -> list[Crossover]:
    """Read the measurements in a file, one for each device; none if there is no file."""
    if not path.exists():
        return []
    try:
        tables = json.loads(path.read_text(encoding="utf-8"))
        return [Crossover(**{**table, "rows": [CrossoverRow(**row) for row in table["rows"]]}) for table in tables]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a table of `regard bench --attention` ({error}): remove it, or measure again"
        ) from error


def write_table(table: Crossover, path: Path) -> None:
    """Write the measurement to the file, replacing an earlier one of the same device."""
    others = [other for other in read_tables(path) if other.device != table.device]
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = sorted([*others, table], key=lambda table: table.device)
    replace_file(path, (json.dumps([dataclasses.asdict(table) for table in tables], indent=1) + "\n").encode())


def find_table(device: torch.device) -> Crossover | None:
    """Return the measurements of this device: the user's own, else those that regard ships, else None."""
    name = device_name(device)
    return next((table for path in (own_table(), SHIPPED) for table in read_tables(path) if table.device == name), None)
