"""How a process of the command line ends: with its exit code, whatever its threads and signals do."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from regard.system import STOP_SIGNALS


def exit_process(code: object) -> NoReturn:
    """End this process with an exit code: run what is registered with atexit, flush the output, and leave.

    Python's own way ends threads that are inside torch's C++ code, and the C++ runtime then aborts the whole process
    ("terminate called without an active exception", exit code 134), although its work was complete.
    """
    if code is not None and not isinstance(code, int):
        sys.exit(str(code))  # a text: Python prints it and ends with 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the terminal or the reader of a pipe has gone, or the stream is closed
            stream.flush()
    os._exit(code or 0)


def stop_signals() -> list[int]:
    """Return the signals that ask a program to stop, without those that it was told to ignore: nohup ignores SIGHUP."""
    return [n for n in STOP_SIGNALS if n == signal.SIGINT or signal.getsignal(n) is not signal.SIG_IGN]


def exit_on_signals() -> None:
    """Let stop signals end this process with their exit code (143 for SIGTERM) instead of by the signal itself."""
    for number in stop_signals():
        signal.signal(number, lambda number, frame: os._exit(128 + number))
