"""From which length on random features are faster than exact attention: measured, kept as a table, looked up.

F3. Exact attention takes a time that grows with the square of the length, random features one that grows with the
length; which is less depends on the device, the width of a head and the number of features. `regard bench --attention`
measures it. A table comes with regard, crossover.json; the user's own, in the cache folder, goes before it.

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
from regard.attention.linear.dispatch import attend_features
from regard.attention.linear.features import RandomFeatures
from regard.errors import DataError
from regard.files import cache_folder, replace_file
from regard.machine import device_name
from regard.version import __version__

SHIPPED = Path(__file__).with_name("crossover.json")
SHORTEST = 256  # and its doubles, up to all tokens as one text
WIDTHS = (32, 64)
FEATURES = (64, 128, 256)
HEADS = 8
SIZES = {"cpu": (8192, "float32"), "cuda": (65536, "bfloat16")}  # tokens of a batch, B · L, and the number format
ROUNDS = 3

Watch = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Row:
    """Milliseconds of causal attention, forward, for heads of one width and one number of features, by length."""

    width: int
    features: int
    exact: list[float]
    random: list[float]


@dataclass(frozen=True)
class Crossover:
    """What was measured on one device."""

    device: str  # "cpu", "mps", or a GPU's name
    threads: int
    dtype: str
    heads: int
    tokens: int  # of a batch, B · L
    lengths: list[int]
    rows: list[Row]
    date: str
    torch: str
    regard: str

    def nearest(self, width: int, features: int) -> Row:
        """The row of these sizes, or of those that come nearest by their ratio."""
        return min(
            self.rows,
            key=lambda row: abs(math.log(row.width / width)) + abs(math.log(row.features / features)),
        )

    def length(self, row: Row) -> int | None:
        """The length from which on random features are faster; None where they never were."""
        return crossing(self.lengths, row.exact, row.random)

    def text(self) -> str:
        """The table as Markdown: milliseconds by length, and the length from which on random features are faster."""
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
                lines.append(f"| {length:,} | {' | '.join(f'{one:.3g}' for one in times)} |")
            found = [self.length(row) for row in rows]
            told = ["never" if one is None else f"from {one:,}" for one in found]
            lines.append(f"| faster than exact | | {' | '.join(told)} |")
        return "\n".join(lines)


def crossing(lengths: Sequence[int], exact: Sequence[float], random: Sequence[float]) -> int | None:
    """Where `random` falls below `exact` for good, between two lengths on a line in the logarithms of both.

    The least length where it is always below; None where it is not so at the greatest.
    """
    ahead = [math.log(one / other) for one, other in zip(exact, random, strict=True)]  # above 0: random is faster
    behind = [number for number, gain in enumerate(ahead) if gain <= 0]
    if not behind:
        return lengths[0]
    last = behind[-1]
    if last == len(lengths) - 1:
        return None
    share = -ahead[last] / (ahead[last + 1] - ahead[last])
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
    """Measure exact attention and random features side by side, a batch of as many tokens at every length.

    The contenders take turns, after one turn that does not count; the median of the turns is kept. `watch` sees the
    cells go by.
    """
    usual, dtype = SIZES.get(device.type, SIZES["cpu"])
    tokens = usual if tokens is None else tokens
    lengths = lengths or [SHORTEST << double for double in range((tokens // SHORTEST).bit_length())]
    cells = [(width, length) for width in widths for length in lengths]
    times: dict[tuple[int, int], list[float]] = {}  # of each cell, for each contender: exact attention is the first
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
            Row(width, number, by_length(width, 0), by_length(width, place))
            for width in widths
            for place, number in enumerate(features, start=1)
        ],
        date=date.today().isoformat(),
        torch=torch.__version__,
        regard=__version__,
    )


@torch.inference_mode()
def _take_turns(
    contenders: Sequence[Callable[[], Any]], device: torch.device, clock: Callable[[], float]
) -> list[float]:
    """The typical milliseconds of each, to four digits."""

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
    """The file with what this user has measured."""
    return cache_folder() / "crossover.json"


def read_tables(path: Path) -> list[Crossover]:
    """The measurements in a file, one for each device; none where there is no file."""
    if not path.exists():
        return []
    try:
        tables = json.loads(path.read_text(encoding="utf-8"))
        return [Crossover(**{**one, "rows": [Row(**row) for row in one["rows"]]}) for one in tables]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is no table of `regard bench --attention` ({error}): remove it, or measure anew"
        ) from error


def write_table(table: Crossover, path: Path) -> None:
    """Put the measurement into the file, in the place of what was measured before on the same device."""
    others = [one for one in read_tables(path) if one.device != table.device]
    path.parent.mkdir(parents=True, exist_ok=True)
    told = sorted([*others, table], key=lambda one: one.device)
    replace_file(path, (json.dumps([dataclasses.asdict(one) for one in told], indent=1) + "\n").encode())


def find_table(device: torch.device) -> Crossover | None:
    """What is known of this device: the user's own measurement, else the one that comes with regard."""
    name = device_name(device)
    return next((table for path in (own_table(), SHIPPED) for table in read_tables(path) if table.device == name), None)
