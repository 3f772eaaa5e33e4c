"""Folders from a stranger, spoilt in many ways: a clean error or a model that works, in little memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "fuzzing.py"


def fuzz(count: int, *options: str) -> dict[str, int]:
    """How many ended how, if all ended well."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(count), *options], capture_output=True, text=True, errors="replace"
    )
    print(done.stdout)  # the summary is shown with -rP and kept in the report of a failure
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-5_000:]
    assert f"{count} folders" in done.stdout and ": 0 ended badly" in done.stdout
    line = re.search(r"^outcomes: (.*)$", done.stdout, re.MULTILINE)
    assert line is not None
    return {name: int(number) for name, number in re.findall(r"([a-z][a-z ]*) (\d+)", line[1])}


def test_some_model_folders() -> None:
    """A part of the many: enough to see that each check is there, and that not everything is refused."""
    outcomes = fuzz(25)
    assert outcomes["refused"] > 10 and outcomes["worked"] > 1


def test_some_run_folders() -> None:
    outcomes = fuzz(8, "--runs")
    assert outcomes["refused"] > 1 and outcomes["worked"] > 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_model_folders() -> None:
    fuzz(10_000, "--seed", "1")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_run_folders() -> None:
    fuzz(1_000, "--runs", "--seed", "1")
