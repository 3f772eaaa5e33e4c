"""Reading series: CSV files as they come, and clear errors for those that cannot be used."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from regard.arrays.series import Scale, Series, make_series, read_series
from regard.errors import DataError

TABLE = "date,a,b\n2024-01-01,1,2.5\n2024-01-02,3,-4e1\n2024-01-03,5,6\n"


def read(tmp_path: Path, text: str, **options: object) -> Series:
    path = tmp_path / "series.csv"
    path.write_text(text, encoding="utf-8")
    return read_series(path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        TABLE + "\n\n",
        TABLE.replace("\n", "\r\n"),
        "\ufeff" + TABLE,
        TABLE.replace(",", ";"),
        TABLE.replace(",", "\t"),
        TABLE.replace("date", "when"),
        TABLE.replace("2024-01-0", "1").replace("date", "Time"),
        TABLE.replace("1,2.5", '"1", 2.5'),
    ],
    ids=["plain", "empty lines", "CRLF", "BOM", "semicolons", "tabs", "other name", "numbers as times", "quoted"],
)
def test_a_table_is_read(tmp_path: Path, text: str) -> None:
    series = read(tmp_path, text)
    assert series.columns == ("a", "b") and series.times is not None and len(series) == 3
    np.testing.assert_array_equal(series.values, [[1, 2.5], [3, -40], [5, 6]])
    assert series.location(2).endswith("series.csv:4") and not series.report.changes


def test_columns_are_chosen_and_a_file_may_be_compressed(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "x.csv.gz", "wt") as file:
        file.write("a,city,b\n1,Paris,2\n3,Rome,4\n")
    series = read_series(tmp_path / "x.csv.gz", ["b", "a"])
    assert series.columns == ("b", "a") and series.times is None
    np.testing.assert_array_equal(series.values, [[2, 1], [4, 3]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("3,-40", "3,"), r":3, column 'b': the value is missing: fill it in"),
        (("3,-40", "NaN,1"), r":3, column 'a': the value is missing"),
        (("3,-40", "inf,1"), r":3, column 'a': 'inf' is not finite"),
        (("3,-40", "x,1"), r":3, column 'a': 'x' is not a number: name the columns to use with data.variables"),
        (("3,-40", "3"), r":3: 2 cells, but the first line names 3 columns"),
        (("2024-01-03", "2024-01-02"), r":4: the time '2024-01-02' occurs twice"),
        (("2024-01-03", "2023-01-01"), r":4: the time '2023-01-01' comes after a later one: sort the rows"),
        (("2024-01-03", "soon"), r":4: 'soon' is not a time"),
        (("date,a,b", "date,a,a"), r":1: the name 'a' occurs twice"),
        (("date,a,b\n", ""), r":1: the first line must name the columns, and '1' is a number"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, TABLE.replace("-4e1", "-40").replace(*change))


def test_other_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no column 'c': the columns are date, a, b"):
        read(tmp_path, TABLE, variables=["c"])
    with pytest.raises(DataError, match="decimal comma"):
        read(tmp_path, "a;b\n1,5;2\n")
    for text in ("", "a,b\n"):
        with pytest.raises(DataError, match="needs a line with the names"):
            read(tmp_path, text)
    with pytest.raises(DataError, match="is a folder: give a CSV file"):
        read_series(tmp_path)
    (tmp_path / "image.csv").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    with pytest.raises(DataError, match="it looks like a PNG image"):
        read_series(tmp_path / "image.csv")
    (tmp_path / "returns.csv").write_bytes(b"a,b\n1,2\n3\r,4\n")
    with pytest.raises(DataError, match=r"returns\.csv:3: a carriage return inside the line"):
        read_series(tmp_path / "returns.csv")
    with pytest.raises(DataError, match=r"no such file"):
        read_series(tmp_path / "missing.csv")
    with pytest.raises(DataError, match="no column beside the times"):
        read(tmp_path, "date\n2024-01-01\n")


def test_an_irregular_step_is_reported(tmp_path: Path) -> None:
    series = read(tmp_path, TABLE + "2024-01-04,1,1\n2024-01-06,1,1\n")
    assert series.report.changes == ("the time between two rows differs at 1 rows, first at line 6",)
    months = "".join(f"2024-{month:02}-01,{month}\n" for month in range(1, 13))
    assert not read(tmp_path, "date,a\n" + months).report.changes


def test_scale_goes_round_and_constant_columns_stay_finite() -> None:
    values = np.random.default_rng(1).normal(5, 3, size=(50, 2))
    values[:, 1] = 7
    scale = Scale.of(values)
    standard = scale.standardise(values)
    np.testing.assert_allclose(standard[:, 0].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(standard[:, 0].std(), 1)
    assert not standard[:, 1].any()
    np.testing.assert_allclose(scale.restore(standard), values)


def test_series_in_memory() -> None:
    assert make_series(np.arange(4)).values.shape == (4, 1)
    for values, message in ((np.zeros((2, 2, 2)), "got"), (np.array([1, np.nan]), "row 1, 'column 0'")):
        with pytest.raises(DataError, match=message):
            make_series(values)
    assert make_series(np.arange(4)).fingerprint != make_series(np.arange(1, 5)).fingerprint
