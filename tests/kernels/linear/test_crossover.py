"""The table of lengths from which on random features are faster: measured, kept, found again."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.kernels.linear import crossover
from regard.kernels.linear.crossover import (
    Crossover,
    CrossoverRow,
    crossing,
    find_table,
    measure_crossover,
    own_table,
    read_tables,
    write_table,
)

CPU = torch.device("cpu")


def table(device: str = "cpu", date: str = "2026-01-01") -> Crossover:
    rows = [CrossoverRow(32, 64, [1.0, 4.0], [2.0, 2.0]), CrossoverRow(64, 128, [2.0, 8.0], [9.0, 9.0])]
    return Crossover(device, 2, "float32", 8, 512, [256, 512], rows, date, "2.0", "1.0")


def test_where_they_cross() -> None:
    assert crossing([256, 512], [1.0, 4.0], [2.0, 2.0]) == 362  # 256 · √2: half of the way in the logarithms
    assert crossing([256, 512, 1024], [1, 3, 9], [3, 3, 3]) == 512  # even there, and faster from there on
    assert crossing([256, 512], [3, 9], [1, 1]) == 256  # always faster
    assert crossing([256, 512], [1, 1], [3, 2]) is None  # never
    assert crossing([1, 2, 4, 8], [2, 1, 1, 8], [1, 2, 2, 2]) == pytest.approx(5, abs=1)  # for good, not by chance


@given(st.floats(0.1, 10.0), st.integers(8, 12))
def test_a_square_and_a_line_cross_where_they_do(factor: float, power: int) -> None:
    """exact = L² and random = c L are equal at L = c, and on these axes both are lines."""
    lengths = [2**i for i in range(power - 6, power + 6)]
    place = factor * 2**power
    found = crossing(lengths, [n * n for n in lengths], [place * n for n in lengths])
    assert found == pytest.approx(place, abs=1)


def test_measuring_takes_turns() -> None:
    """By a clock that counts: every cell takes one tick, the turn that does not count aside."""
    ticks = count()
    seen: list[tuple[int, int]] = []
    found = measure_crossover(
        CPU, lengths=(8, 16), widths=(4, 8), features=(2, 4), tokens=16, clock=lambda: float(next(ticks)),
        watch=lambda cells: [seen.append(cell) or cell for cell in cells],
    )  # fmt: skip
    assert seen == [(4, 8), (4, 16), (8, 8), (8, 16)]
    assert next(ticks) == 2 * 4 * 3 * (crossover.ROUNDS + 1)  # cells, contenders, turns
    assert [(row.width, row.features) for row in found.rows] == [(4, 2), (4, 4), (8, 2), (8, 4)]
    assert all(row.exact == row.random == [1000.0, 1000.0] for row in found.rows)
    assert (found.device, found.dtype, found.lengths, found.tokens) == ("cpu", "float32", [8, 16], 16)


def test_lengths_double_up_to_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossover, "SHORTEST", 4)
    assert measure_crossover(CPU, widths=(4,), features=(2,), tokens=16).lengths == [4, 8, 16]


def test_the_own_table_goes_before_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(crossover, "SHIPPED", tmp_path / "shipped.json")
    assert find_table(CPU) is None
    write_table(table(date="shipped"), crossover.SHIPPED)
    write_table(table("a GPU"), crossover.SHIPPED)
    found = find_table(CPU)
    assert found is not None and found == table(date="shipped")  # written and read back, rows and all
    write_table(table(date="own"), own_table())
    write_table(table(date="anew"), own_table())
    found = find_table(CPU)
    assert found is not None and found.date == "anew"
    assert [one.date for one in read_tables(own_table())] == ["anew"]  # in the old one's place
    assert [one.device for one in read_tables(crossover.SHIPPED)] == ["a GPU", "cpu"]


def test_the_nearest_row() -> None:
    found = table()
    assert found.nearest(64, 128) is found.rows[1] and found.nearest(128, 512) is found.rows[1]
    assert found.nearest(32, 64) is found.rows[0] and found.nearest(16, 100) is found.rows[0]
    assert found.length(found.rows[0]) == 362 and found.length(found.rows[1]) is None


def test_as_text() -> None:
    text = table().text()
    for part in ("8 heads, 512 tokens", "2 threads of a CPU", "| 256 | 1 | 2 |", "| from 362 |", "| never |"):
        assert part in text


@pytest.mark.parametrize("content", ["{", "[1]", '[{"rows": []}]', '{"rows": 1}'])
def test_what_is_no_table(tmp_path: Path, content: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"is not a table of `regard bench --attention`.*remove it, or measure again"):
        read_tables(path)
    with pytest.raises(DataError):
        write_table(table(), path)
    assert path.read_text(encoding="utf-8") == content  # and it is left alone


def test_the_shipped_table_can_be_read() -> None:
    shipped = read_tables(crossover.SHIPPED)
    assert "cpu" in {one.device for one in shipped}
    for one in shipped:
        assert one.rows and all(len(row.exact) == len(row.random) == len(one.lengths) for row in one.rows)
