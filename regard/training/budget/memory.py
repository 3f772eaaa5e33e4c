"""The memory that a training step takes: measured on two small batches, extrapolated to large ones.

What the machine has free is in regard/machine; fit.py compares the two and chooses the batch size.

B rows of a batch   L tokens of its longest row
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import ResourceError
from regard.kernels.training.cross_entropy import scores_memory
from regard.machine import is_out_of_memory
from regard.models.protocols import TokenPredictor, config_of
from regard.tasks import task_for
from regard.tasks.losses import Objective
from regard.tasks.precision import autocast_dtype
from regard.text.batches.batch import Batch
from regard.training.loop.train_step import TrainStep
from regard.training.recipe.schema import TrainingRecipe
from regard.training.state.train_state import TrainState

ROWS = (2, 4)  # of the two small batches that are measured
# On a CPU a process grows by more than its tensors: the allocator keeps part of the freed memory for batches of other
# shapes, and kernels allocate memory of their own in the first step. Fitted to benchmarks/train/forecast.py.
SLACK = 1.25
KERNEL_BYTES = 60 << 20


def process_growth(tensors: float, device: torch.device) -> float:
    """Return by how many bytes a process grows when it allocates so many bytes of tensors for training."""
    return tensors if device.type == "cuda" else KERNEL_BYTES + SLACK * tensors


def size_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def format_bytes(size: float) -> str:
    """Format a number of bytes: 1.5 GB, 3.0 MB, 5 kB."""
    for unit, power in (("GB", 30), ("MB", 20)):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}"
    return f"{size / 2**10:.0f} kB"


def measuring_step(
    model: nn.Module, loss_function: Objective, training: TrainingRecipe, device: torch.device
) -> TrainStep:
    """Return a training step for a copy of the model: as the recipe says, but neither compiled nor captured."""
    plain = dataclasses.replace(training, compile=False, capture=False, ema=0.0)
    return TrainStep(TrainState(copy.deepcopy(model).train(), plain, device=device), loss_function, plain)


class SavedTensors:
    """Collects the sizes of the tensors that a forward pass saves for its backward pass, the weights excepted."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
        self.sizes: dict[int, int] = {}  # storage -> bytes; the graph keeps each alive, so addresses are unique

    def save(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.weights:
            self.sizes[storage.data_ptr()] = storage.nbytes()
        return tensor


def saved_activations(step: TrainStep, batch: Batch) -> Counter[int]:
    """Return the bytes of each tensor that the forward pass of a step saves for its backward pass."""
    saved = SavedTensors(step.state.model)
    with torch.autograd.graph.saved_tensors_hooks(saved.save, lambda tensor: tensor):
        loss = step.loss(batch)
    del loss
    return Counter(saved.sizes.values())


@dataclass(frozen=True)
class StepMemory:
    """The tensors of a training step in bytes, as a function of its rows of `length` tokens each."""

    length: int  # L
    weights: int
    gradients: int
    optimizer: int  # Adam's two moments, and the moving average of the weights if there is one
    once: float  # activations that do not depend on the batch
    row: float  # activations of one row
    temporary: Callable[[int], float] = lambda rows: 0.0  # what exists for a moment in addition

    def rows(self, batch_tokens: int, world: int = 1) -> int:
        """Return the rows of a process's share of such a batch."""
        return -(-max(1, batch_tokens // self.length) // world)

    def activations(self, rows: int) -> float:
        """Return the bytes at the worst moment in addition to what exists between steps."""
        return self.once + self.row * rows + self.temporary(rows)

    def peak(self, rows: int, *, accumulate: int = 1, shards: int = 1) -> float:
        """Return the bytes of all tensors at the worst moment of a step.

        That is when all activations are saved for the backward pass, and in addition either the scores over the
        vocabulary exist or the first gradients. Earlier micro-batches have left gradients. Weights, gradients and the
        optimizer's state are divided by `shards`.
        """
        accumulated = self.gradients if accumulate > 1 else 0
        in_pass = max(self.activations(rows) + accumulated / shards, self.gradients / shards)
        return (self.weights + self.optimizer) / shards + in_pass


def step_memory(
    model: nn.Module, loss_function: Objective, training: TrainingRecipe, *, length: int, device: torch.device
) -> StepMemory:
    """Measure a step with two small batches of rows of that length, on a copy of the model.

    The model and the random generators stay as they are. Raise ResourceError if not even the small batches fit.
    """
    measured: list[Counter[int]] = []
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            step = measuring_step(model, loss_function, training, device)
            for rows in ROWS:
                measured.append(saved_activations(step, full_batch(model, rows, length, device)))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        rows = ROWS[len(measured)]
        raise ResourceError(
            f"out of memory: not even {rows} rows of {length} tokens fit: use a smaller model"
        ) from error
    small, large = (sum(sizes.elements()) for sizes in measured)
    largest = max(measured[1] - measured[0], default=0)  # of the tensors that grow with the rows
    gradients = size_of(step.state.trainable)
    row = max(0.0, (large - small) / (ROWS[1] - ROWS[0]))

    def temporary(rows: int) -> float:
        return max(largest / ROWS[1] * rows, scores(model, training, rows * length))

    return StepMemory(
        length=length,
        weights=size_of(step.state.model.parameters()),
        gradients=gradients,
        optimizer=(3 if training.ema else 2) * gradients,
        once=max(0.0, small - ROWS[0] * row),
        row=row,
        temporary=temporary,
    )


def scores(model: nn.Module, training: TrainingRecipe, tokens: int) -> int:
    """Return the bytes of the scores over the vocabulary, and of what the loss computes from them."""
    if not isinstance(model, TokenPredictor):  # such as a sentence encoder
        return 0
    weight, _ = model.output_table
    count = tokens * len(weight) * (2 if training.r_drop else 1)
    copies = 2 if training.precision == "fp8" else 1  # beside the scores, the softmax in 8 bits and transposed
    return copies * scores_memory(
        count,
        weight,
        autocast_dtype(training.precision) or weight.dtype,
        r_drop=training.r_drop,
        kernels=training.kernels != "off",
    )


def full_batch(model: nn.Module, rows: int, length: int, device: torch.device) -> Batch:
    """Return a batch without padding, all rows of that length on each side: the largest of its shape."""
    config = config_of(model)
    return task_for(config.kind).full_batch(config, rows, length, device)
