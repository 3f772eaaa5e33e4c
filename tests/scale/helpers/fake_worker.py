"""A worker of a job without a model: it writes lines in capitals, and lines can make it fail.

    KILL        kill -9, always
    EXIT        os._exit(7), always
    once:FILE   os._exit(7), unless FILE exists, which is made
    BAD         a line that fails
    wait:FILE   write the number of this process to FILE.reached, and wait for FILE

FAKE_LOAD is the exit code of a model that cannot be loaded, or KILL; FAKE_STARTS a file with a line for each start.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from regard.scale.blocks import Row
from regard.scale.worker_loop import answer_blocks

MAX_SECONDS = 60.0


def translate(first: int, lines: list[bytes]) -> list[Row]:
    return [row(number, line.decode()) for number, line in enumerate(lines, start=first + 1)]


def row(number: int, line: str) -> Row:
    if line == "KILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if line == "EXIT":
        os._exit(7)
    name, _, file = line.partition(":")
    if name == "once" and not Path(file).exists():
        Path(file).touch()
        os._exit(7)
    if name == "wait":
        reached = Path(f"{file}.reached")
        reached.with_suffix(".begun").write_text(str(os.getpid()))
        reached.with_suffix(".begun").replace(reached)
        end = time.monotonic() + MAX_SECONDS
        while not Path(file).exists() and time.monotonic() < end:
            time.sleep(0.01)
    return Row(number, "this line\tis bad", "") if line == "BAD" else Row(number, "", line.upper())


if __name__ == "__main__":
    if file := os.environ.get("FAKE_STARTS"):
        with open(file, "a") as starts:
            starts.write(f"{os.getpid()}\n")
    if load := os.environ.get("FAKE_LOAD"):
        if load == "KILL":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stderr.write("regard: the model is damaged\n")
        sys.exit(int(load))
    print("a library prints something")  # must not reach the job
    answer_blocks(translate)
