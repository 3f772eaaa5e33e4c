"""A checkpoint that was damaged on the disk: it is noticed and named, and the one before it is used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harness import Nursery, code, contents, first_code

FILES = ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = [truncate, flip, empty, remove]


@pytest.fixture(scope="module")
def half(nursery: Nursery, recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in step 8: checkpoints of steps 3 and 6."""
    run = tmp_path_factory.mktemp("half") / "run"
    code(nursery.train(recipe, run, faults=({"kind": "die", "at": 8},)), -9)
    return run


# Each damage once and each file once, in one process; the rest is a matter of reading, which test_checkpoint.py has.
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (FILES[1], flip),
        *(
            pytest.param(*other, marks=pytest.mark.slow)
            for other in zip(FILES, DAMAGES, strict=True)
            if flip not in other
        ),
    ],
)
def test_the_one_before_it_is_used(
    name: str, damage, half: Path, nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(half, tmp_path / "run")
    damage(run / "training" / "step-00000006" / name)
    told = code(nursery.train(recipe, run), 0)
    (warning,) = [line for line in told.splitlines() if "step-00000006" in line]
    assert name in warning
    assert warning.startswith("regard: warning: ")
    assert "warnings.warn" not in told  # no source code
    assert "falling back to the checkpoint before it" in warning
    assert "continuing from step 3" in told
    assert contents(run) == contents(whole)


def test_two_processes_go_back_together(half: Path, nursery: Nursery, recipe: Path, wholes, tmp_path: Path) -> None:
    run = tmp_path / "run"
    code(nursery.train(recipe, run, processes=2, faults=({"kind": "die", "at": 8},)), -9)
    flip(run / "training" / "step-00000006" / "optimizer.safetensors")
    assert "continuing from step 3" in code(nursery.train(recipe, run, processes=2), 0)
    assert contents(run) == contents(wholes(2))


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_none_is_good(processes: int, half: Path, nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    run = shutil.copytree(half, tmp_path / "run")
    empty(run / "training" / "step-00000003" / "state.json")
    remove(run / "training" / "step-00000006" / "weights.safetensors")
    before = sorted(run.rglob("step-*/*"))
    told = first_code(nursery.train(recipe, run, processes=processes), 4)
    last = told.strip().splitlines()[-1]
    assert "no checkpoint is intact" in last
    for found in ("step-00000006: weights.safetensors is missing", "step-00000003: state.json is damaged"):
        assert found in last
    assert "Traceback" not in told
    assert sorted(run.rglob("step-*/*")) == before  # nothing is thrown away


def test_a_pointer_that_points_nowhere(half: Path, nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path) -> None:
    """`latest` is for people: what lies in the folder decides."""
    run = shutil.copytree(half, tmp_path / "run")
    (run / "training" / "latest").write_text("step-00000999")
    assert "continuing from step 6" in code(nursery.train(recipe, run), 0)
    assert contents(run) == contents(whole)
