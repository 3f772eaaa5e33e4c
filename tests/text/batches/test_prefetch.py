"""Batches made ahead: all of them, in order, a few at a time, and nobody hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from regard.text.batches.batch import Batch
from regard.text.batches.prefetch import Epochs, Prefetcher


def numbered(i: int) -> Batch:
    return Batch([i], None, torch.zeros(1, 1), torch.zeros(1, 1), 1)


def never() -> bool:
    return False


def test_all_batches_in_order_and_then_none() -> None:
    prefetcher = Prefetcher(iter([numbered(i) for i in range(20)]))
    got = [prefetcher.take(never) for _ in range(20)]
    assert [batch.ids for batch in got if batch is not None] == [[i] for i in range(20)]
    assert prefetcher.take(never) is None
    assert prefetcher.take(never) is None
    prefetcher.close()


def test_a_few_are_made_ahead_and_no_more() -> None:
    made: list[int] = []
    enough = threading.Event()

    def batches() -> Iterator[Batch]:
        for i in range(100):
            made.append(i)
            if i == 3:
                enough.set()
            yield numbered(i)

    prefetcher = Prefetcher(batches(), depth=2)
    assert not enough.wait(0.3)  # two wait in the queue, a third at its door
    assert made == [0, 1, 2]
    first = prefetcher.take(never)
    assert first is not None and first.ids == [0]
    assert enough.wait(10)  # without being asked
    prefetcher.close()
    assert not prefetcher._thread.is_alive()
    assert made[-1] < 10
    assert prefetcher.take(never) is None


def test_whoever_waits_can_be_stopped() -> None:
    hang, asked = threading.Event(), 0

    def batches() -> Iterator[Batch]:
        yield numbered(0)
        hang.wait(30)
        yield numbered(1)

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    prefetcher = Prefetcher(batches())
    first = prefetcher.take(lambda: True)  # it may be there already, and is not lost if not
    first = first or prefetcher.take(never)
    assert first is not None and first.ids == [0]
    before = prefetcher.waited
    assert prefetcher.take(stop) is None
    assert asked == 3
    assert prefetcher.waited - before > 0.2  # two looks in between
    hang.set()
    after = prefetcher.take(never)
    assert after is not None and after.ids == [1]  # nothing was lost
    prefetcher.close()


def test_an_error_comes_out_where_the_batch_is_taken() -> None:
    def batches() -> Iterator[Batch]:
        yield numbered(0)
        raise ValueError("no more disk")

    prefetcher = Prefetcher(batches())
    first = prefetcher.take(never)
    assert first is not None and first.ids == [0]
    for _ in range(2):
        with pytest.raises(ValueError, match="no more disk"):
            prefetcher.take(never)
    prefetcher.close()
    assert not prefetcher._thread.is_alive()


def test_close_while_nobody_takes() -> None:
    prefetcher = Prefetcher(numbered(i) for i in range(10**9))
    prefetcher.close()
    assert not prefetcher._thread.is_alive()


def test_epochs_are_made_once_and_ahead() -> None:
    made: list[int] = []
    both = threading.Event()

    def make(epoch: int) -> str:
        made.append(epoch)
        if len(made) == 2:
            both.set()
        return f"epoch {epoch}"

    epochs = Epochs(make)
    assert epochs.get(3) == "epoch 3"
    epochs.start(4)
    assert both.wait(10)  # without being asked for
    assert (epochs.get(3), epochs.get(4), epochs.get(4)) == ("epoch 3", "epoch 4", "epoch 4")
    assert made == [3, 4]
    assert epochs.get(3) == "epoch 3"  # it was let go, and is made again
    assert made == [3, 4, 3]


def test_whoever_wants_an_epoch_waits_for_it() -> None:
    go = threading.Event()

    def make(epoch: int) -> int:
        go.wait(30)
        return epoch

    epochs = Epochs(make)
    epochs.start(0)
    threading.Timer(0.2, go.set).start()
    assert epochs.get(0) == 0
    assert go.is_set()


def test_an_epoch_that_fails_fails_where_it_is_wanted() -> None:
    def make(epoch: int) -> int:
        raise ValueError(f"no epoch {epoch}")

    epochs = Epochs(make)
    epochs.start(1)
    with pytest.raises(ValueError, match="no epoch 1"):
        epochs.get(1)


SCRIPT = """
import sys, threading, time
from regard.text.batches.prefetch import Epochs, Prefetcher

def work(epoch):
    time.sleep(0.5)
    sys.stdout.write(f"made {epoch}\\n")

def batches():
    while True:
        yield 1

epochs = Epochs(work)
epochs.start(3)
abandoned = Prefetcher(batches())  # nobody closes it
"""


def test_python_waits_for_the_threads_at_its_exit() -> None:
    """A thread that is in native code when Python goes away would abort the process."""
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "made 3\n", "")
