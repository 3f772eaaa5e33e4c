"""The workers of a job, and what happens when they die.

A block whose worker dies is translated again, by any worker. If that happens MAX_ATTEMPTS times, the block is halved,
and so on until the one line is left that kills its worker; it stays empty in the result.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from regard.errors import ResourceError
from regard.scale.blocks import Block, Row
from regard.scale.workers import MAX_ATTEMPTS, WorkerLostError

MAX_LOST_LINES = 10  # in a row, without a block that works in between: then it is not the lines


class BlockWorker(Protocol):
    """A process that has loaded the model, on this machine (workers.py) or another one (ray_workers.py)."""

    number: int
    closed: bool

    def start(self) -> None:
        """Start the process and wait until it has loaded the model; LoadError if it cannot."""

    def translate(self, block: Block) -> list[Row]:
        """Return the rows of a block; WorkerLostError if the process dies on the way."""

    def close(self) -> None:
        """End the process, from any thread; no other is started."""


@dataclass
class Whole:
    """A block of the job, with the rows of those of its lines that are done."""

    block: Block
    rows: dict[int, Row] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, rows: Sequence[Row]) -> list[Row] | None:
        """Add rows; return all of them in their order if none is missing any more."""
        with self.lock:
            self.rows |= {row.number: row for row in rows}
            complete = len(self.rows) == len(self.block.lines)
            return [self.rows[number] for number in sorted(self.rows)] if complete else None


@dataclass
class Task:
    """A block to translate, or a part of one that has killed its workers."""

    block: Block
    whole: Whole
    attempts: int = MAX_ATTEMPTS  # left


class Pool:
    """The workers of a job, each with a thread that hands blocks to it."""

    def __init__(self, workers: Sequence[BlockWorker], failed_output: Callable[[int, str], str]) -> None:
        self.workers, self.failed_output = workers, failed_output
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[tuple[Block, list[Row]] | BaseException] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.first_loaded = threading.Event()
        self.lost_lines = itertools.count(1)

    def run(self, blocks: Iterator[Block], check: Callable[[], None]) -> Iterator[tuple[Block, list[Row]]]:
        """Yield each block with its rows, in the order in which they become ready.

        `check` is called several times per second, and ends the work if it raises an error.
        """
        waiting = 0
        limit = 2 * len(self.workers)  # blocks in memory
        exhausted = False
        while not exhausted or waiting:
            check()
            if not exhausted and waiting < limit:
                block = next(blocks, None)
                exhausted = block is None
                if block is not None:
                    self._start_thread(waiting)
                    self.tasks.put(Task(block, Whole(block)))
                    waiting += 1
                continue
            with suppress(queue.Empty):
                result = self.results.get(timeout=0.2)
                if isinstance(result, BaseException):
                    raise result
                waiting -= 1
                yield result

    def close(self) -> None:
        """End the workers and the threads."""
        for worker in self.workers:
            worker.close()
        self.first_loaded.set()
        for _ in self.threads:
            self.tasks.put(None)
        for thread in self.threads:
            thread.join()

    def _start_thread(self, waiting: int) -> None:
        """Start one more worker if there are blocks for it."""
        if len(self.threads) < len(self.workers) and waiting >= len(self.threads):
            thread = threading.Thread(target=self._work, args=(self.workers[len(self.threads)],), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _work(self, worker: BlockWorker) -> None:
        """Translate blocks until there are none. The others wait for the first, which may be unable to load."""
        try:
            if worker.number:
                self.first_loaded.wait()
            worker.start()
            self.first_loaded.set()
            while (task := self.tasks.get()) is not None:
                try:
                    rows = worker.translate(task.block)
                except WorkerLostError as error:
                    if worker.closed:
                        raise
                    self._repeat(task, str(error))  # first, because a new worker may take long to start
                    worker.start()
                else:
                    self.lost_lines = itertools.count(1)
                    self._finish(task, rows)
        except BaseException as error:  # also of a closed worker; then nobody reads it any more
            self.results.put(error)

    def _finish(self, task: Task, rows: Sequence[Row]) -> None:
        if (complete := task.whole.add(rows)) is not None:
            self.results.put((task.whole.block, complete))

    def _repeat(self, task: Task, reason: str) -> None:
        """Queue a block again whose worker has died, at last in halves, or give its only line up."""
        block = task.block
        task.attempts -= 1
        if task.attempts:
            self.tasks.put(task)
        elif len(block.lines) > 1:
            for half in block.halves():
                self.tasks.put(Task(half, task.whole, 1 if len(half.lines) > 1 else MAX_ATTEMPTS))
        elif next(self.lost_lines) >= MAX_LOST_LINES:
            raise ResourceError(
                f"{block.file}:{block.first + 1}: the workers die with every line ({reason}); is there memory enough "
                f"for {len(self.workers)} workers? The finished parts are intact"
            )
        else:
            number = block.first + 1
            error = f"ended its worker process {MAX_ATTEMPTS} times ({reason})"
            self._finish(task, [Row(number, error, self.failed_output(number, error))])
