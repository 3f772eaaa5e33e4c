"""Memory: what this process holds, what the device has left, and what a step of training takes.

B rows of a batch   L tokens of its longest row
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import ResourceError
from regard.kernels.training.cross_entropy import scores_memory
from regard.models.protocols import TokenPredictor, config_of
from regard.tasks import task_for
from regard.tasks.losses import Objective, Together
from regard.text.batches.batch import Batch
from regard.training.budget.out_of_memory import is_out_of_memory
from regard.training.loop.optimizer import freeze
from regard.training.loop.train_step import PRECISIONS, autocast
from regard.training.recipe.facts import PROCESS, free_memory
from regard.training.recipe.schema import TrainingRecipe

ROWS = (2, 4)  # of the two small batches that a step's memory is measured with
# On a CPU a process grows by more than its tensors: the allocator keeps some of what is given back, for batches of
# other shapes, and the kernels hold memory of their own from the first step on. Fitted to benchmarks/forecast.py.
SLACK = 1.25
KERNELS = 60 << 20


def held(device: torch.device) -> int:
    """Bytes that this process has in use: of a GPU its tensors, else all of it; 0 where the system does not tell."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else _status("VmRSS")


def peak_held(device: torch.device) -> int:
    """The most that it had since `forget_peak`."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _status("VmHWM")


def forget_peak(device: torch.device) -> None:
    """Let `peak_held` begin anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # where that is not allowed, the peak is of the whole past: as much or more
            (PROCESS / "clear_refs").write_text("5")


def room(device: torch.device) -> int:
    """Bytes that this process may have in use: what it has, and what is free."""
    cached = torch.cuda.memory_reserved(device) - held(device) if device.type == "cuda" else 0
    return held(device) + cached + free_memory(str(device))


def _status(name: str) -> int:
    try:
        lines = (PROCESS / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def grown(tensors: float, device: torch.device) -> float:
    """What a process grows by when it takes so many bytes of tensors for training."""
    return tensors if device.type == "cuda" else KERNELS + SLACK * tensors


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def as_text(size: float) -> str:
    """Bytes as people read them."""
    for unit, power in (("GB", 30), ("MB", 20)):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}"
    return f"{size / 2**10:.0f} kB"


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


def activations(model: nn.Module, batch: Batch, loss_function: Objective, precision: str | None) -> Counter[int]:
    """Bytes of each tensor that a forward pass keeps for its backward pass."""
    meter = Meter(model)
    model.train()
    hooks = torch.autograd.graph.saved_tensors_hooks(meter.keep, lambda tensor: tensor)
    with hooks, autocast(batch.labels.device, precision):
        loss = loss_function(model, batch)
    del loss
    return Counter(meter.kept.values())


@dataclass(frozen=True)
class StepMemory:
    """The tensors of a training step, in bytes, as a function of its rows of `length` tokens each."""

    length: int  # L
    weights: int
    gradients: int
    optimizer: int  # Adam's two means, and the mean of the weights where one is kept
    once: float  # activations, whatever the batch
    row: float  # those of a row
    beside: Callable[[int], float] = lambda rows: 0.0  # what stands beside them all for a moment

    def rows(self, batch_tokens: int, world: int = 1) -> int:
        """Rows in a process' share of such a batch."""
        return -(-max(1, batch_tokens // self.length) // world)

    def activations(self, rows: int) -> float:
        """All that is there at the worst moment of so many rows, beside what is there between steps."""
        return self.once + self.row * rows + self.beside(rows)

    def peak(self, rows: int, *, accumulate: int = 1, parts: int = 1) -> float:
        """All tensors at the worst moment of a step; of what does not grow with the rows, `parts` processes share one.

        That is where everything is kept for the backward pass, and beside it either the scores over the vocabulary
        stand, or the first gradients. Earlier micro-batches have left gradients.
        """
        waiting = self.gradients if accumulate > 1 else 0
        passing = max(self.activations(rows) + waiting / parts, self.gradients / parts)
        return (self.weights + self.optimizer) / parts + passing


def step_memory(
    model: nn.Module, loss_function: Objective, training: TrainingRecipe, *, length: int, device: torch.device
) -> StepMemory:
    """Measured with two small batches of rows of that length, by a copy of the model.

    The model and the random numbers to come stay as they are. ResourceError where not even they fit.
    """
    found: list[Counter[int]] = []
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            measured = copy.deepcopy(model)
            freeze(measured, training.freeze)
            for rows in ROWS:
                batch = full_batch(model, rows, length, device)
                found.append(activations(measured, batch, loss_function, training.precision))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        rows = ROWS[len(found)]
        raise ResourceError(
            f"out of memory: not even {rows} rows of {length} tokens fit: take a smaller model"
        ) from error
    few, more = (sum(kept.elements()) for kept in found)
    largest = max(found[1] - found[0], default=0)  # of those that grow with the rows
    gradients = size_of(parameter for parameter in measured.parameters() if parameter.requires_grad)
    row = max(0.0, (more - few) / (ROWS[1] - ROWS[0]))

    def beside(rows: int) -> float:
        return max(largest / ROWS[1] * rows, scores(model, training, rows * length))

    return StepMemory(
        length=length,
        weights=size_of(measured.parameters()),
        gradients=gradients,
        optimizer=(3 if training.ema else 2) * gradients,
        once=max(0.0, few - ROWS[0] * row),
        row=row,
        beside=beside,
    )


def scores(model: nn.Module, training: TrainingRecipe, tokens: int) -> int:
    """Bytes of the scores over the vocabulary, and of what the loss makes of them."""
    if not isinstance(model, TokenPredictor):  # such as a sentence encoder
        return 0
    weight, _ = model.output_table
    count = tokens * len(weight) * (2 if training.r_drop else 1)
    return scores_memory(count, weight, PRECISIONS.get(training.precision or "", weight.dtype), r_drop=training.r_drop)


def full_batch(model: nn.Module, rows: int, length: int, device: torch.device) -> Batch:
    """Return a batch without padding, all rows of that length on each side: the largest of its shape."""
    config = config_of(model)
    return task_for(config.kind).full_batch(config, rows, length, device)


def recipe_loss(model: nn.Module, training: TrainingRecipe, *, together: Together | None = None) -> Objective:
    """Return the loss that a recipe trains this model with; `together` where processes share the pairs of a batch."""
    return task_for(config_of(model).kind).objective(training, together=together)
