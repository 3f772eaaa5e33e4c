"""The golden facts are still true; facts.py says what they are and when they may be recorded again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FACTS = Path(__file__).with_name("facts.py")
GROUPS = ("training", "models", "shipped", "folders", "names", "help")


@pytest.mark.parametrize("extent", [["--short"], pytest.param([], marks=pytest.mark.slow)], ids=["short", "whole"])
def test_facts_are_as_recorded(extent: list[str]) -> None:
    # A process of its own: bits depend on the number of threads, which PyTorch settles when it is imported.
    done = subprocess.run([sys.executable, FACTS, *GROUPS, *extent], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, f"\n{done.stdout}{done.stderr}"
    reports = [line for line in done.stdout.splitlines() if line.endswith(", 0 differ")]
    assert tuple(line.partition(":")[0] for line in reports) == GROUPS
