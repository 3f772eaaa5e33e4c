"""Ctrl-C and SIGTERM while training: a signal only sets a flag, and the loop obeys it at the end of the step."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupted(Exception):  # noqa: N818  # nothing went wrong
    """Work that may be left out, a validation, was given up because a signal came."""


class StopFlag:
    """`with` it around a training: the first signal is remembered, a second Ctrl-C ends at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.before: dict[int, Any] = {}

    @property
    def name(self) -> str:
        return spoken(self.signal)

    def check(self) -> None:
        """Give up what is being done, if a signal came. For work that is done again at the next start."""
        if self.signal is not None:
            raise Interrupted

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self.before = {number: signal.signal(number, self._set) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _set(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number


def spoken(number: int | None) -> str:
    """What people call the signal."""
    return "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
