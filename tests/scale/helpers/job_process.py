"""A job in a process of its own, which can be stopped and killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HELPERS = Path(__file__).parent
MAX_SECONDS = 60.0  # a watchdog


class JobProcess:
    """`regard translate -m lecture …`, with fake workers unless `script` is None."""

    def __init__(self, *arguments: str | Path, starts: Path, script: str | None = "fake_job.py") -> None:
        self.starts = starts
        program = ["-m", "regard"] if script is None else [str(HELPERS / script)]
        self.process = subprocess.Popen(
            [sys.executable, *program, "translate", "-m", "lecture", *map(str, arguments)],
            stderr=subprocess.PIPE,
            env={**os.environ, "FAKE_STARTS": str(starts)},
            start_new_session=True,
        )

    def wait(self) -> tuple[int, str]:
        """The exit code, and what was printed to stderr."""
        _, messages = self.process.communicate(timeout=MAX_SECONDS)
        return self.process.returncode, messages.decode()

    def workers(self) -> list[int]:
        """The processes that fake workers have had."""
        return [*map(int, self.starts.read_text().split())]


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + MAX_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def is_gone(process: int) -> bool:
    """Whether a process has ended; init may not have read its exit code yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
