"""`regard embed`: the library's vectors as columns, JSON or an array."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from regard.tasks.loading import load

Run = Callable[..., Result]
LINES = ["le chat noir", "Jane dort", "", "the house"]


@pytest.fixture(scope="module")
def vectors(models: dict[str, str]) -> np.ndarray:
    return load(models["encoder"]).embed(LINES).numpy()


def test_columns(command: Run, models: dict[str, str], vectors: np.ndarray) -> None:
    result = command("embed", "-m", models["encoder"], stdin="\n".join(LINES) + "\n")
    assert result.exit_code == 0, result.stderr
    found = np.array([[float(cell) for cell in line.split("\t")] for line in result.stdout.splitlines()])
    np.testing.assert_allclose(found, vectors, atol=1e-6)


def test_json(command: Run, models: dict[str, str], vectors: np.ndarray, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    entries = [
        json.loads(line) for line in command("embed", "-m", models["encoder"], file, "--json").stdout.splitlines()
    ]
    assert [entry["text"] for entry in entries] == LINES
    np.testing.assert_allclose([entry["vector"] for entry in entries], vectors, atol=1e-6)


def test_array(command: Run, models: dict[str, str], vectors: np.ndarray, tmp_path: Path) -> None:
    out = tmp_path / "vectors"
    result = command("embed", "-m", models["encoder"], "--npy", out, stdin="\n".join(LINES))
    assert result.stdout == f"{out}\n"
    found = np.load(out)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, vectors, atol=1e-6)


def test_compare(command: Run, models: dict[str, str], vectors: np.ndarray) -> None:
    result = command("embed", "-m", models["encoder"], "--compare", stdin="\n".join(LINES))
    found = np.array([[float(cell) for cell in line.split("\t")] for line in result.stdout.splitlines()])
    np.testing.assert_allclose(found, vectors @ vectors.T, atol=1e-5)
    np.testing.assert_allclose(np.diag(found), 1.0, atol=1e-5)


def test_wrong_use(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    result = command("embed", "-m", models["encoder"], "--npy", tmp_path / "a.npy", "--json", stdin="x")
    assert result.exit_code == 2 and "--npy or --json, not both" in result.stderr
    result = command("embed", "-m", models["translator"], stdin="x")
    assert result.exit_code == 2 and "use `regard translate" in result.stderr
    result = command("embed", "-m", models["encoder"], tmp_path / "nothing.txt")
    assert result.exit_code == 3 and "no such file" in result.stderr
    result = command("embed", "-m", models["encoder"], stdin=b"gut\n\xe9\n")
    assert result.exit_code == 3 and "stdin, line 2: not UTF-8" in result.stderr
    result = command("embed", "-m", models["encoder"], "--npy", tmp_path / "no" / "a.npy", stdin="x")
    assert result.exit_code == 3 and "cannot write" in result.stderr
