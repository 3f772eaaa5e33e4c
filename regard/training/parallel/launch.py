"""`regard train --nproc N`: run the same command in N processes of this machine, and watch them until they end.

The processes find each other through a file in a private temporary folder and talk over the loopback interface, so
nothing listens on the network. This module imports nothing heavy: the launcher only starts processes, forwards signals
and waits.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from regard.errors import RegardError, UsageError
from regard.machine import number_of_cores
from regard.system import HAS_SEVERAL_PROCESSES, forward_signal, start_child
from regard.training.signals import StopFlag

MEETING = "REGARD_MEETING"  # environment variable: the file through which the processes find each other
MAX_ERROR_BYTES = 4000  # of a failed process's messages that are shown
GRACE_SECONDS = 5.0  # for the other processes to end after one has failed


class LaunchError(RegardError):
    """A process of the training failed; the exit code is that process's."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def launch(arguments: list[str], *, nproc: int) -> None:
    """Run `regard ARGUMENTS` in `nproc` processes; raise LaunchError unless all succeed."""
    if not HAS_SEVERAL_PROCESSES:
        raise UsageError("--nproc is not supported on Windows: leave it out to train with one process")
    processes: list[subprocess.Popen[bytes]] = []
    with (
        StopFlag() as stop,
        tempfile.TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as folder,  # nobody else may enter it
        tempfile.TemporaryFile() as messages,
    ):
        try:
            for rank in range(nproc):
                processes.append(_start(arguments, rank, nproc, Path(folder) / "meeting", messages))
            failed = _wait(processes, stop)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if failed is not None:
            _explain(failed, processes[failed].returncode, messages, stop)


def _start(arguments: list[str], rank: int, nproc: int, meeting: Path, messages: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start one process. The first one prints for all; the others' messages are kept in case they fail."""
    environment = {
        "OMP_NUM_THREADS": str(max(1, number_of_cores() // nproc)),
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(nproc),
        MEETING: str(meeting.absolute()),
    }
    return start_child(
        [sys.executable, "-m", "regard", *arguments],
        env=environment,
        stdin=subprocess.PIPE,  # it closes when the launcher is gone; then the process stops too
        stdout=None if rank == 0 else subprocess.DEVNULL,
        stderr=None if rank == 0 else messages,
    )


def _wait(processes: list[subprocess.Popen[bytes]], stop: StopFlag) -> int | None:
    """Wait for all processes, forwarding signals; return the rank of the one that failed, None if all succeeded.

    When one process fails, the others soon fail too or wait for ever, so after GRACE_SECONDS the codes at hand decide.
    A process that ended with one of regard's own exit codes knew the reason.
    """
    forwarded = False
    first_failure, failed_at = -1, math.inf
    while True:
        codes = [process.poll() for process in processes]
        # A process that obeys a forwarded signal has not failed: the others need time to save.
        fine = (None, 0, 128 + stop.signal) if forwarded and stop.signal else (None, 0)
        if first_failure < 0 and (failed := [rank for rank, code in enumerate(codes) if code not in fine]):
            first_failure, failed_at = failed[0], time.monotonic()
        if None not in codes or time.monotonic() - failed_at > GRACE_SECONDS:
            failed = [rank for rank, code in enumerate(codes) if code]
            return min(failed, key=lambda rank: _blame(codes[rank], rank, rank == first_failure), default=None)
        if stop.signal and not forwarded:
            forwarded = True
            for process in processes:
                forward_signal(process, stop.signal)
        time.sleep(0.05)


def _blame(code: int | None, rank: int, first: bool) -> tuple[bool, bool, bool, int]:
    """Sort key, lower for the more telling failure: regard's own codes, then signals, then 1 (lost a peer)."""
    return code is None or code <= 1, code == 1, code == 1 and not first, rank


def _explain(rank: int, code: int, messages: IO[bytes], stop: StopFlag) -> None:
    """Raise the LaunchError that describes a process's failure."""
    number = -code if code < 0 else 0
    if stop.signal and stop.signal in (number, code - 128):
        raise LaunchError("", 128 + stop.signal)  # the first process has printed the message
    if rank == 0 and not number:
        raise LaunchError("", code)
    messages.seek(max(0, messages.seek(0, os.SEEK_END) - MAX_ERROR_BYTES))
    text = messages.read().decode(errors="replace").strip()
    what = f"was killed by {signal.Signals(number).name}" if number else f"ended with exit code {code}"
    raise LaunchError(
        f"process {rank} of the training {what}; the others were stopped. The last checkpoint is intact: run the same "
        f"command again to continue from it" + (f". Its messages:\n{text}" if text else ""),
        128 + number if number else code,
    )
