"""Progress bars are for terminals; a notebook would show every version of a bar."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.machine import in_notebook, redraws
from regard.training.loop.report import Report

TERMINAL: Any = SimpleNamespace(isatty=lambda: True, write=lambda text: None, flush=lambda: None)


@pytest.fixture(autouse=True)
def _no_jupyter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    monkeypatch.setitem(sys.modules, "IPython", None)


@pytest.mark.parametrize(
    ("shell", "expected"), [(None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)]
)
def test_a_kernel_is_a_notebook(shell: Any, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython in a terminal has no kernel."""
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook() is expected and redraws(TERMINAL) is not expected
    written: list[str] = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None))
    report = Report(tmp_path, steps=2)
    assert report.terminal is not expected
    if expected:
        with report:
            report.step(1)
            report.log(1, "train", {"loss": 1.0}, "loss 1.000")
        assert len(written) == 1 and written[0].startswith("step 1/2  loss 1.000") and "\r" not in written[0]
    report.file.close()


def test_a_command_of_a_cell_is_in_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook() and redraws(TERMINAL)
    monkeypatch.setenv("JPY_PARENT_PID", "7")
    assert in_notebook() and not redraws(TERMINAL)
    assert not redraws(SimpleNamespace(isatty=lambda: False))  # type: ignore[arg-type]
