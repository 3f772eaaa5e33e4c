"""How texts of many requests form batches: order, fairness, bounds, cancellation, failures. The model is a function."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from regard.errors import DataError
from regard.serving.service.batcher import (
    MAX_BATCH_COST,
    MAX_ROWS,
    MAX_ROWS_OF_REQUEST,
    BatchedRequest,
    Batcher,
    QueueFullError,
)

WATCHDOG = 20


class Model:
    """Doubles each text, one batch whenever `release` is called, and remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may_run = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)

    def __call__(self, texts: Sequence[str], options: Any, sharing: int) -> list[str]:
        self.batches.append(list(texts))
        self.entered.release()
        assert self.may_run.acquire(timeout=WATCHDOG)
        if "out of memory" in texts:
            raise MemoryError("no memory")
        if "bad" in texts:
            raise DataError("a bad text")
        return [text * 2 for text in texts]

    def release(self, batches: int = 1000) -> None:
        self.may_run.release(batches)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def batcher(model: Model) -> Iterator[Batcher]:
    batcher = Batcher("m", model, queue=8)
    yield batcher
    model.release()
    batcher.close()
    batcher.threads[0].join(WATCHDOG)
    assert not batcher.threads[0].is_alive()


@pytest.fixture
def busy(batcher: Batcher, model: Model) -> None:
    """The batcher computes a first text, so that everything after it waits."""
    batcher.submit(BatchedRequest("first", ["first"]))
    assert model.entered.acquire(timeout=WATCHDOG)


def numbered(name: str, count: int) -> list[str]:
    return [f"{name}{i:02}" for i in range(count)]


def test_a_single_text_is_computed_at_once_and_those_that_arrive_meanwhile_form_the_next_batch(
    batcher: Batcher, model: Model, busy: None
) -> None:
    waiting = [batcher.submit(BatchedRequest(client, [client])) for client in "abc"]
    model.release()
    assert [done.result(WATCHDOG) for done in waiting] == [["aa"], ["bb"], ["cc"]]
    assert model.batches == [["first"], ["a", "b", "c"]]


def test_results_are_in_the_order_of_the_texts(batcher: Batcher, model: Model) -> None:
    model.release()
    texts = numbered("t", 100)
    assert batcher.submit(BatchedRequest("a", texts)).result(WATCHDOG) == [text * 2 for text in texts]
    assert max(map(len, model.batches)) == MAX_ROWS_OF_REQUEST
    assert batcher.submit(BatchedRequest("a", [])).result(WATCHDOG) == []


def test_texts_with_different_options_are_in_different_batches(batcher: Batcher, model: Model, busy: None) -> None:
    waiting = [batcher.submit(BatchedRequest("x", [text], option)) for text, option in ("a1", "b2", "c1", "d2")]
    model.release()
    for done in waiting:
        done.result(WATCHDOG)
    assert sorted(model.batches[1:]) == [["a", "c"], ["b", "d"]]


def test_a_list_does_not_stand_before_a_single_text(batcher: Batcher, model: Model, busy: None) -> None:
    batcher.submit(BatchedRequest("a", numbered("a", 64)))
    batcher.submit(BatchedRequest("b", numbered("b", 64)))
    last = batcher.submit(BatchedRequest("a", ["single"]))
    model.release()
    last.result(WATCHDOG)
    assert "single" in model.batches[1]
    counts = [sum(text.startswith(name) for text in model.batches[1]) for name in "ab"]
    assert len(model.batches[1]) == MAX_ROWS and max(counts) <= MAX_ROWS_OF_REQUEST


def test_two_clients_get_the_same_share_however_many_requests_one_of_them_sends(
    batcher: Batcher, model: Model, busy: None
) -> None:
    """The requests of `many` arrived first. While 30 texts of `few` are computed, about 30 of `many` are."""
    for i in range(6):
        batcher.submit(BatchedRequest("many", numbered(f"m{i}", 30)))
    few = batcher.submit(BatchedRequest("few", numbered("f", 30)))
    model.release()
    few.result(WATCHDOG)
    last = next(i for i, batch in enumerate(model.batches) if "f29" in batch)
    before = [text for batch in model.batches[1 : last + 1] for text in batch]
    assert 30 - MAX_ROWS_OF_REQUEST <= sum(text.startswith("m") for text in before) <= 30 + MAX_ROWS


def test_a_long_text_does_not_stand_before_short_ones(batcher: Batcher, model: Model, busy: None) -> None:
    batcher.submit(BatchedRequest("a", ["x" * MAX_BATCH_COST]))
    short = [batcher.submit(BatchedRequest(f"b{i}", ["y"])) for i in range(3)]
    model.release()
    for done in short:
        done.result(WATCHDOG)
    assert model.batches[1] == ["y"] * 3


def test_long_texts_are_in_small_batches(batcher: Batcher, model: Model, busy: None) -> None:
    done = batcher.submit(BatchedRequest("a", ["x" * (MAX_BATCH_COST // 3)] * 4))
    model.release()
    done.result(WATCHDOG)
    assert [len(batch) for batch in model.batches[1:]] == [2, 2]


def test_a_cancelled_request_is_not_computed(batcher: Batcher, model: Model, busy: None) -> None:
    cancelled = batcher.submit(BatchedRequest("a", numbered("a", 40)))
    other = batcher.submit(BatchedRequest("b", ["b"]))
    assert cancelled.cancel() and len(batcher) == 2
    model.release()
    assert other.result(WATCHDOG) == ["bb"]
    assert model.batches == [["first"], ["b"]]


def test_a_request_that_is_cancelled_while_it_is_computed_does_no_harm(
    batcher: Batcher, model: Model, busy: None
) -> None:
    running = batcher.submit(BatchedRequest("a", ["a", "b"]))
    model.release(1)
    assert model.entered.acquire(timeout=WATCHDOG)
    running.cancel()
    model.release()
    assert batcher.submit(BatchedRequest("a", ["c"])).result(WATCHDOG) == ["cc"]
    assert len(batcher) == 0


def test_too_many_requests_are_refused(batcher: Batcher, model: Model, busy: None) -> None:
    for _ in range(7):
        batcher.submit(BatchedRequest("a", ["x"]))
    with pytest.raises(QueueFullError, match="8 requests are already waiting for 'm': try again later") as refused:
        batcher.submit(BatchedRequest("b", ["x"]))
    assert refused.value.retry_seconds == 1


def test_a_refused_client_is_told_how_long_the_queue_takes(batcher: Batcher, model: Model, busy: None) -> None:
    """By the measured speed: 30 texts of 100 characters at 1,000 per second."""
    batcher.submit(BatchedRequest("a", ["x" * 50] * 30))
    batcher._speed = 1000.0
    assert batcher.retry_seconds() == 3
    batcher._speed = 0.001
    assert batcher.retry_seconds() == 120


@pytest.mark.parametrize(("text", "error"), [("bad", DataError), ("out of memory", MemoryError)])
def test_a_failure_harms_only_the_request_that_causes_it(
    batcher: Batcher, model: Model, busy: None, text: str, error: type[Exception]
) -> None:
    good = batcher.submit(BatchedRequest("a", ["a"]))
    failing = batcher.submit(BatchedRequest("b", ["fine", text, "fine"]))
    other = batcher.submit(BatchedRequest("c", ["c"]))
    model.release()
    assert good.result(WATCHDOG) == ["aa"] and other.result(WATCHDOG) == ["cc"]
    with pytest.raises(error):
        failing.result(WATCHDOG)
    assert len(batcher) == 0


def test_results_of_a_stream_arrive_one_by_one(batcher: Batcher, model: Model) -> None:
    model.release()
    arrived: list[tuple[int, str]] = []
    done = batcher.submit(BatchedRequest("a", ["a", "b"], None, lambda index, result: arrived.append((index, result))))
    assert done.result(WATCHDOG) == ["aa", "bb"]
    assert arrived == [(0, "aa"), (1, "bb")]
