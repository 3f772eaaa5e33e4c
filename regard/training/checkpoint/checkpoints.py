"""The checkpoints of a run: save a training run's state, and continue from the newest one that is intact.

Weights and the optimizer's state are stored whole, so another number of processes can continue from them. Random
generators and the meter belong to each process. files.py describes the folder and writes it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from regard.errors import DivergedError, ModelError
from regard.models.folder.config_file import shortened
from regard.text.random_streams import random_keys
from regard.training.checkpoint.files import Checkpoint, load_checkpoint, point_at, save_checkpoint
from regard.training.parallel.group import ALONE, Group
from regard.training.state.progress import Meter
from regard.training.state.train_state import StateDict, TrainState

FORMAT = 2
RANDOM_PREFIX = "random/"  # before the names of the generators' states: random/RANK/DEVICE
DROPOUT_STREAM = 7  # the stream of random numbers that new generators are seeded from


class Checkpoints:
    """Saves and restores a TrainState in `folder`, a run's training/. All processes take part, the first one writes.

    `keep` is the number of checkpoints that are kept. `fingerprint` identifies the training data: a position in other
    data means nothing. `seed` is for new generators, when the number of processes has changed.
    """

    def __init__(self, folder: Path, *, keep: int, seed: int = 1, fingerprint: str = "", group: Group = ALONE) -> None:
        self.folder, self.keep, self.seed, self.fingerprint, self.group = folder, keep, seed, fingerprint, group
        self.saved_step = 0  # step of the newest checkpoint

    def save(self, state: TrainState) -> None:
        """Commit a checkpoint of the current step, unless there is one, and remove the oldest ones."""
        if self.saved_step != state.progress.step:
            self._write(state)
            self.saved_step = state.progress.step

    def load(self) -> Checkpoint | None:
        """Return the newest intact checkpoint, falling back to older ones; None if there is none at all."""
        checkpoint = load_checkpoint(self.folder)
        if checkpoint is not None and self.group.first:
            point_at(self.folder, checkpoint.step)  # the run may have been killed before `latest` was written
        return checkpoint

    def restore(self, state: TrainState, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint as if nothing had happened; raise ModelError if it is of another training."""
        if checkpoint.state.get("format") != FORMAT:
            raise ModelError(
                f"the checkpoint of step {checkpoint.step} was written by another version of regard, and training "
                f"cannot continue from it: train into another --out"
            )
        optimizer: dict[str, Tensor] = {}
        generators: dict[str, Tensor] = {}
        for name, tensor in checkpoint.optimizer.items():
            if name.startswith(RANDOM_PREFIX):
                generators[name.removeprefix(RANDOM_PREFIX)] = tensor
            else:
                optimizer[name] = tensor
        try:
            state.load_state_dict(StateDict(checkpoint.weights, optimizer, checkpoint.state))
            is_same_data = checkpoint.state["data"] == self.fingerprint
            self._restore_generators(state, generators, int(checkpoint.state["world"]))
            state.meter = Meter.from_lists(checkpoint.state["meters"], self.group)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise ModelError(
                f"the checkpoint of step {checkpoint.step} does not fit this training "
                f"({type(error).__name__}: {shortened(error)}); "
                f"remove its folder to continue from the one before, or train into another --out"
            ) from error
        self.saved_step = checkpoint.step
        if not is_same_data:  # the user allowed it: continue with the next epoch of the new data
            state.progress.epoch, state.progress.consumed = state.progress.epoch + 1, 0

    def _write(self, state: TrainState) -> None:
        step, process = state.progress.step, state.process_state()
        generators = {
            f"{RANDOM_PREFIX}{rank}/{name}": value
            for name, states in process.generators.items()
            for rank, value in enumerate(self.group.gather(states))
        }
        meters = self.group.gather(process.meter)
        if not self.group.first and state.sharded is None:
            return
        weights, optimizer, numbers = state.state_dict()  # with FSDP, all processes gather
        if not self.group.first:
            return
        optimizer = generators | optimizer
        for name, tensor in {**weights, **optimizer}.items():
            if not tensor.isfinite().all():
                raise DivergedError(f"{name} is not finite at step {step}: no checkpoint of this step is saved")
        save_checkpoint(
            self.folder,
            step,
            weights=weights,
            optimizer=optimizer,
            state={
                "format": FORMAT,
                "world": self.group.world,
                "data": self.fingerprint,
                **numbers,
                "meters": [meter.tolist() for meter in meters],
            },
            keep=self.keep,
        )

    def _restore_generators(self, state: TrainState, generators: dict[str, Tensor], world: int) -> None:
        """Restore this process's generators, or seed new ones if the number of processes has changed."""
        if self.group.world == world:
            prefix = f"{self.group.rank}/"
            state.load_generators(
                {name.removeprefix(prefix): value for name, value in generators.items() if name.startswith(prefix)}
            )
        else:
            seed_generators(self.seed, state.progress.step, self.group.world, self.group.rank)


def seed_generators(seed: int, *stream: int) -> None:
    """Seed this process's generators for dropout so that no other process or start draws the same numbers."""
    torch.manual_seed(int(random_keys(1, seed, DROPOUT_STREAM, *stream)[0] >> 1))
