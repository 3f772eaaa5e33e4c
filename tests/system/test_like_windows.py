"""regard in a process that behaves like Windows; like_windows.py says in what. No test of ours runs on a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..small_recipes import write_recipe

SCRIPT = Path(__file__).parent / "like_windows.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("windows")
    recipe = write_recipe(folder, "transformer", more="# ein Kommentar für Übungen\n")
    recipe.rename(folder / "recipe.toml")
    # The C locale without Python's UTF-8 mode: a file that is opened without an encoding is ASCII.
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "MPLBACKEND": "Agg"}
    command = [sys.executable, str(SCRIPT), str(folder)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, timeout=200, check=False)
    assert done.returncode == 130, done.stderr.decode(errors="replace")  # the server was ended by Ctrl-C
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def test_a_training_ends_and_is_continued(report: dict[str, Any]) -> None:
    assert report["train"]["code"] == 0, report["train"]
    assert report["resume"]["code"] == 0, report["resume"]
    assert "continuing from step 6" in report["resume"]["err"]
    assert "mine/model.safetensors" in report["folder"]
    steps = [name for name in report["folder"] if name.startswith("mine/training/step-") and name.count("/") == 2]
    assert steps == ["mine/training/step-00000012"]  # older checkpoints could be removed
    assert not [name for name in report["folder"] if "writing" in name or name.endswith("lock")]


def test_several_processes_are_refused(report: dict[str, Any]) -> None:
    assert report["nproc"]["code"] == 2
    assert "--nproc is not supported on Windows" in report["nproc"]["err"]


@pytest.mark.parametrize("command", ["translate", "own", "plot", "lectures", "dry run"])
def test_commands_write_utf8(report: dict[str, Any], command: str) -> None:
    assert report[command]["code"] == 0, report[command]


def test_the_shipped_model_translates(report: dict[str, Any]) -> None:
    assert "Jane visits Africa in September" in report["translate"]["out"]
    assert "╭─ A1" in report["lectures"]["out"]


def test_a_model_is_saved_into_the_folder_it_was_loaded_from(report: dict[str, Any]) -> None:
    assert report["saved"] is True
    assert report["beside"] == ["saved"]


def test_a_lock_excludes_and_names_its_holder(report: dict[str, Any]) -> None:
    assert report["second"].startswith("locked is in use: a training, process ")
    assert report["lock"] is False
    assert report["previous"] == "a training that was killed"


def test_nothing_tried_to_remove_a_file_in_use(report: dict[str, Any]) -> None:
    assert report["refused"] == []


def test_the_machine_is_described(report: dict[str, Any]) -> None:
    assert report["machine"]["cores"] == os.cpu_count()
    assert report["machine"]["compiler"] is None
    assert report["machine"]["total"] == 16 << 30
    assert report["machine"]["free"] == 8 << 30


def test_the_explorer_answers_and_stops(folder: Path) -> None:
    assert json.loads((folder / "trace.json").read_bytes())["axes"]
