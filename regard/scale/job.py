"""`regard translate FILE… --workers N -o FOLDER`: translate files in several processes, as a job that can be resumed.

This process reads the files, hands their blocks to the workers and is the only one that writes to the folder. A block
whose worker dies is translated again by a new worker. If that happens MAX_ATTEMPTS times, the block is halved until
the one line is left that kills its worker; it stays empty in the result.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import ResourceError, StoppedError, UsageError
from regard.machine import number_of_cores
from regard.scale.blocks import Block, Row, read_blocks
from regard.scale.job_folder import JobFolder, fingerprint_inputs
from regard.scale.workers import MAX_ATTEMPTS, Worker, WorkerLostError
from regard.system import HAS_SEVERAL_PROCESSES
from regard.training.signals import StopFlag

MAX_LOST_LINES = 10  # in a row, without a block that works in between: then it is not the lines
REPORT_SECONDS = 10.0


@dataclass(frozen=True)
class Job:
    """What to translate, and how. `fingerprint` describes the model and the options; a resumed job must have the same.

    `command` starts a worker process, which calls `answer_blocks`; `failed_output` is the output for a line that
    cannot be translated, given its number and the reason.
    """

    files: Sequence[Path]
    fingerprint: Mapping[str, Any]
    command: Sequence[str]
    batch: int
    failed_output: Callable[[int, str], str]


@dataclass
class Count:
    """Lines of the job so far."""

    lines: int
    done: int = 0
    failed: int = 0
    resumed: int = 0
    began: float = field(default_factory=time.monotonic)
    reported: float = field(default_factory=time.monotonic)


def run_job(job: Job, folder: Path, *, workers: int, say: Callable[[str], object]) -> int:
    """Translate all files into a folder, or continue; return the number of lines that failed."""
    if not HAS_SEVERAL_PROCESSES:
        raise UsageError("jobs are not supported on Windows: leave out --workers and --out, and redirect the output")
    with StopFlag() as stop:  # a signal is obeyed between two blocks of reading, and while the workers are busy
        inputs = fingerprint_inputs(job.files)
        entry = {"inputs": inputs, "order": [*inputs], **job.fingerprint}
        files = JobFolder(folder)
        with files.locked():
            if (summary := files.open(entry, job.files)) is not None:
                say(f"{folder} is already complete: {summary['lines']:,} lines, {summary['failed']:,} failed")
                return int(summary["failed"])
            count = Count(sum(len(block.lines) for file in job.files for block in read_blocks(file, job.batch)))
            say(f"files: {len(job.files)}, lines: {count.lines:,}, workers: {workers}")
            parts: dict[str, range] = {}
            pool = Pool(job, workers)
            try:
                for block, rows in pool.run(_missing(job, files, inputs, parts, count, say), stop):
                    files.write(block, rows)
                    _report(block, rows, count, say)
            finally:
                pool.close()
            files.merge(entry, parts, {"lines": count.lines, "failed": count.failed})
    seconds = time.monotonic() - count.began
    say(f"{count.lines:,} lines are in {folder}; this run translated {count.done:,} in {seconds:.0f} s")
    return count.failed


def _missing(
    job: Job,
    folder: JobFolder,
    names: Mapping[str, Any],
    parts: dict[str, range],
    count: Count,
    say: Callable[[str], object],
) -> Iterator[Block]:
    """Yield the blocks whose parts are missing, and enter which parts belong to the result of each file."""
    number = 0
    for file, name in zip(job.files, names, strict=True):
        first = number
        for block in read_blocks(file, job.batch, number=number):
            number = block.number + 1
            if (rows := folder.rows(block)) is None:
                yield block
            else:
                count.resumed += len(rows)
                _name_failures(block, rows, count, say)
        parts[name] = range(first, number)


def _report(block: Block, rows: Sequence[Row], count: Count, say: Callable[[str], object]) -> None:
    _name_failures(block, rows, count, say)
    count.done += len(rows)
    now = time.monotonic()
    if now - count.reported >= REPORT_SECONDS:
        count.reported = now
        speed = count.done / (now - count.began)
        left = (count.lines - count.resumed - count.done) / speed
        done = count.resumed + count.done
        say(f"{done:,} of {count.lines:,} lines, {speed:,.0f} lines per second, {left / 60:,.0f} minutes left")


def _name_failures(block: Block, rows: Sequence[Row], count: Count, say: Callable[[str], object]) -> None:
    for row in rows:
        if row.error:
            count.failed += 1
            say(f"{block.file}:{row.number}: {row.error}")


class Pool:
    """The workers of a job, each with a thread that hands blocks to it."""

    def __init__(self, job: Job, size: int) -> None:
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, number_of_cores() // size))
        self.job = job
        self.workers = [Worker(number, job.command, {"OMP_NUM_THREADS": threads}) for number in range(size)]
        self.blocks: queue.SimpleQueue[Block | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[tuple[Block, list[Row]] | BaseException] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.first_loaded = threading.Event()
        self.lost_lines = itertools.count(1)

    def run(self, blocks: Iterator[Block], stop: StopFlag) -> Iterator[tuple[Block, list[Row]]]:
        """Yield each block with its rows, in the order in which they become ready."""
        waiting = 0
        limit = 2 * len(self.workers)  # blocks in memory
        exhausted = False
        while not exhausted or waiting:
            if stop.signal:
                raise StoppedError(f"stopped by {stop.name}; run the same command again to continue", stop.signal)
            if not exhausted and waiting < limit:
                block = next(blocks, None)
                exhausted = block is None
                if block is not None:
                    self._start_thread(waiting)
                    self.blocks.put(block)
                    waiting += 1
                continue
            with suppress(queue.Empty):
                result = self.results.get(timeout=0.2)
                if isinstance(result, BaseException):
                    raise result
                waiting -= 1
                yield result

    def close(self) -> None:
        """Kill the workers and end the threads."""
        for worker in self.workers:
            worker.close()
        self.first_loaded.set()
        for _ in self.threads:
            self.blocks.put(None)
        for thread in self.threads:
            thread.join()

    def _start_thread(self, waiting: int) -> None:
        """Start one more worker if there are blocks for it."""
        if len(self.threads) < len(self.workers) and waiting >= len(self.threads):
            thread = threading.Thread(target=self._work, args=(self.workers[len(self.threads)],), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _work(self, worker: Worker) -> None:
        """Translate blocks until there are none. The others wait for the first, which may be unable to load."""
        try:
            if worker.number:
                self.first_loaded.wait()
            worker.start()
            self.first_loaded.set()
            while (block := self.blocks.get()) is not None:
                self.results.put((block, self._translate(worker, block, MAX_ATTEMPTS)))
        except BaseException as error:  # also of a closed worker; then nobody reads it any more
            self.results.put(error)

    def _translate(self, worker: Worker, block: Block, attempts: int) -> list[Row]:
        """Return the rows of a block, with an error for each line that kills its worker."""
        reason = ""
        for _ in range(attempts):
            try:
                rows = worker.translate(block)
            except WorkerLostError as error:
                if worker.closed:
                    raise
                reason = str(error)
            else:
                self.lost_lines = itertools.count(1)
                return rows
        if len(block.lines) > 1:
            return [
                row
                for half in block.halves()
                for row in self._translate(worker, half, 1 if len(half.lines) > 1 else MAX_ATTEMPTS)
            ]
        if next(self.lost_lines) >= MAX_LOST_LINES:
            raise ResourceError(
                f"{block.file}:{block.first + 1}: the workers die with every line ({reason}); is the memory of this "
                f"machine enough for {len(self.workers)} workers? The finished parts are intact"
            )
        number = block.first + 1
        error_text = f"ended its worker process {attempts} times ({reason})"
        return [Row(number, error_text, self.job.failed_output(number, error_text))]
