"""Output to a terminal that may go away while a program runs."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def perhaps_closed_terminal() -> Iterator[None]:
    """Print to a terminal that the user may have closed: a training goes on to its next checkpoint all the same."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
