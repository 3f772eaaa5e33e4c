"""Continuous batching of the texts that a language model writes: each enters when it arrives and leaves when it ends.

All texts share the steps of the model (decoding/running_batch.py). Each has a search of its own, so that temperature,
seed and rules may differ. A text is the same beside any neighbours.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from regard.api.growing_text import StopFinder, TextDecoder
from regard.api.writer import Writer
from regard.decoding.model_step import evaluating, log_probabilities
from regard.decoding.requests import Request, check_room
from regard.decoding.running_batch import Cohort, RunningBatch
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Search
from regard.errors import RegardError
from regard.serving.service.batcher import QueueFullError
from regard.serving.service.metrics import Metrics

MAX_ROWS = 32  # texts that are written at a time
SCORED_TOKENS = 256  # of a prompt whose scores over the whole vocabulary are in memory at a time
MAX_TOKENS = 65_536  # prompts and room for the answers of these texts

Finish = Literal["stop", "length"]


@dataclass
class WrittenToken:
    """A token, the text that it completes, its log-probability, and the most probable tokens with theirs."""

    token: int
    text: str
    logp: float
    top: list[tuple[int, float]]


@dataclass(eq=False)
class WritingRequest:
    """A text to write after a prompt. `on_token` is called for each token, in the thread of the model."""

    client: str
    prompt: Sequence[int]
    search: Search
    max_tokens: int
    stops: Sequence[str] = ()
    ends: frozenset[int] = frozenset()  # tokens that end the text, besides the model's
    top: int = 0  # most probable tokens to report
    on_token: Callable[[WrittenToken], object] | None = None
    tokens: list[WrittenToken] = field(default_factory=list)
    finish: Finish = "length"
    done: Future[WritingRequest] = field(default_factory=Future)
    submitted: float = field(default_factory=time.monotonic)
    started: float = 0.0
    ended: float = 0.0

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


class Growth:
    """A text in the batch: it decodes the tokens, and notices where the text ends."""

    def __init__(self, request: WritingRequest, writer: Writer) -> None:
        self.request = request
        self.ends = request.ends | frozenset(writer.special.ends)
        self.decoder, self.finder = TextDecoder(writer.tokenizer, after=request.prompt), StopFinder(request.stops)

    def push(self, token: int, logp: float, top: list[tuple[int, float]]) -> bool:
        """Add a token; return whether the text ends."""
        request = self.request
        if token in self.ends:
            request.finish = "stop"
            self._add(WrittenToken(token, self.finder.push(self.decoder.flush()) + self.finder.flush(), logp, top))
            return True
        text = self.finder.push(self.decoder.push(token))
        last = len(request.tokens) + 1 == request.max_tokens
        if last and not self.finder.found:
            text += self.finder.push(self.decoder.flush()) + self.finder.flush()
        self._add(WrittenToken(token, text, logp, top))
        if self.finder.found:
            request.finish = "stop"
        return self.finder.found or last

    def _add(self, token: WrittenToken) -> None:
        self.request.tokens.append(token)
        if self.request.on_token is not None:
            self.request.on_token(token)


class WritingBatch:
    """Writes the texts of all requests with one model, in a thread of its own. `load` returns the model."""

    def __init__(self, name: str, load: Callable[[], Writer], *, queue: int, metrics: Metrics) -> None:
        self.name, self.load, self.queue, self.metrics = name, load, queue, metrics
        self.busy_since: float | None = None
        self._condition = threading.Condition()
        self._waiting: list[WritingRequest] = []
        self._calls: list[tuple[Callable[[Writer], Any], Future[Any]]] = []
        self._running: dict[Cohort, Growth] = {}
        self._unfinished = 0
        self._seconds_per_text = 1.0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"texts of {name}", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Return the number of unfinished texts and calls."""
        return self._unfinished

    def submit(self, request: WritingRequest) -> Future[WritingRequest]:
        """Queue a text; QueueFullError if too many are unfinished."""
        self._queue(request.done, lambda: self._waiting.append(request))
        return request.done

    def call(self, work: Callable[[Writer], Any]) -> Future[Any]:
        """Queue a function that is called with the model between two steps, for example to score a text."""
        done: Future[Any] = Future()
        self._queue(done, lambda: self._calls.append((work, done)))
        return done

    def seconds_busy(self) -> float:
        """Return how long the step that is being computed has taken so far."""
        since = self.busy_since
        return 0.0 if since is None else time.monotonic() - since

    def retry_seconds(self) -> int:
        """Return in how many seconds there will be room, by the time that the last texts took."""
        return max(1, min(120, round(len(self._waiting) / MAX_ROWS * self._seconds_per_text)))

    def _queue(self, done: Future[Any], append: Callable[[], None]) -> None:
        with self._condition:
            if self._unfinished >= self.queue:
                message = f"{self._unfinished} texts are already waiting for {self.name!r}: try again later"
                raise QueueFullError(message, self.retry_seconds())
            self._unfinished += 1
            append()
            self._condition.notify()
        done.add_done_callback(self._finished)

    def _finished(self, done: Future[Any]) -> None:
        with self._condition:
            self._unfinished -= 1

    def _run(self) -> None:
        batch: RunningBatch | None = None
        writer: Writer | None = None
        while self._wait():
            self.busy_since = time.monotonic()
            try:
                if not self._running or batch is None or writer is None:
                    writer = self.load()  # the folder may have been loaded again
                    batch = RunningBatch(writer.decoding_model, search=Greedy())
                self._call(writer)
                with evaluating(writer.decoding_model):
                    self._enter(batch, writer)
                    self._step(batch)
            except Exception as error:  # of the whole batch, such as a lack of memory
                if not isinstance(error, RegardError):
                    traceback.print_exc(file=sys.stderr)
                self._fail(error)
                batch = None
            self.busy_since = None

    def _wait(self) -> bool:
        """Wait for work; return False when the batch is closed."""
        with self._condition:
            while not (self._waiting or self._running or self._calls or self._closed):
                self._condition.wait()
            return not self._closed

    def _call(self, writer: Writer) -> None:
        with self._condition:
            calls, self._calls = self._calls, []
        for work, done in calls:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work(writer))
                except Exception as error:
                    done.set_exception(error)

    def _enter(self, batch: RunningBatch, writer: Writer) -> None:
        """Let waiting texts enter while there is room; the client with the fewest running texts is next."""
        while batch.open and (request := self._next()) is not None:
            request.started = time.monotonic()
            self.metrics.queue_seconds.labels(self.name).observe(request.started - request.submitted)
            entering = Request(0, None, list(request.prompt), request.max_tokens)
            try:
                check_room(batch.model, [entering])
                cohort = batch.add([entering], request.search)
            except Exception as error:
                with suppress(InvalidStateError):
                    request.done.set_exception(error)
                if len(batch.cohorts) != len(self._running):
                    raise
                continue
            self._running[cohort] = Growth(request, writer)

    def _next(self) -> WritingRequest | None:
        with self._condition:
            self._waiting = [request for request in self._waiting if not request.done.done()]  # the others: cancelled
            running = Counter(growth.request.client for growth in self._running.values())
            if not self._waiting or len(self._running) >= MAX_ROWS:
                return None
            request = min(self._waiting, key=lambda request: running[request.client])
            if self._running and self._size() + len(request.prompt) + request.max_tokens > MAX_TOKENS:
                return None
            self._waiting.remove(request)
            return request

    def _size(self) -> int:
        requests = [growth.request for growth in self._running.values()]
        return len(requests) * max(len(request.prompt) + request.max_tokens for request in requests)

    def _step(self, batch: RunningBatch) -> None:
        """Write the next token of every text; texts that end, and those of clients that have gone, leave."""
        if not self._running:
            return
        batch.feed()
        top = {cohort: most_probable(cohort, growth.request.top) for cohort, growth in self._running.items()}
        rows = len(self._running)
        for cohort, finished in batch.choose_by_cohort():
            token = finished[0][0].tokens[-1] if finished else int(cohort.tokens[0])
            growth = self._running[cohort]
            if growth.push(token, float(cohort.logps[0, token]), top[cohort]) or growth.request.done.done():
                self._leave(cohort)
        self.metrics.batch_rows.labels(self.name).observe(rows)
        if left := [cohort for cohort in batch.cohorts if cohort not in self._running]:
            batch.drop(left)

    def _leave(self, cohort: Cohort) -> None:
        request = self._running.pop(cohort).request
        request.ended = time.monotonic()
        seconds = request.ended - request.started
        self._seconds_per_text += 0.1 * (seconds - self._seconds_per_text)
        self.metrics.token_seconds.observe(seconds / len(request.tokens))
        with suppress(InvalidStateError):  # cancelled
            request.done.set_result(request)

    def _fail(self, error: Exception) -> None:
        failed = [growth.request.done for growth in self._running.values()]
        self._running = {}
        with self._condition:
            if not failed:  # the model cannot be loaded
                failed = [request.done for request in self._waiting] + [done for _, done in self._calls]
                self._waiting, self._calls = [], []
        for done in failed:
            with suppress(InvalidStateError):
                done.set_exception(error)


def most_probable(cohort: Cohort, count: int) -> list[tuple[int, float]]:
    """Return the most probable next tokens of the only text of a cohort, with their log-probabilities."""
    if not count:
        return []
    values, tokens = cohort.logps[0].topk(count)
    return list(zip(tokens.tolist(), values.tolist(), strict=True))


@torch.inference_mode()
def score_prompt(writer: Writer, prompt: Sequence[int], top: int) -> list[WrittenToken]:
    """Return the log-probability of each token of a prompt; the first one's is 0, because nothing precedes it."""
    model: Any = writer.decoding_model
    device = next(model.parameters()).device
    decoder = TextDecoder(writer.tokenizer, after=[])
    scored = [WrittenToken(prompt[0], decoder.push(prompt[0]), 0.0, [])]
    with evaluating(model):
        hidden = model.decode(torch.tensor([prompt[:-1]], device=device))[0] if len(prompt) > 1 else None  # (T - 1, d)
        for start in range(0, len(prompt) - 1, SCORED_TOKENS):
            assert hidden is not None
            following = prompt[start + 1 : start + 1 + SCORED_TOKENS]
            logps = log_probabilities(model.project(hidden[start : start + SCORED_TOKENS]))  # (tokens, V)
            for row, token in zip(logps, following, strict=True):
                values, best = row.topk(top)
                tops = list(zip(best.tolist(), values.tolist(), strict=True))
                scored.append(WrittenToken(token, decoder.push(token), float(row[token]), tops))
    return scored
