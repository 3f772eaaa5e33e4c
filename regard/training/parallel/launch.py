"""`regard train --nproc N`: the same command in N processes of this machine, watched until the last one has ended.

They meet over a file in the run's folder and talk over the loopback interface, so nothing listens to the network.
Imports nothing heavy: the launcher only starts, passes signals on and waits.
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

from regard.errors import RegardError
from regard.machine import number_of_cores
from regard.training.loop.signals import StopFlag

MEETING = "REGARD_MEETING"
LAST_WORDS = 4000  # bytes of a process' messages that are shown when it fails
GRACE = 5.0  # seconds for the others to end, when one has failed


class LaunchError(RegardError):
    """A process of the training failed; the exit code is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def launch(arguments: list[str], *, nproc: int, folder: Path) -> None:
    """Run `regard ARGUMENTS` in `nproc` processes; raise what ended them, unless all went well."""
    meeting = folder / "training" / f".meeting-{os.getpid()}"
    meeting.parent.mkdir(parents=True, exist_ok=True)
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as words, StopFlag() as stop:
        try:
            for rank in range(nproc):
                processes.append(_start(arguments, rank, nproc, meeting, words))
            failed = _watch(processes, stop)
        finally:
            for process in processes:
                process.kill()
                process.wait()
            meeting.unlink(missing_ok=True)
        if failed is not None:
            _explain(failed, processes[failed].returncode, words, stop)


def _start(arguments: list[str], rank: int, nproc: int, meeting: Path, words: IO[bytes]) -> subprocess.Popen[bytes]:
    """One process. The first one talks for all; what the others say is kept for the case that they fail."""
    environment = {
        "OMP_NUM_THREADS": str(max(1, number_of_cores() // nproc)),
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(nproc),
        MEETING: str(meeting.absolute()),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "regard", *arguments],
        env=environment,
        stdin=subprocess.PIPE,  # it closes when we are gone: then they stop too
        stdout=None if rank == 0 else subprocess.DEVNULL,
        stderr=None if rank == 0 else words,
        start_new_session=True,  # a Ctrl-C in the terminal reaches only us, and they get it once
    )


def _watch(processes: list[subprocess.Popen[bytes]], stop: StopFlag) -> int | None:
    """Wait for all to end, passing signals on; the number of the one that failed, None when all went well.

    When one fails, the others do not get far without it and fail too, or wait for ever: after some seconds that is all
    there is to know. Who ended with a code of ours knew why.
    """
    told = False
    first, since = -1, math.inf  # the first failure, and when it was
    while True:
        codes = [process.poll() for process in processes]
        # One that stops because it was told to leaves the others the time that they need to save.
        fine = (None, 0, 128 + stop.signal) if told and stop.signal else (None, 0)
        if first < 0 and (failed := [rank for rank, code in enumerate(codes) if code not in fine]):
            first, since = failed[0], time.monotonic()
        if None not in codes or time.monotonic() - since > GRACE:
            failed = [rank for rank, code in enumerate(codes) if code]
            return min(failed, key=lambda rank: _blame(codes[rank], rank, rank == first), default=None)
        if stop.signal and not told:
            told = True
            for process in processes:
                process.send_signal(stop.signal)
        time.sleep(0.05)


def _blame(code: int | None, rank: int, first: bool) -> tuple[bool, bool, bool, int]:
    """Lower for the more telling: a code of ours, then a signal, then 1, with which those end that lost a peer."""
    return code is None or code <= 1, code == 1, code == 1 and not first, rank


def _explain(rank: int, code: int, words: IO[bytes], stop: StopFlag) -> None:
    """Raise what the failure of a process means."""
    number = -code if code < 0 else 0
    if stop.signal and stop.signal in (number, code - 128):
        raise LaunchError("", 128 + stop.signal)  # the first process has said it, if there was anything to say
    if rank == 0 and not number:
        raise LaunchError("", code)
    words.seek(max(0, words.seek(0, os.SEEK_END) - LAST_WORDS))
    told = words.read().decode(errors="replace").strip()
    what = f"was killed by {signal.Signals(number).name}" if number else f"ended with exit code {code}"
    raise LaunchError(
        f"process {rank} of the training {what}; the others were stopped. The last checkpoint is intact: the same "
        f"command goes on from it" + (f". It said:\n{told}" if told else ""),
        128 + number if number else code,
    )
