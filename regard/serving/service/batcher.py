"""Batches over the requests of all clients: what waits while a batch is computed forms the next batch.

Each model has a batcher with one thread. When the thread is idle, a text is computed at once, alone; under load the
batches grow by themselves. The result of a text does not depend on the batch that it is in.

The order is that of fair queueing (self-clocked; Golestani 1994): the next text is the one with the smallest tag. The
tag of a request's first text is its cost, added to the tag that is served when it arrives; that of each later text is
its cost, added to the tag of the text before. So a list of texts does not stand before a single text, and a long text
not before short ones. The costs of a client with several requests count as many times, so all clients get equal shares.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from regard.errors import RegardError

MAX_ROWS = 32  # texts of a batch
MAX_ROWS_OF_REQUEST = 16
MAX_BATCH_COST = 3_200  # a long text shares its batch with few others
TEXT_COST = 50  # of a text of any length, in characters
SPEED_SMOOTHING = 0.1  # weight of the newest batch in the average speed
MAX_RETRY_SECONDS = 120  # clients ignore a longer Retry-After

Compute = Callable[[Sequence[str], Any], Sequence[Any]]  # texts and options -> a result for each text


class QueueFullError(RegardError):
    """Too many requests are waiting for a model."""

    def __init__(self, message: str, retry_seconds: int) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


@dataclass(eq=False)
class BatchedRequest:
    """The texts of one request. `options` are equal for texts that may be computed together."""

    client: str
    texts: Sequence[str]
    options: Hashable = None
    on_result: Callable[[int, Any], None] | None = None  # called in the batcher's thread, with each text's index
    results: list[Any] = field(init=False)
    done: Future[list[Any]] = field(default_factory=Future)
    next: int = 0  # the index of the first text that is in no batch yet
    left: int = field(init=False)  # texts without a result
    submitted: float = field(default_factory=time.monotonic)
    started: float = 0.0  # when its first text entered a batch
    ended: float = 0.0  # when its last batch ended

    def __post_init__(self) -> None:
        self.results, self.left = [None] * len(self.texts), len(self.texts)

    @property
    def next_cost(self) -> int:
        return TEXT_COST + len(self.texts[self.next])


class Batcher:
    """Computes the texts of all requests with one model, in batches, in a thread of its own.

    `on_batch` is called after each batch with its rows, the seconds that each text waited, and those that it took.
    """

    def __init__(
        self,
        name: str,
        compute: Compute,
        *,
        queue: int,
        on_batch: Callable[[int, list[float], float], None] | None = None,
    ) -> None:
        self.name, self.compute, self.queue, self.on_batch = name, compute, queue, on_batch
        self.busy_since: float | None = None  # when the batch that is being computed began
        self._condition = threading.Condition()
        self._heap: list[tuple[float, int, BatchedRequest]] = []  # (tag of its next text, number, request)
        self._unfinished: Counter[str] = Counter()  # requests of each client
        self._waiting_cost = self._number = 0
        self._clock = 0.0  # the tag that is being served
        self._speed = 0.0  # cost per second
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"batches of {name}", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Return the number of unfinished requests."""
        return self._unfinished.total()

    def submit(self, request: BatchedRequest) -> Future[list[Any]]:
        """Queue the texts of a request; QueueFullError if too many requests are unfinished."""
        if not request.texts:
            request.done.set_result([])
            return request.done
        with self._condition:
            if len(self) >= self.queue:
                raise QueueFullError(
                    f"{len(self)} requests are already waiting for {self.name!r}: try again later", self.retry_seconds()
                )
            self._unfinished[request.client] += 1
            self._number += 1
            self._waiting_cost += sum(TEXT_COST + len(text) for text in request.texts)
            self._push(self._clock, self._number, request)
            self._condition.notify()
        request.done.add_done_callback(lambda _: self._finish(request))
        return request.done

    def retry_seconds(self) -> int:
        """Return in how many seconds the waiting texts will be done, by the speed of the last batches."""
        seconds = self._waiting_cost / self._speed if self._speed else 1.0
        return max(1, min(MAX_RETRY_SECONDS, round(seconds)))

    def seconds_busy(self) -> float:
        """Return how long the batch that is being computed has taken so far."""
        since = self.busy_since
        return 0.0 if since is None else time.monotonic() - since

    def close(self) -> None:
        """End the thread after the batch that it computes."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _push(self, tag: float, number: int, request: BatchedRequest) -> None:
        tag += request.next_cost * self._unfinished[request.client]
        heapq.heappush(self._heap, (tag, number, request))

    def _finish(self, request: BatchedRequest) -> None:
        """Forget a request that is done or cancelled; texts that are in no batch yet never will be."""
        with self._condition:
            self._unfinished[request.client] -= 1
            if not self._unfinished[request.client]:
                del self._unfinished[request.client]
            self._waiting_cost -= sum(TEXT_COST + len(text) for text in request.texts[request.next :])
            request.next = len(request.texts)

    def _take(self) -> list[tuple[BatchedRequest, int]]:
        """Wait for texts, and return those of the next batch, by their requests and indices; none: closed."""
        with self._condition:
            while not self._closed:
                if batch := self._fill():
                    return batch
                self._condition.wait()
            return []

    def _fill(self) -> list[tuple[BatchedRequest, int]]:
        batch: list[tuple[BatchedRequest, int]] = []
        rows: Counter[int] = Counter()  # of each request, by its number
        later = []  # requests whose next text must not enter this batch
        cost = 0
        while self._heap and len(batch) < MAX_ROWS:
            tag, number, request = heapq.heappop(self._heap)
            if request.next == len(request.texts):
                continue  # cancelled
            fits = not batch or cost + request.next_cost <= MAX_BATCH_COST
            alike = not batch or request.options == batch[0][0].options
            if not fits or not alike or rows[number] == MAX_ROWS_OF_REQUEST:
                later.append((tag, number, request))
                continue
            rows[number] += 1
            batch.append((request, request.next))
            cost += request.next_cost
            self._clock = max(self._clock, tag)
            request.next += 1
            if request.next < len(request.texts):
                self._push(tag, number, request)
        for entry in later:
            heapq.heappush(self._heap, entry)
        self._waiting_cost -= cost
        return batch

    def _run(self) -> None:
        while batch := self._take():
            started = self.busy_since = time.monotonic()
            for request, _ in batch:
                request.started = request.started or started
            results = self._compute(batch)
            seconds = time.monotonic() - started
            self.busy_since = None
            cost = sum(TEXT_COST + len(request.texts[index]) for request, index in batch)
            speed = cost / max(seconds, 1e-6)
            self._speed += (SPEED_SMOOTHING if self._speed else 1.0) * (speed - self._speed)
            if self.on_batch is not None:
                self.on_batch(len(batch), [started - request.submitted for request, _ in batch], seconds)
            for (request, index), result in zip(batch, results, strict=True):
                request.ended = started + seconds
                deliver(request, index, result)

    def _compute(self, batch: list[tuple[BatchedRequest, int]]) -> Sequence[Any]:
        """Return the results of a batch. If it fails, compute each text alone, so that only its own request fails."""
        texts, options = [request.texts[index] for request, index in batch], batch[0][0].options
        try:
            results = list(self.compute(texts, options))
            if len(results) != len(texts):
                raise RuntimeError(f"{self.name!r} returned {len(results)} results for {len(texts)} texts")
            return results
        except Exception as error:
            if len(batch) == 1:
                if not isinstance(error, RegardError):
                    traceback.print_exc(file=sys.stderr)
                return [error]
        return [self._compute([entry])[0] for entry in batch]


def deliver(request: BatchedRequest, index: int, result: Any) -> None:
    """Give a request the result of one of its texts; an exception ends the whole request."""
    if request.done.done():
        return  # cancelled, or another text of it has failed
    with suppress(InvalidStateError):  # cancelled in this moment
        if isinstance(result, Exception):
            request.done.set_exception(result)
            return
        request.results[index] = result
        request.left -= 1
        if request.on_result is not None:
            request.on_result(index, result)
        if not request.left:
            request.done.set_result(request.results)
