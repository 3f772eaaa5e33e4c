"""The rule that in CI a skipped test is a failed test, tried on planted tests in a pytest of their own."""

from __future__ import annotations

import fnmatch
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = """
import unittest
import pytest

def test_passes():
    pass

@pytest.mark.skip(reason="not today")
def test_marked():
    pass

def test_inside():
    pytest.skip("library is missing")

@pytest.mark.xfail(reason="known bug")
def test_expected_failure():
    assert False

@pytest.mark.xfail(reason="was a bug")
def test_expected_but_passes():
    pass

@pytest.mark.parametrize("size", [])
def test_no_parameters(size):
    pass

class TestOld(unittest.TestCase):
    def test_unittest(self):
        raise unittest.SkipTest("old style")

@pytest.mark.skip(reason="needs CUDA")
def test_cuda_kernel():
    pass

@pytest.mark.skip(reason="library is missing")
def test_cuda_other_reason():
    pass
"""
REFUSED = {
    "test_marked",
    "test_inside",
    "test_expected_failure",
    "test_expected_but_passes",
    "test_no_parameters[NOTSET]",
    "TestOld::test_unittest",
    "test_cuda_other_reason",
}
ALLOWED = "*_cuda* | CUDA: no GPU\n"


def run_planted(folder: Path, source: str, *, ci: str, allowed: str = ALLOWED, workers: int = 0) -> tuple[int, str]:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "allowed_skips.txt").write_text(allowed)
    (folder / "test_planted.py").write_text(source)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"CI": ci}
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-n", str(workers), "."]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def failed(output: str) -> set[str]:
    lines = (line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return {line.split()[1].removeprefix("test_planted.py").removeprefix("::") for line in lines}


@pytest.mark.parametrize("workers", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_in_ci_what_does_not_run_fails(tmp_path: Path, workers: int) -> None:
    code, output = run_planted(tmp_path, PLANTED, ci="true", workers=workers)
    assert code == 1
    assert failed(output) == REFUSED
    assert "1 passed" in output and "1 skipped" in output
    assert "library is missing\nIn CI every test must run" in output.replace("Skipped: ", "")


def test_outside_ci_a_skip_is_a_skip(tmp_path: Path) -> None:
    code, output = run_planted(tmp_path, PLANTED, ci="")
    assert code == 0
    assert "6 skipped" in output


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_in_ci_a_skipped_module_fails(tmp_path: Path, workers: int) -> None:
    code, output = run_planted(
        tmp_path, 'import pytest\npytest.importorskip("no_such_library")\n', ci="true", workers=workers
    )
    assert code != 0
    assert "no_such_library" in output and "In CI every test must run" in output


@pytest.mark.parametrize(
    "line", ["*slow* | takes long", "*slow* | LAZY: takes long", "*slow* | CUDA:", "*slow* CUDA: no GPU"]
)
def test_only_devices_can_be_listed(line: str) -> None:
    conftest = runpy.run_path(str(Path(__file__).parents[1] / "conftest.py"))
    with pytest.raises(pytest.UsageError, match=r"allowed_skips.txt, line 2: .* a device of CUDA, MPS"):
        conftest["read_allowed_skips"](f"# comment\n{line}\n")


def test_a_wrong_list_stops_the_run(tmp_path: Path) -> None:
    code, output = run_planted(
        tmp_path, "import pytest\ndef test_a():\n    pytest.skip('x')\n", ci="true", allowed="* | slow\n"
    )
    assert code != 0
    assert "allowed_skips.txt, line 1" in output


def test_what_is_listed_exists() -> None:
    """A line whose tests are gone, or that names no file, would allow more than anyone looked at."""
    tests = Path(__file__).parents[1]
    conftest = runpy.run_path(str(tests / "conftest.py"))
    for pattern, _ in conftest["read_allowed_skips"]((tests / "allowed_skips.txt").read_text(encoding="utf-8")):
        file, _, name = pattern.partition("::")
        functions = re.findall(r"^\s*def (test_\w+)", (tests.parent / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert fnmatch.filter(functions, name.partition("[")[0]), pattern
