"""Prefetching: batches are made while the last one is being computed, and epochs while the last one is in use.

Both take one core for a moment, so threads of their own do it during the steps. No such thread may be running when
Python exits: Python ends it in the middle of native code, and the C++ runtime then aborts the whole process
("terminate called without an active exception", exit code 134). So all of them are waited for at exit.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")  # a batch, perhaps with its position in the data; or what an epoch needs

POLL_SECONDS = 0.1  # between two checks whether to stop
CLOSE_SECONDS = 1.0  # that `close` waits for a batch that is just being made
EXIT_SECONDS = 60.0  # that Python's exit waits for the threads; they take longer only if a file system hangs

_threads: WeakSet[Thread] = WeakSet()  # all that were started
_exiting = Event()


def _start_thread(target: Callable[..., None], *arguments: object, name: str) -> Thread:
    thread = Thread(target=target, args=arguments, name=name, daemon=True)
    _threads.add(thread)
    thread.start()
    return thread


@atexit.register
def _join_threads() -> None:
    """Stop all prefetchers, and wait for every thread of this module."""
    _exiting.set()
    deadline = time.monotonic() + EXIT_SECONDS
    for thread in list(_threads):
        thread.join(timeout=max(0.0, deadline - time.monotonic()))


class Prefetcher(Generic[T]):
    """Takes batches from an iterator in a thread, up to `depth` of them ahead of the reader."""

    def __init__(self, batches: Iterator[T], *, depth: int = 2) -> None:
        self.waited = 0.0  # seconds that `take` has waited so far
        self._queue: Queue[T | None] = Queue(depth)  # None marks the end
        self._error: BaseException | None = None  # what ended the iterator early
        self._over, self._closed = False, Event()
        self._thread = _start_thread(self._make, batches, name="batches")

    def take(self, stop: Callable[[], bool]) -> T | None:
        """Return the next batch; None at the end, or if stop() becomes true before the batch is ready."""
        started = time.perf_counter()
        try:
            while not self._over:
                try:
                    batch = self._queue.get(timeout=POLL_SECONDS)
                except Empty:
                    if stop():
                        return None
                    continue
                if batch is not None:
                    return batch
                self._over = True
        finally:
            self.waited += time.perf_counter() - started
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """End the thread, and drop the batches that were not taken."""
        self._closed.set()
        self._thread.join(timeout=CLOSE_SECONDS)
        self._over = True

    def _make(self, batches: Iterator[T]) -> None:
        try:
            for batch in batches:
                if not self._put(batch):
                    return
        except BaseException as error:  # `take` raises it again
            self._error = error
        self._put(None)

    def _put(self, batch: T | None) -> bool:
        """Queue a batch when there is room; return False if the prefetcher is closed first."""
        while not (self._closed.is_set() or _exiting.is_set()):
            try:
                self._queue.put(batch, timeout=POLL_SECONDS)
                return True
            except Full:
                continue
        return False


class Epochs(Generic[T]):
    """What each epoch needs, made by a function in a thread: the next epoch's while the current one is in use."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make, self._lock = make, Lock()
        self._epochs: dict[int, Future[T]] = {}

    def get(self, epoch: int) -> T:
        """Return what this epoch needs; drop all other epochs except the next one."""
        with self._lock:
            self._epochs = {number: future for number, future in self._epochs.items() if number in (epoch, epoch + 1)}
        return self.start(epoch).result()

    def start(self, epoch: int) -> Future[T]:
        """Start to make what this epoch needs, unless that has started already."""
        with self._lock:
            if epoch not in self._epochs:
                future = self._epochs[epoch] = Future()
                _start_thread(self._run, epoch, future, name=f"epoch {epoch}")
            return self._epochs[epoch]

    def _run(self, epoch: int, future: Future[T]) -> None:
        try:
            future.set_result(self._make(epoch))
        except BaseException as error:  # `get` raises it again
            future.set_exception(error)
