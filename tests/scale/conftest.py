"""Jobs in this process, whose workers are simple scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.cli.use import translate_job

HELPERS = Path(__file__).parent / "helpers"
sys.path.insert(0, str(HELPERS))  # for job_process.py


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run `regard translate …` in this process, with the workers of fake_worker.py and a batch of 2 lines."""
    monkeypatch.setattr(translate_job, "WORKER_COMMAND", (sys.executable, str(HELPERS / "fake_worker.py")))

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(app, ["translate", "-m", "lecture", "--batch", "2", *map(str, arguments)])

    return run
