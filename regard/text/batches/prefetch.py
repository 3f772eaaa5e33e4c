"""Batches made while the last one is being computed, and epochs while the last one is in use: nobody waits for them.

Both take a moment of one core; threads of their own do that beside the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")  # a batch, perhaps with its place; or what an epoch needs

PATIENCE = 0.1  # seconds between two looks at whether to stop


class Ahead(Generic[T]):
    """Takes batches from an iterator in a thread, `depth` of them ahead of who reads them."""

    def __init__(self, batches: Iterator[T], *, depth: int = 2) -> None:
        self.waited = 0.0  # seconds that `take` has waited so far
        self._queue: Queue[T | None] = Queue(depth)  # None: nothing follows
        self._error: BaseException | None = None  # what ended the iterator before its time
        self._over, self._closed = False, Event()
        self._thread = Thread(target=self._make, args=(batches,), name="batches", daemon=True)
        self._thread.start()

    def take(self, stop: Callable[[], bool]) -> T | None:
        """The next batch; None when there are no more, or when stop() becomes true before it is there."""
        began = time.perf_counter()
        try:
            while not self._over:
                try:
                    batch = self._queue.get(timeout=PATIENCE)
                except Empty:
                    if stop():
                        return None
                    continue
                if batch is not None:
                    return batch
                self._over = True
        finally:
            self.waited += time.perf_counter() - began
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """End the thread; a batch that it is just making is let go, and so are those that were not taken."""
        self._closed.set()
        self._thread.join(timeout=1.0)  # longer only where a file system hangs, and the thread ends with the process
        self._over = True

    def _make(self, batches: Iterator[T]) -> None:
        try:
            for batch in batches:
                if not self._put(batch):
                    return
        except BaseException as error:  # it is raised again where the batch is taken
            self._error = error
        self._put(None)

    def _put(self, batch: T | None) -> bool:
        """Whether there was room for it before `close`."""
        while not self._closed.is_set():
            try:
                self._queue.put(batch, timeout=PATIENCE)
                return True
            except Full:
                continue
        return False


class Epochs(Generic[T]):
    """What each epoch needs, made by a function in a thread: the next one's while this one's is in use."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make, self._lock = make, Lock()
        self._made: dict[int, Future[T]] = {}

    def get(self, epoch: int) -> T:
        """What this epoch needs; that of others is let go, but for the next one's."""
        with self._lock:
            self._made = {number: one for number, one in self._made.items() if number in (epoch, epoch + 1)}
        return self.start(epoch).result()

    def start(self, epoch: int) -> Future[T]:
        """Begin to make what this epoch needs, if that has not begun."""
        with self._lock:
            if epoch not in self._made:
                future = self._made[epoch] = Future()
                Thread(target=self._run, args=(epoch, future), name=f"epoch {epoch}", daemon=True).start()
            return self._made[epoch]

    def _run(self, epoch: int, future: Future[T]) -> None:
        try:
            future.set_result(self._make(epoch))
        except BaseException as error:  # it is raised again by `get`
            future.set_exception(error)
