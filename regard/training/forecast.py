"""What a training will cost, before it starts: memory and time, from a few real steps on a copy of the model.

print("\\n".join(forecast(model, batch, loss_function, recipe).lines()))
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.text.batching import Batch
from regard.training.facts import free_memory
from regard.training.loop import Loop, autocast, needed
from regard.training.loss import Loss
from regard.training.recipe import Recipe
from regard.training.report import duration

WARM_UP = 2  # steps that are not counted: buffers are made, kernels chosen
FEWEST, MOST = 3, 15  # steps that are
SECONDS = 3.0  # after which there are enough of them
CROWDED = 0.9  # share of the free memory from which on it is tight


@dataclass(frozen=True)
class Forecast:
    """Parameters, bytes and seconds of a training."""

    parameters: int
    weights: int  # bytes, as are the next ones
    gradients: int
    optimizer: int
    activations: int  # what the forward pass keeps for the backward pass
    peak: int  # of all tensors in a step; measured on CUDA, elsewhere estimated. The program itself comes on top
    free: int  # what the device has for it
    seconds_a_step: float | None  # None when a step did not fit into memory
    tokens_a_step: int
    steps: int

    @property
    def seconds(self) -> float | None:
        """Of all steps; validation is not counted."""
        return None if self.seconds_a_step is None else self.seconds_a_step * self.steps

    @property
    def warning(self) -> str | None:
        """What to do when the memory will not do."""
        if self.seconds_a_step is not None and self.peak <= CROWDED * self.free:
            return None
        verdict = "will not fit" if self.seconds_a_step is None or self.peak > self.free else "will hardly fit"
        return (
            f"training {verdict} into memory: lower training.batch_tokens, and raise training.accumulate as much, "
            f"which learns the same; or take a smaller model"
        )

    def lines(self) -> list[str]:
        """For people, a line a topic."""
        parts = {"weights": self.weights, "gradients": self.gradients, "optimizer": self.optimizer}
        told = ", ".join(f"{name} {_size(count)}" for name, count in {**parts, "activations": self.activations}.items())
        lines = [
            f"parameters: {self.parameters:,}",
            f"memory: about {_size(self.peak)} at the peak, of {_size(self.free)} free ({told})",
        ]
        if self.seconds_a_step is not None and self.seconds is not None:
            speed = f"{self.tokens_a_step / self.seconds_a_step:,.0f} tokens a second"
            all_steps = f"{duration(self.seconds)} for {self.steps:,} steps"
            lines.append(
                f"time: about {all_steps}, validation not counted ({self.seconds_a_step:.3g} s a step, {speed})"
            )
        return [*lines, f"warning: {self.warning}"] if self.warning else lines


class Meter:
    """Sums the tensors that a forward pass keeps for its backward pass; the model's own weights are not among them."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {one.untyped_storage().data_ptr() for one in [*model.parameters(), *model.buffers()]}
        self.kept: dict[int, int] = {}  # storage -> bytes; each is kept alive by the graph, so none is met twice

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.weights:
            self.kept[storage.data_ptr()] = storage.nbytes()
        return tensor


class Repeat:
    """Data that gives the same batch for ever."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        while True:
            yield self.batch


def forecast(
    model: nn.Module, batch: Batch, loss_function: Callable[[nn.Module, Batch], Loss], recipe: Recipe
) -> Forecast:
    """Measure a few steps with this batch, which should be a full one.

    The steps are taken by a copy, so the model is left as it is, and so are the random numbers to come.
    """
    device = next(model.parameters()).device
    free = free_memory(str(device)) + (
        _bytes(model.parameters()) if device.type == "cuda" else 0
    )  # it is there already
    gpus = [device] if device.type == "cuda" else []
    batch, training = batch.to(device), recipe.training
    before = torch.cuda.memory_allocated(device) if gpus else 0
    with torch.random.fork_rng(devices=gpus):
        loop = Loop(copy.deepcopy(model), Repeat(batch), loss_function, training, device=device)
        micro = [batch] * training.accumulate
        largest = activations = 0
        seconds: float | None = None
        try:
            activations, largest = _activations(loop, batch, loss_function)
            seconds = _seconds_a_step(loop, micro)
        except torch.OutOfMemoryError:
            pass  # the forecast says so
    trained = [parameter for parameter in loop.model.parameters() if parameter.requires_grad]
    weights, gradients = _bytes(loop.model.parameters()), _bytes(trained)
    optimizer = 2 * gradients  # Adam's two means
    if gpus and seconds is not None:
        peak = torch.cuda.max_memory_allocated(device) - before
    else:
        # The worst moment is the start of the backward pass, when everything is kept, and the gradient of the largest
        # tensor, mostly the scores over the vocabulary, stands beside it. Earlier micro-batches leave gradients.
        waiting = gradients if training.accumulate > 1 else 0
        peak = weights + optimizer + max(activations + largest + waiting, gradients)
    del loop
    return Forecast(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=activations,
        peak=peak,
        free=free,
        seconds_a_step=seconds,
        tokens_a_step=batch.tokens * training.accumulate,
        steps=needed(training.steps),
    )


def _activations(loop: Loop, batch: Batch, loss_function: Callable[[nn.Module, Batch], Loss]) -> tuple[int, int]:
    """Bytes that one forward pass keeps, and those of the largest tensor among them."""
    meter = Meter(loop.model)
    loop.model.train()
    with (
        torch.autograd.graph.saved_tensors_hooks(meter.keep, lambda tensor: tensor),
        autocast(loop.device, loop.recipe.precision),
    ):
        loss = loss_function(loop.model, batch)
    del loss
    return sum(meter.kept.values()), max(meter.kept.values(), default=0)


def _seconds_a_step(loop: Loop, micro: list[Batch]) -> float:
    """The median of some steps, after a warm-up."""
    taken: list[float] = []
    on_gpu = loop.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(loop.device)
    while len(taken) < WARM_UP + FEWEST or (len(taken) < MOST and sum(taken) < SECONDS):
        began = time.perf_counter()
        loop.train_step(micro)
        if on_gpu:
            torch.cuda.synchronize(loop.device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[WARM_UP:])


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _size(count: int) -> str:
    """Bytes as people read them."""
    for unit, power in (("GB", 30), ("MB", 20)):
        if count >= 2**power:
            return f"{count / 2**power:.1f} {unit}"
    return f"{count / 2**10:.0f} kB"
