"""What a worker process does: it reads blocks from stdin and writes their rows to stdout, until stdin ends."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO

from regard.machine.settings import setting
from regard.scale.blocks import Row, decode_block, encode_rows

READY = b"ready\n"
WORKER = "REGARD_JOB_WORKER"  # environment variable: the number of this worker process, from 0


def worker_number() -> int | None:
    """Return the number of this worker process; None in every other process."""
    value = setting(WORKER)
    return int(value) if value and value.isdecimal() else None


def answer_blocks(translate: Callable[[int, list[bytes]], Sequence[Row]]) -> None:
    """Translate the blocks of the job until it ends: `translate` gets the lines and how many are in front of them.

    If the job is killed, its pipes close and this process ends at once, also in the middle of a block. Whatever else
    prints to stdout goes to stderr.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[tuple[int, list[bytes]]] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    answers.write(READY)
    answers.flush()
    while True:
        content = encode_rows(translate(*requests.get()))
        answers.write(b"%d\n" % len(content) + content)
        answers.flush()


def _read_requests(stream: IO[bytes], requests: queue.SimpleQueue[tuple[int, list[bytes]]]) -> None:
    while (request := decode_block(stream)) is not None:
        requests.put(request)
    os._exit(0)
