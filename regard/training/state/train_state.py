"""Everything that a training run changes from step to step, and that a checkpoint must hold.

loop/train_step.py changes it, loop/loop.py decides when it is validated and saved, checkpoint/checkpoints.py stores it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.kernels.fp8.enable import all_scales
from regard.training.parallel.group import ALONE, Group
from regard.training.parallel.sharding import shard
from regard.training.recipe.schema import TrainingRecipe
from regard.training.state.ema import Ema
from regard.training.state.optimizer import freeze, make_optimizer, trainable_parameters
from regard.training.state.progress import Meter, Progress
from regard.training.state.tensors import (
    generator_states,
    load_generator_states,
    load_optimizer,
    load_weights,
    model_weights,
    on_cpu,
    optimizer_tensors,
)

EMA_PREFIX = "ema/"  # before the parameter names of the exponential moving average
FP8_SCALES = "fp8/amax"  # of the first process


class StateDict(NamedTuple):
    """What all processes of a training run have in common."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]  # its state, and the moving average of the weights
    numbers: dict[str, Any]  # for a JSON file


class ProcessState(NamedTuple):
    """What each process has for itself."""

    generators: dict[str, Tensor]  # by device
    meter: Tensor  # the sums of the current reporting interval, float64


class TrainState:
    """The model, its optimizer, the moving average, the gradient scaler, the progress, and the random generators.

    `model` is what the step trains. `full_model` is what is validated and saved: the same object, or with FSDP, where
    each process holds a shard of `model`, a whole copy that `final_weights` fills.
    """

    def __init__(
        self,
        model: Any,  # one of regard's models, with its config
        recipe: TrainingRecipe,
        *,
        device: torch.device,
        group: Group = ALONE,
    ) -> None:
        is_sharded = group.world > 1 and recipe.parallel == "fsdp"
        if is_sharded and (recipe.compile or recipe.precision in ("fp16", "fp8")):
            raise UsageError('training.parallel = "fsdp" works with fp32 and bf16, and without training.compile')
        self.model, self.device, self.group = model, device, group
        freeze(model, recipe.freeze)
        group.broadcast_weights(model)
        self.full_model = copy.deepcopy(model) if is_sharded else model
        self.sharded = shard(model, group) if is_sharded else None
        self.trainable = trainable_parameters(model)  # parameter -> name: checkpoints store tensors by name
        self.optimizer = make_optimizer(model, recipe)
        by_name = {name: parameter for parameter, name in self.trainable.items()}
        self.ema = Ema(by_name, recipe.ema) if recipe.ema else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")
        self.progress, self.meter = Progress(), Meter()

    def state_dict(self) -> StateDict:
        """Return the common state as full tensors on the CPU. With FSDP all processes must call this."""
        weights = model_weights(self.model)
        optimizer = optimizer_tensors(self.optimizer, self.trainable)
        if self.ema is not None:
            optimizer |= {EMA_PREFIX + name: on_cpu(weight) for name, weight in self.ema.weights.items()}
        if (scales := all_scales(self.model)) is not None:
            optimizer[FP8_SCALES] = on_cpu(scales.amax)
        numbers = {
            "progress": dataclasses.asdict(self.progress),
            "scaler": self.scaler.state_dict(),
            "updates": 0 if self.ema is None else self.ema.updates,
        }
        return StateDict(weights, optimizer, numbers)

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the common state; raise ModelError or ValueError where it belongs to another training."""
        load_weights(self.model, state.weights)
        averages = {
            name.removeprefix(EMA_PREFIX): value
            for name, value in state.optimizer.items()
            if name.startswith(EMA_PREFIX)
        }
        rest = {name: value for name, value in state.optimizer.items() if not name.startswith(EMA_PREFIX)}
        magnitudes = rest.pop(FP8_SCALES, None)
        if magnitudes is not None and (scales := all_scales(self.model)) is not None:
            scales.amax.copy_(magnitudes)
        load_optimizer(self.optimizer, self.trainable, rest)
        if self.ema is not None:
            self.ema.load(averages, int(state.numbers["updates"]))
        self.progress = Progress.from_dict(state.numbers["progress"])
        if state.numbers["scaler"]:
            self.scaler.load_state_dict(state.numbers["scaler"])

    def process_state(self) -> ProcessState:
        """Return what belongs to this process alone."""
        return ProcessState(generator_states(self.device), torch.tensor(self.meter.to_list(), dtype=torch.float64))

    def load_generators(self, generators: dict[str, Tensor]) -> None:
        """Restore the random generators of this process."""
        load_generator_states(generators, self.device)

    @contextmanager
    def final_weights(self) -> Iterator[None]:
        """Inside the block, `full_model` has the weights to validate and save: the moving average if there is one."""
        with nullcontext() if self.ema is None else self.ema.swapped():
            if self.sharded is not None:
                load_weights(self.full_model, model_weights(self.model))
            yield
