"""A batch that does not fit into memory: smaller ones once, else exit 6 with the shape and what to set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness import Nursery, code, contents, largest_difference, tensors, trained_on, write_recipe

FLOAT64 = {"kind": "float64"}  # where the order of a sum does not show
EXACT = {"dropout = 0.1": "dropout = 0.0"}


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe without dropout, so that a batch in parts gives the same gradient as a whole."""
    return write_recipe(tmp_path_factory.mktemp("exact"), changes=EXACT)


@pytest.mark.parametrize("processes", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_smaller_micro_batches(processes: int, exact: Path, nursery: Nursery, tmp_path: Path) -> None:
    """In one process only. The others have to do their part again, too, for gradients are summed over all."""
    memory = {"kind": "memory", "at": [5]}
    if processes > 1:
        memory["rank"] = 1
    note = {"kind": "note batches", "file": str(tmp_path / "batches")}
    told = code(nursery.train(exact, tmp_path / "run", processes=processes, faults=(FLOAT64, note, memory)), 0)
    assert "step 5 did not fit into memory" in told
    code(nursery.train(exact, tmp_path / "whole", processes=processes, faults=(FLOAT64,)), 0)
    assert largest_difference(tensors(tmp_path / "run", 12), tensors(tmp_path / "whole", 12)) <= 1e-9
    batches = trained_on(tmp_path / "batches")
    assert {len(found) for found in batches.values()} == {1}  # parts know the whole that they are of
    assert set(batches) == set(range(1, 13))


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_not_even_then(processes: int, nursery: Nursery, recipe: Path, wholes, tmp_path: Path) -> None:
    memory = {"kind": "memory", "at": [5], "times": 99}
    if processes > 1:
        memory["rank"] = 1
    told = code(nursery.train(recipe, tmp_path / "run", processes=processes, faults=(memory,)), 6)
    last = next(line for line in told.splitlines() if line.startswith("regard: "))
    assert re.search(r"\d+ rows with \d+ and \d+ tokens", last)
    assert "--set training.batch_tokens=50" in last
    assert "Traceback" not in told
    code(nursery.train(recipe, tmp_path / "run", processes=processes), 0)  # as on a larger machine
    assert contents(tmp_path / "run") == contents(wholes(processes))


def test_what_is_advised_fits(nursery: Nursery, exact: Path, tmp_path: Path) -> None:
    """A machine with little memory: what exit 6 tells to set trains to the end."""
    small = {"kind": "memory", "at": list(range(1, 13)), "times": 10**6, "cells": 60}
    told = code(nursery.train(exact, tmp_path / "run", faults=(small,)), 6)
    advice = re.findall(r"--set (\S+=\d+)", told)
    options = [part for setting in advice for part in ("--set", setting)]
    code(nursery.train(exact, tmp_path / "other", *options, faults=(small,)), 0)
