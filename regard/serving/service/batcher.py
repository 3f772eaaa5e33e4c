"""Batches over the requests of all clients: what waits while batches are computed forms the next ones.

Each model has a batcher with one or more workers, which are threads. When all are idle, a text is computed at once,
alone; under load the batches grow by themselves. The result of a text does not depend on the batch that it is in.

With several workers, some compute while the clients of another one read their answers and send new requests. The texts
are divided evenly among the workers. One that has fewer than its share waits for more, for at most GATHER_SECONDS.

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
GATHER_SECONDS = 0.001
SPEED_SMOOTHING = 0.1  # weight of the newest batch in the average speed
MAX_RETRY_SECONDS = 120  # clients ignore a longer Retry-After

# Texts, options, and how many workers share the machine with this one (itself included) -> a result for each text.
Compute = Callable[[Sequence[str], Any, int], Sequence[Any]]


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


class Batch:
    """Texts that are computed together, by their requests and indices; `sharing` workers share the machine."""

    def __init__(self, entries: list[tuple[BatchedRequest, int]], sharing: int) -> None:
        self.entries, self.sharing = entries, sharing
        self.started = time.monotonic()

    @property
    def cost(self) -> int:
        return sum(TEXT_COST + len(request.texts[index]) for request, index in self.entries)


class Batcher:
    """Computes the texts of all requests with one model, in batches.

    `on_batch` is called after each batch with its rows, the seconds that each text waited, and those that it took.
    """

    def __init__(
        self,
        name: str,
        compute: Compute,
        *,
        queue: int,
        workers: int = 1,
        on_batch: Callable[[int, list[float], float], None] | None = None,
    ) -> None:
        self.name, self.compute, self.queue, self.on_batch = name, compute, queue, on_batch
        self.running: list[Batch] = []
        self._condition = threading.Condition()
        self._heap: list[tuple[float, int, BatchedRequest]] = []  # (tag of its next text, number, request)
        self._unfinished: Counter[str] = Counter()  # requests of each client
        self._waiting = self._waiting_cost = self._number = 0  # texts, their cost; requests so far
        self._clock = 0.0  # the tag that is being served
        self._speed = 0.0  # cost per second
        self._closed = False
        self.threads: list[threading.Thread] = []
        self.use_workers(workers)

    def use_workers(self, count: int) -> None:
        """Start threads until there are `count`."""
        with self._condition:
            while len(self.threads) < count:
                name = f"batches of {self.name}, {len(self.threads) + 1}"
                self.threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self.threads[-1].start()

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
            self._waiting += len(request.texts)
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
        """Return how long the oldest batch that is being computed has taken so far."""
        with self._condition:
            return max((time.monotonic() - batch.started for batch in self.running), default=0.0)

    def close(self) -> None:
        """End the threads after the batches that they compute."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _push(self, tag: float, number: int, request: BatchedRequest) -> None:
        tag += request.next_cost * self._unfinished[request.client]
        heapq.heappush(self._heap, (tag, number, request))

    def _finish(self, request: BatchedRequest) -> None:
        """Forget a request that is done or cancelled; texts that are in no batch yet never will be."""
        with self._condition:
            self._unfinished[request.client] -= 1
            if not self._unfinished[request.client]:
                del self._unfinished[request.client]
            self._waiting -= len(request.texts) - request.next
            self._waiting_cost -= sum(TEXT_COST + len(text) for text in request.texts[request.next :])
            request.next = len(request.texts)

    def _take(self) -> Batch | None:
        """Wait for texts, and return the next batch; None: closed."""
        gathers_until: float | None = None
        with self._condition:
            while not self._closed:
                if not self._waiting:
                    gathers_until = None
                    self._condition.wait()
                    continue
                now = time.monotonic()
                gathers_until = gathers_until or now + GATHER_SECONDS
                if self.running and self._waiting < self._share and now < gathers_until:
                    self._condition.wait(gathers_until - now)
                    continue
                entries = self._fill(self._share)
                if self._waiting:
                    self._condition.notify()
                others = len(self.running) + min(1, self._waiting)
                self.running.append(batch := Batch(entries, min(len(self.threads), 1 + others)))
                return batch
            return None

    @property
    def _share(self) -> int:
        """How many texts a worker takes: its part of those that wait and those that are computed."""
        texts = self._waiting + sum(len(batch.entries) for batch in self.running)
        return min(MAX_ROWS, -(-texts // len(self.threads)))

    def _fill(self, most: int) -> list[tuple[BatchedRequest, int]]:
        batch: list[tuple[BatchedRequest, int]] = []
        rows: Counter[int] = Counter()  # of each request, by its number
        later = []  # requests whose next text must not enter this batch
        cost = 0
        while self._heap and len(batch) < most:
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
        self._waiting -= len(batch)
        self._waiting_cost -= cost
        return batch

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            for request, _ in batch.entries:
                request.started = request.started or batch.started
            results = self._compute(batch)
            seconds = time.monotonic() - batch.started
            with self._condition:
                self.running.remove(batch)
                speed = batch.cost * batch.sharing / max(seconds, 1e-6)
                self._speed += (SPEED_SMOOTHING if self._speed else 1.0) * (speed - self._speed)
            if self.on_batch is not None:
                self.on_batch(
                    len(results), [batch.started - request.submitted for request, _ in batch.entries], seconds
                )
            for (request, index), result in zip(batch.entries, results, strict=True):
                request.ended = batch.started + seconds
                deliver(request, index, result)

    def _compute(self, batch: Batch) -> Sequence[Any]:
        """Return the results of a batch. If it fails, compute each text alone, so that only its own request fails."""
        texts, options = [request.texts[index] for request, index in batch.entries], batch.entries[0][0].options
        try:
            results = list(self.compute(texts, options, batch.sharing))
            if len(results) != len(texts):
                raise RuntimeError(f"{self.name!r} returned {len(results)} results for {len(texts)} texts")
            return results
        except Exception as error:
            if len(texts) == 1:
                if not isinstance(error, RegardError):
                    traceback.print_exc(file=sys.stderr)
                return [error]
        return [self._compute(Batch([entry], batch.sharing))[0] for entry in batch.entries]


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
