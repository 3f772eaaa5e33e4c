"""Steps as CUDA graphs: the GPU replays a whole step from one command, without Python in between.

A step of a small model launches a thousand kernels of a few microseconds each, and Python takes longer to launch a
kernel than the GPU takes to run it. Batches come in few shapes (text/batches/length_buckets.py), so the step of each
shape is captured once and replayed from then on. The first step of a shape runs normally: it selects and compiles
kernels and creates the optimizer's state. The second one is captured. A replay draws new random numbers for dropout,
from the same generator.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.machine import is_out_of_memory
from regard.text.batches.batch import Batch

DeviceStep = Callable[[list[Batch]], Tensor]  # a step that never waits for the device -> its loss and gradient norm
TENSORS = ("source", "inputs", "labels", "support")
Shapes = tuple[tuple[int, ...], ...]


class StaticBatches(NamedTuple):
    """The input tensors of one shape's graph: every step copies its batches there, so addresses stay the same."""

    micro_batches: list[Batch]

    @classmethod
    def like(cls, micro_batches: list[Batch]) -> StaticBatches:
        static = []
        for batch in micro_batches:
            tensors: dict[str, Tensor | None] = {name: getattr(batch, name) for name in TENSORS}
            empty: dict[str, Any] = {name: None if t is None else empty_like(t) for name, t in tensors.items()}
            static.append(dataclasses.replace(batch, **empty))
        return cls(static)

    def copy_from(self, micro_batches: list[Batch]) -> None:
        for static, batch in zip(self.micro_batches, micro_batches, strict=True):
            for name in TENSORS:
                if (tensor := getattr(static, name)) is not None:
                    tensor.copy_(getattr(batch, name), non_blocking=True)


class CapturedStep(NamedTuple):
    """A captured graph, and the tensor in which it leaves the step's loss and gradient norm."""

    graph: torch.cuda.CUDAGraph
    values: Tensor


class CapturedSteps:
    """Runs `device_step`; from the third batch of a shape on by replaying its CUDA graph."""

    def __init__(self, device_step: DeviceStep, warn: Callable[[str], None]) -> None:
        self.device_step, self.warn = device_step, warn
        self.inputs: dict[Shapes, StaticBatches] = {}
        self.captured: dict[Shapes, CapturedStep | None] = {}  # None: this shape runs without a graph
        self.pool = torch.cuda.graph_pool_handle()  # shared: only one step runs at a time

    def is_prepared(self, micro_batches: list[Batch]) -> bool:
        """Tell whether a step of these shapes needs no more preparation."""
        return shapes(micro_batches) in self.captured

    def __call__(self, micro_batches: list[Batch]) -> Tensor:
        key = shapes(micro_batches)
        if not all(batch.fixed for batch in micro_batches):
            raise ValueError("only batches of fixed shapes can be captured: a graph cannot depend on token counts")
        is_first = key not in self.inputs
        if is_first:
            self.inputs[key] = StaticBatches.like(micro_batches)
        static = self.inputs[key]
        static.copy_from(micro_batches)
        if is_first:
            return self.device_step(static.micro_batches)
        if key not in self.captured:
            self.captured[key] = self.capture(static.micro_batches)
        step = self.captured[key]
        if step is None:
            return self.device_step(static.micro_batches)
        step.graph.replay()
        return step.values

    def disable(self, micro_batches: list[Batch]) -> None:
        """Run steps of these shapes without a graph from now on: something about them differs from step to step."""
        self.captured[shapes(micro_batches)] = None

    def capture(self, micro_batches: list[Batch]) -> CapturedStep | None:
        """Capture a step without running it; return None where that is impossible."""
        graph = torch.cuda.CUDAGraph()
        gc.collect()  # an autograd graph that is still alive would tie the capture to work outside of it
        try:
            # "thread_local": meanwhile another thread prefetches batches, which is allowed.
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                values = self.device_step(micro_batches)
        except (RuntimeError, MemoryError) as error:
            reason = "memory is short" if is_out_of_memory(error) else str(error.__context__ or error).splitlines()[0]
            if "previous error during capture" in str(error):  # torch's random generator does not survive that
                raise UsageError(
                    f"steps of this model cannot be captured ({reason}): train with --set training.capture=false"
                ) from error
            self.warn(f"steps of {len(micro_batches[0].labels)} rows run without a CUDA graph: {reason}")
            return None
        return CapturedStep(graph, values)


def empty_like(tensor: Tensor) -> Tensor:
    """Return an uninitialised contiguous tensor of the same shape, also where `tensor` is a strided view."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def shapes(micro_batches: list[Batch]) -> Shapes:
    """Return the shapes that must be equal for a captured step to be replayed."""
    tensors = (side for batch in micro_batches for side in (batch.source, batch.labels) if side is not None)
    return tuple(tuple(tensor.shape) for tensor in tensors)
