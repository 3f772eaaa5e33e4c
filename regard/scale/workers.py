"""A worker process as the job sees it: start it, let it translate blocks, replace it when it has died."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from regard.errors import RegardError
from regard.machine import number_of_cores
from regard.scale.blocks import Block, Row, belongs_to, decode_rows, encode_block
from regard.scale.worker_loop import READY, WORKER
from regard.system import start_child

MAX_ATTEMPTS = 3  # to load the model, or to translate a block, if the process is killed


def local_workers(command: Sequence[str], count: int) -> list[Worker]:
    """Return workers of this machine, which share its cores unless OMP_NUM_THREADS says otherwise."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, number_of_cores() // count))
    return [Worker(number, command, {"OMP_NUM_THREADS": threads}) for number in range(count)]


class WorkerLostError(Exception):
    """The process has died or was killed."""


class LoadError(RegardError):
    """A worker cannot start; the exit code is that of its process, which has printed the reason."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Worker:
    """A process that has loaded the model. All methods but `close` are for one thread.

    It works in `folder` and writes its messages to `messages`; None: as this process.
    """

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: Path | None = None,
        messages: IO[bytes] | None = None,
    ) -> None:
        self.number = number
        self.command, self.folder, self.messages = [*command], folder, messages
        self.environment = {**os.environ, **environment, WORKER: str(number)}
        self.process: subprocess.Popen[bytes] | None = None
        self.closed = False
        self.lock = threading.Lock()  # close() must not miss a process that is just being started

    def start(self) -> None:
        """Start the process and wait until it has loaded the model; LoadError if it cannot."""
        for _ in range(MAX_ATTEMPTS):
            with self.lock:
                if self.closed:
                    raise WorkerLostError("the job has ended")
                self.process = start_child(
                    self.command,
                    env=self.environment,
                    cwd=self.folder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self.messages,
                )
            while line := self._output.readline():  # what a library prints while the model loads goes first
                if line == READY:
                    return
            code = self._end()
            if code >= 0:  # its own decision, so it would decide so again
                raise LoadError("", code or 1)
        name = signal.Signals(-code).name
        raise LoadError(
            f"a worker process was killed by {name} {MAX_ATTEMPTS} times while it loaded the model; "
            f"does the machine have memory for so many workers?",
            128 - code,
        )

    def translate(self, block: Block) -> list[Row]:
        """Return the rows of a block; WorkerLostError if the process dies on the way."""
        assert self.process is not None
        try:
            cast(IO[bytes], self.process.stdin).write(encode_block(block))
            cast(IO[bytes], self.process.stdin).flush()
            size = int(self._output.readline() or b"-1")
            content = self._output.read(max(0, size))
        except (OSError, ValueError):  # a broken pipe, or a header cut off
            size, content = -1, b""
        rows = decode_rows(content) if len(content) == size else None
        if rows is None or not belongs_to(rows, block):
            code = self._end()
            raise WorkerLostError(f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")
        return rows

    def close(self) -> None:
        """Kill the process, from any thread; no other is started."""
        with self.lock:
            self.closed = True
            if self.process is not None:
                self.process.kill()
                self.process.wait()

    @property
    def _output(self) -> IO[bytes]:
        assert self.process is not None
        return cast(IO[bytes], self.process.stdout)

    def _end(self) -> int:
        """Wait for the end of a process that has closed its output; return its exit code."""
        process, self.process = self.process, None
        assert process is not None
        try:
            code = process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:  # it lives, but its answer was nonsense
            process.kill()
            code = process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):  # what was not yet written
                cast(IO[bytes], stream).close()
        return code
