"""The scripts behind `make`: they find what is there, and say what to type when it is not.

Each runs with a path that holds nothing but the programs that a test plants.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHELL = shutil.which("sh")


def plant(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(f"#!{SHELL}\n{body}\n")
    path.chmod(0o755)
    return str(path)


def plant_python(folder: Path, name: str, version: str, *, venv: bool = True) -> str:
    old = tuple(map(int, version.split("."))) < (3, 11)
    cases = f"*print*) echo {version};; *3,*) exit {int(old)};; *ensurepip*) exit {int(not venv)};;"
    return plant(folder, name, f'case "$2" in {cases} esac')


def run(script: str, folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    command = [SHELL, str(ROOT / "scripts" / script), *arguments]
    done = subprocess.run(command, env={"PATH": str(folder), **environment}, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.strip(), done.stderr


def test_python_on_the_path_is_found(tmp_path: Path) -> None:
    python = plant_python(tmp_path, "python3", "3.12")
    plant_python(tmp_path, "python3.13", "3.13")
    assert run("find_python.sh", tmp_path) == (0, python, "")


def test_what_is_old_broken_or_without_venv_is_passed_over(tmp_path: Path) -> None:
    plant_python(tmp_path, "python3", "3.9")
    plant(tmp_path, "python3.13", "echo 'version 3.13 is not installed' >&2; exit 127")  # a version manager's shim
    plant_python(tmp_path, "python3.12", "3.12", venv=False)
    python = plant_python(tmp_path, "python3.11", "3.11")
    assert run("find_python.sh", tmp_path) == (0, python, "")


def test_only_the_python_that_was_asked_for_is_tried(tmp_path: Path) -> None:
    plant_python(tmp_path, "python3", "3.12")
    code, out, error = run("find_python.sh", tmp_path, str(tmp_path / "gone"))
    assert (code, out) == (1, "") and "gone cannot be run" in error


def test_missing_venv_module(tmp_path: Path) -> None:
    plant_python(tmp_path, "python3", "3.11", venv=False)
    plant(tmp_path, "apt-get", "exit 0")
    code, out, error = run("find_python.sh", tmp_path)
    assert (code, out) == (1, "") and "sudo apt-get install python3.11-venv" in error


def test_too_old_python(tmp_path: Path) -> None:
    plant_python(tmp_path, "python3", "3.9")
    code, _, error = run("find_python.sh", tmp_path)
    assert code == 1 and "3.11 or newer is needed; python3 is Python 3.9" in error and "PYTHON=" in error


def test_no_python_at_all(tmp_path: Path) -> None:
    code, _, error = run("find_python.sh", tmp_path)
    assert code == 1 and "no python3" in error and "python.org" in error


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_chromium_on_the_path_is_found(tmp_path: Path, name: str) -> None:
    chromium = plant(tmp_path, name, "exit 0")
    assert run("find_chromium.sh", tmp_path) == (0, chromium, "")


def test_chromium_that_is_named_comes_first(tmp_path: Path) -> None:
    plant(tmp_path, "chromium", "exit 0")
    (tmp_path / "my own").mkdir()
    mine = plant(tmp_path / "my own", "browser", "exit 0")
    assert run("find_chromium.sh", tmp_path, CHROMIUM=mine) == (0, mine, "")


def test_a_wrong_name_is_not_replaced_by_another_browser(tmp_path: Path) -> None:
    plant(tmp_path, "chromium", "exit 0")
    code, out, error = run("find_chromium.sh", tmp_path, CHROMIUM="/nowhere/chromium")
    assert (code, out) == (1, "") and "/nowhere/chromium, which does not run" in error


def test_without_chromium_a_user_is_told_what_to_type(tmp_path: Path) -> None:
    plant(tmp_path, "chromium-browser", "echo 'needs the snap' >&2; exit 1")
    plant(tmp_path, "apt-get", "exit 99")
    plant(tmp_path, "id", "echo 1000")
    code, out, error = run("find_chromium.sh", tmp_path)
    assert (code, out) == (1, "")
    assert "sudo apt-get install --no-install-recommends chromium" in error and "CHROMIUM=" in error
    assert "Installing" not in error


def test_root_on_debian_installs_it_and_says_so(tmp_path: Path) -> None:
    plant(tmp_path, "id", "echo 0")
    plant(tmp_path, "apt-get", f'echo "got $*"; [ "$1" != install ] || {shutil.which("cp")} "$0" {tmp_path}/chromium')
    code, out, error = run("find_chromium.sh", tmp_path)
    assert (code, out) == (0, f"{tmp_path}/chromium")
    assert "Installing the chromium package" in error
    assert "got update" in error and "--no-install-recommends chromium" in error


def test_ci_runs_the_same_command() -> None:
    assert (ROOT / ".ci/run").read_text(encoding="utf-8").strip() == "make test"


@pytest.mark.parametrize("target", ["help", "demo", "test", "test-all", "lint", "docs", "bench", "clean"])
def test_make_knows_its_targets(target: str) -> None:
    make = shutil.which("make")
    assert make, "make is not on the path"
    dry = subprocess.run([make, "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert dry.returncode == 0, dry.stderr
    if target != "help":
        shown = subprocess.run([make], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
        assert f"make {target} " in shown
