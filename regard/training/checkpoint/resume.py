"""A training's whole state to a checkpoint and back, with one process or many, parted or not.

Weights and the optimizer's memory are stored whole, so another number of processes can go on from them. Generators and
the meter are each process' own.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import DivergedError, ModelError
from regard.models.folder_config import shortened
from regard.text.random_streams import random_keys
from regard.training.checkpoint import files as checkpoint
from regard.training.loop.progress import Meter, Progress

if TYPE_CHECKING:
    from regard.training.loop.loop import Loop

FORMAT = 2
MEAN = "ema/"  # before the names of the exponential mean's weights
RANDOM = "random/"  # before the names of the generators' states
DROPOUT = 7  # the stream of random numbers that new generators start from


def save_state(loop: Loop, folder: Path) -> None:
    """Commit a checkpoint. All processes take part, and the first one writes."""
    group = loop.group
    loop.settle()
    memory = random_states(loop)
    meters = group.gather(torch.tensor(loop.meter.numbers(), dtype=torch.float64))
    if not group.first and not loop.parted:
        return
    weights = checkpoint.model_weights(loop.model)
    memory |= checkpoint.optimizer_tensors(loop.optimizer, loop.names)
    if loop.ema is not None:
        memory |= {MEAN + name: checkpoint.on_cpu(weight) for name, weight in loop.ema.weights.items()}
    if not group.first:
        return
    for name, weight in {**weights, **memory}.items():
        if not weight.isfinite().all():
            raise DivergedError(f"{name} is not finite at step {loop.progress.step}: nothing is saved of this step")
    checkpoint.save_checkpoint(
        folder,
        loop.progress.step,
        weights=weights,
        optimizer=memory,
        state={
            "format": FORMAT,
            "world": group.world,
            "data": loop.fingerprint,
            "progress": dataclasses.asdict(loop.progress),
            "scaler": loop.scaler.state_dict(),
            "updates": 0 if loop.ema is None else loop.ema.updates,
            "meters": [meter.tolist() for meter in meters],
        },
        keep=max(loop.recipe.keep, loop.recipe.average),
    )


def restore_state(loop: Loop, saved: checkpoint.Checkpoint) -> None:
    """Go on from a checkpoint as if nothing had happened; ModelError where it is not one of this training."""
    if saved.state.get("format") != FORMAT:
        raise ModelError(
            f"the checkpoint of step {saved.step} is of another version of regard and cannot be gone on from: "
            f"train into another --out"
        )
    try:
        checkpoint.put_weights(loop.model, saved.weights)
        kinds: dict[str, dict[str, Tensor]] = {"": {}, MEAN: {}, RANDOM: {}}
        for name, value in saved.optimizer.items():
            kind = next((kind for kind in (MEAN, RANDOM) if name.startswith(kind)), "")
            kinds[kind][name.removeprefix(kind)] = value
        checkpoint.put_optimizer(loop.optimizer, loop.names, kinds[""])
        if loop.ema is not None:
            loop.ema.put(kinds[MEAN], int(saved.state["updates"]))
        loop.progress = checked_progress(saved.state["progress"])
        same_data = saved.state["data"] == loop.fingerprint
        if saved.state["scaler"]:
            loop.scaler.load_state_dict(saved.state["scaler"])
        put_random_states(loop, kinds[RANDOM], int(saved.state["world"]))
        put_meter(loop, saved.state["meters"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        raise ModelError(
            f"the checkpoint of step {saved.step} does not fit this training "
            f"({type(error).__name__}: {shortened(error)}); "
            f"remove its folder to go on from the one before, or train into another --out"
        ) from error
    loop.saved = saved.step
    if not same_data:  # allowed by the user: a place in the old data means nothing in the new
        loop.progress.epoch, loop.progress.consumed = loop.progress.epoch + 1, 0


def checked_progress(found: dict[str, Any]) -> Progress:
    """Where the training stood; ValueError for what cannot be."""
    progress = Progress(**found)
    for field in dataclasses.fields(Progress):
        value = getattr(progress, field.name)
        match field.name:
            case "ended":
                fits = isinstance(value, str)
            case "best":
                fits = value is None or isinstance(value, float)
            case "seconds" | "preparing":
                fits = isinstance(value, int | float) and value >= 0
            case _:
                fits = type(value) is int and value >= 0
        if not fits:
            raise ValueError(f"{field.name} is {value!r}")
    return progress


def random_states(loop: Loop) -> dict[str, Tensor]:
    """The generators of every process, by rank and device."""
    return {
        f"{RANDOM}{rank}/{name}": state
        for name, own in checkpoint.random_state(loop.device).items()
        for rank, state in enumerate(loop.group.gather(own))
    }


def put_random_states(loop: Loop, states: dict[str, Tensor], world: int) -> None:
    """Each process' own generators; with another number of processes than before, new ones."""
    group = loop.group
    if group.world == world:
        own = f"{group.rank}/"
        mine = {name.removeprefix(own): state for name, state in states.items() if name.startswith(own)}
        checkpoint.put_random_state(mine, loop.device)
    else:
        new_generators(loop.recipe.seed, loop.progress.step, group.world, group.rank)


def new_generators(seed: int, *stream: int) -> None:
    """Random numbers for dropout that no other process or start draws."""
    torch.manual_seed(int(random_keys(1, seed, DROPOUT, *stream)[0] >> 1))


def put_meter(loop: Loop, meters: list[list[float]]) -> None:
    """Each process' own sums; with another number of processes than before, the first one has all."""
    group, names = loop.group, [field.name for field in dataclasses.fields(Meter)]
    meters = [[float(value) for value in meter] for meter in meters]  # nothing else is added to
    if len(meters) == group.world:
        loop.meter = Meter(**dict(zip(names, meters[group.rank], strict=True)))
        return
    common = Meter(**dict(zip(names, meters[0], strict=True)))
    if group.first:
        common.nll = math.fsum(meter[names.index("nll")] for meter in meters)
        common.cells = math.fsum(meter[names.index("cells")] for meter in meters)
    else:
        common.nll = common.cells = 0.0
    loop.meter = common
