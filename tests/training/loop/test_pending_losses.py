"""Steps come back in order, with their own numbers, and nobody waits longer than agreed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from regard.training.loop import pending_losses as module
from regard.training.loop.pending_losses import PendingLosses, QueuedStep


class Event:
    """One of a GPU that has done so many steps; to wait for a step does all up to it."""

    done = 0
    made: list[Event]
    waits: list[int]

    def record(self) -> None:
        Event.made.append(self)
        self.number = len(Event.made)

    def query(self) -> bool:
        return self.number <= Event.done

    def synchronize(self) -> None:
        Event.waits.append(self.number)
        Event.done = max(Event.done, self.number)


class OnGpu(Tensor):
    """A tensor that says so."""

    is_cuda = True


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[Event]:
    """Events in place of CUDA's, and memory that need not be pinned."""
    Event.done, Event.made, Event.waits = 0, [], []

    def empty(shape: torch.Size, *, dtype: torch.dtype, pin_memory: bool) -> Tensor:
        assert pin_memory
        return torch.empty(shape, dtype=dtype)

    monkeypatch.setattr(module, "torch", SimpleNamespace(empty=empty, cuda=SimpleNamespace(Event=Event)))
    return Event


def record(step: int) -> QueuedStep:
    return QueuedStep(step, rate=0.1 * step, divisor=step, samples=[step], epoch=0)


def put(pending: PendingLosses, *steps: int) -> None:
    """Steps that find their number and its half; all leave it at one place, as recorded steps do."""
    place = torch.zeros(2).as_subclass(OnGpu)
    for step in steps:
        place.copy_(torch.tensor([step, step / 2]))
        pending.add(record(step), place)
    place.fill_(-1.0)


def arrived(pending: PendingLosses, **options: bool) -> list[int]:
    """The steps that have; what was noted of them and what they found belong together."""
    found = list(pending.arrived(**options))
    assert found == [(record(one.step), float(one.step), one.step / 2) for one, _, _ in found]
    return [one.step for one, _, _ in found]


def test_on_a_cpu_all_is_there_at_once() -> None:
    pending = PendingLosses(16)
    for step in (1, 2):
        pending.add(record(step), torch.tensor([step, step / 2]))
    assert arrived(pending) == [1, 2]
    assert arrived(pending) == arrived(pending, wait=True) == []


def test_only_what_has_arrived_is_told_and_nobody_waits(gpu: type[Event]) -> None:
    pending = PendingLosses(16)
    put(pending, 1, 2, 3)
    assert arrived(pending) == []
    gpu.done = 2
    put(pending, 4)
    assert arrived(pending) == [1, 2]
    assert arrived(pending) == []
    gpu.done = 4
    assert arrived(pending) == [3, 4]
    assert gpu.waits == []


def test_a_gpu_that_falls_behind_is_waited_for(gpu: type[Event]) -> None:
    """One step more than the lag: the first is waited for, and no other."""
    pending = PendingLosses(3)
    put(pending, 1, 2, 3)
    assert arrived(pending) == []
    put(pending, 4)
    assert arrived(pending) == [1]
    assert gpu.waits == [1]
    put(pending, 5, 6)
    assert arrived(pending) == [2, 3]
    assert gpu.waits == [1, 2, 3]


def test_without_lag_each_step_is_waited_for(gpu: type[Event]) -> None:
    pending = PendingLosses(0)
    put(pending, 1)
    assert arrived(pending) == [1]
    assert gpu.waits == [1]


def test_all_are_waited_for_where_they_must_be(gpu: type[Event]) -> None:
    pending = PendingLosses(16)
    put(pending, 1, 2, 3)
    gpu.done = 1
    assert arrived(pending, wait=True) == [1, 2, 3]
    assert gpu.waits == [2, 3]  # the first was there


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_numbers_of_a_place_that_is_overwritten_cuda() -> None:
    pending, place = PendingLosses(16), torch.zeros(2, device="cuda")
    for step in range(1, 40):
        place.copy_(torch.tensor([step, step / 2]), non_blocking=True)
        pending.add(record(step), place)
    assert arrived(pending, wait=True) == list(range(1, 40))
