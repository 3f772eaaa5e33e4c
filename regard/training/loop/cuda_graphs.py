"""Steps as CUDA graphs: a GPU repeats a whole step by one command, and Python stays out of it.

A step of a small model is a thousand kernels of a few microseconds, and Python takes longer to ask for each than the
GPU takes to run it. Batches have few shapes (text/shapes.py), so each shape's step is recorded once and then repeated.
The first step of a shape runs as ever: it chooses kernels, compiles, and makes what the optimizer keeps. The second one
is recorded. Repeating one draws new random numbers for dropout, from the same generator.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.machine import is_out_of_memory
from regard.text.batches.batch import Batch

Work = Callable[[list[Batch]], Tensor]  # a step on the device that nobody waits for, and what it found
SIDES = ("source", "inputs", "labels")
Shapes = tuple[tuple[int, ...], ...]


class Place(NamedTuple):
    """Where the batches of one shape are put, so that every step finds them at the same addresses."""

    micro: list[Batch]

    @classmethod
    def like(cls, micro: list[Batch]) -> Place:
        return cls(
            [
                dataclasses.replace(
                    batch,
                    source=None if batch.source is None else empty_like(batch.source),
                    inputs=empty_like(batch.inputs),
                    labels=empty_like(batch.labels),
                )
                for batch in micro
            ]
        )

    def put(self, micro: list[Batch]) -> None:
        for own, given in zip(self.micro, micro, strict=True):
            for name in SIDES:
                if (place := getattr(own, name)) is not None:
                    place.copy_(getattr(given, name), non_blocking=True)


class Recorded(NamedTuple):
    """A step's commands, and where they leave what they found."""

    graph: torch.cuda.CUDAGraph
    found: Tensor


class Captured:
    """Does `work`, from the second batch of a shape on by repeating what was recorded."""

    def __init__(self, work: Work, warn: Callable[[str], None]) -> None:
        self.work, self.warn = work, warn
        self.places: dict[Shapes, Place] = {}
        self.recorded: dict[Shapes, Recorded | None] = {}  # None: it cannot be recorded
        self.pool = torch.cuda.graph_pool_handle()  # one step at a time runs, so all share their memory

    def knows(self, micro: list[Batch]) -> bool:
        """Whether a step of these shapes needs no more preparation."""
        return shapes(micro) in self.recorded

    def __call__(self, micro: list[Batch]) -> Tensor:
        key = shapes(micro)
        if not all(batch.fixed for batch in micro):
            raise ValueError("only batches of fixed shapes can be recorded: the number of their tokens plays no part")
        new = key not in self.places
        if new:
            self.places[key] = Place.like(micro)
        place = self.places[key]
        place.put(micro)
        if new:
            return self.work(place.micro)
        if key not in self.recorded:
            self.recorded[key] = self.record(place.micro)
        step = self.recorded[key]
        if step is None:
            return self.work(place.micro)
        step.graph.replay()
        return step.found

    def forget(self, micro: list[Batch]) -> None:
        """Steps of these shapes run as ever: something about them is not the same each time."""
        self.recorded[shapes(micro)] = None

    def record(self, micro: list[Batch]) -> Recorded | None:
        """The commands of a step, without running them; None where they cannot be recorded."""
        graph = torch.cuda.CUDAGraph()
        gc.collect()  # a graph of autograd that lives on would tie the recording to work outside of it
        try:
            # Another thread makes the next batches meanwhile, and may.
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                found = self.work(micro)
        except (RuntimeError, MemoryError) as error:
            why = "memory is short" if is_out_of_memory(error) else str(error.__context__ or error).splitlines()[0]
            if "previous error during capture" in str(error):  # torch's generator does not survive that
                raise UsageError(
                    f"steps of this model cannot be recorded ({why}): train with --set training.capture=false"
                ) from error
            self.warn(f"steps of {len(micro[0].labels)} rows run uncaptured: {why}")
            return None
        return Recorded(graph, found)


def empty_like(side: Tensor) -> Tensor:
    """A tensor of that shape; its rows lie one after another, whatever the other one is a part of."""
    return torch.empty_like(side, memory_format=torch.contiguous_format)


def shapes(micro: list[Batch]) -> Shapes:
    """What must be alike for a recorded step to fit."""
    sides = (side for batch in micro for side in (batch.source, batch.labels) if side is not None)
    return tuple(tuple(side.shape) for side in sides)
