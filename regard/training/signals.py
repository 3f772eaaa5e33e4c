"""Ctrl-C, SIGTERM and SIGHUP (the terminal was closed) during training.

A signal only sets a flag, and the loop stops at the end of the step.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from regard.system.process_exit import stop_signals


class Interrupted(Exception):  # noqa: N818  # nothing went wrong
    """Work that can be repeated later, such as a validation, was abandoned because a signal arrived."""


class StopFlag:
    """Context manager around a training run: it remembers the first signal; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.previous_handlers: dict[int, Any] = {}

    @property
    def name(self) -> str:
        return signal_name(self.signal)

    def check(self) -> None:
        """Raise Interrupted if a signal has arrived. For work that the next start repeats."""
        if self.signal is not None:
            raise Interrupted

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers in no other thread
            self.previous_handlers = {number: signal.signal(number, self._set) for number in stop_signals()}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.previous_handlers.items():
            signal.signal(number, handler)

    def _set(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


def signal_name(number: int | None) -> str:
    """Return the signal's name as users know it."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number or signal.SIGTERM).name
