"""What resume needs, committed whole or not at all.

    training/latest            the name of the newest checkpoint
    training/step-00001000/    weights.safetensors, optimizer.safetensors, state.json, and manifest.json with the
                               size and sha256 of each

A checkpoint is written beside its place, synced, renamed, and then read again; only after that older ones go. One
that is damaged is passed over for the one before it, with a warning.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.attention.linear.features import read_draws
from regard.errors import ModelError, ResourceError
from regard.files import fingerprint, replace_file, sync_folder, write_synced
from regard.models.folder import distinct_weights
from regard.models.folder_config import read_json
from regard.training.parallel.group import spread, whole

NAME = re.compile(r"step-(\d{8,})")
FILES = ("weights.safetensors", "optimizer.safetensors", "state.json")


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint, read into memory."""

    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(
    folder: Path,
    step: int,
    *,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int,
) -> Path:
    """Commit a checkpoint to `folder` (a run's training/), then remove all but the newest `keep`."""
    place = folder / f"step-{step:08d}"
    fresh = folder / f".{place.name}.writing-{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        save_file(dict(weights), fresh / "weights.safetensors")
        save_file(dict(optimizer), fresh / "optimizer.safetensors")
        for name in ("weights.safetensors", "optimizer.safetensors"):
            _sync(fresh / name)
        write_synced(fresh / "state.json", json.dumps(state, indent=1).encode())
        manifest = {"step": step, "files": {name: fingerprint(fresh / name) for name in FILES}}
        write_synced(fresh / "manifest.json", json.dumps(manifest, indent=1).encode())
        sync_folder(fresh)
        old = folder / f".{place.name}.writing-old"
        if place.exists():  # damaged, or saved before and then trained again from an earlier one
            shutil.rmtree(old, ignore_errors=True)
            os.rename(place, old)
        os.rename(fresh, place)
        sync_folder(folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if (full := disk_is_full(error)) is not None:
            raise ResourceError(
                f"the checkpoint of step {step} could not be saved in {folder}: {full}. {what_is_left(folder)}"
            ) from error
        raise
    point_at(folder, step)
    _verify(place)
    for past in checkpoint_steps(folder)[:-keep]:
        shutil.rmtree(folder / f"step-{past:08d}", ignore_errors=True)
    return place


def point_at(folder: Path, step: int) -> None:
    """Let `latest` name the checkpoint of that step."""
    pointer, name = folder / "latest", f"step-{step:08d}".encode()
    if not pointer.is_file() or pointer.read_bytes() != name:
        replace_file(pointer, name)


def disk_is_full(error: BaseException) -> str | None:
    """What the operating system says, if the error is a lack of space. safetensors tells it in words only."""
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        if getattr(error, "errno", None) == number or f"os error {number})" in str(error):
            return os.strerror(number)
    return None


def what_is_left(folder: Path) -> str:
    """What a run can go on from when something went wrong; `folder` is its training/."""
    steps = checkpoint_steps(folder)
    if not steps:
        return "There was no checkpoint yet"
    return f"The checkpoint of step {steps[-1]} is intact: the same command goes on from it"


def checkpoint_steps(folder: Path) -> list[int]:
    """The steps of the checkpoints that lie there, complete or not, in order."""
    if not folder.is_dir():
        return []
    found = (NAME.fullmatch(path.name) for path in folder.iterdir() if path.is_dir())
    return sorted(int(match[1]) for match in found if match)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; None where there is none at all, ModelError where none is whole."""
    steps = checkpoint_steps(folder)
    problems = []
    for step in reversed(steps):
        place = folder / f"step-{step:08d}"
        try:
            _verify(place)
            return Checkpoint(
                step,
                load_file(place / "weights.safetensors"),
                load_file(place / "optimizer.safetensors"),
                read_json(place / "state.json"),
            )
        except (ModelError, OSError, ValueError, SafetensorError) as error:
            problems.append(str(error))
            warnings.warn(f"{error}; going back to the checkpoint before it", RuntimeWarning, stacklevel=2)
    if problems:
        raise ModelError(f"{folder}: no checkpoint is whole: {'; '.join(problems)}. Start anew with another --out")
    return None


def average_weights(folder: Path, count: int, *, fixed: Collection[str] = ()) -> tuple[dict[str, Tensor], list[int]]:
    """The mean of the newest `count` checkpoints' weights, and their steps (Vaswani et al. 2017, section 6.1).

    Of what is `fixed`, not learned, the newest counts: the mean of two draws of random features is no draw.
    """
    steps = []
    total: dict[str, Tensor] = {}
    for step in checkpoint_steps(folder)[-count:]:
        place = folder / f"step-{step:08d}"
        try:
            _verify(place)
        except ModelError as error:
            warnings.warn(f"{error}; it is left out of the mean", RuntimeWarning, stacklevel=2)
            continue
        weights = load_file(place / "weights.safetensors")
        total = {name: weight.double() + total.get(name, 0.0) for name, weight in weights.items()}
        steps.append(step)
    if not steps:
        raise ModelError(f"{folder}: no checkpoint is whole, so there is no mean of them")
    means = {name: (total[name] / len(steps)).to(weight.dtype) for name, weight in weights.items()}
    return {**means, **{name: weights[name] for name in fixed if name in weights}}, steps


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights as a checkpoint stores them: on the CPU, each shared one once."""
    return {name: on_cpu(weight) for name, weight in distinct_weights(model).items()}


def on_cpu(tensor: Tensor) -> Tensor:
    """The full value of a tensor, as a checkpoint stores it."""
    return whole(tensor).cpu().contiguous()


def put_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """The reverse of model_weights; ModelError unless names and shapes are just the model's."""
    wanted = distinct_weights(model)
    if wanted.keys() != weights.keys():
        odd = min(wanted.keys() ^ weights.keys())
        raise ModelError(f"the weight {odd!r} is {'missing' if odd in wanted else 'of no part of the model'}")
    with torch.no_grad():
        for name, weight in wanted.items():
            if weight.shape != weights[name].shape:
                raise ModelError(
                    f"the weight {name!r} has shape {tuple(weights[name].shape)}, not {tuple(weight.shape)}"
                )
            weight.copy_(spread(weights[name], weight))
    read_draws(model)


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """The optimizer's memory by parameter name: `decoder.0.….weight/exp_avg`."""
    return {
        f"{names[parameter]}/{key}": on_cpu(value)
        for parameter, memory in optimizer.state.items()
        for key, value in memory.items()
    }


def put_optimizer(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]) -> None:
    """The reverse of optimizer_tensors."""
    parameters = {name: parameter for parameter, name in names.items()}
    for full, value in tensors.items():
        name, _, key = full.rpartition("/")
        parameter = parameters[name]
        # The step count stays where the optimizer wants it: on the CPU, unless it is fused.
        fused = any(group.get("fused") for group in optimizer.param_groups)
        device = parameter.device if key != "step" or fused else value.device
        if key != "step":
            value = spread(value, parameter)
        optimizer.state[parameter][key] = value.to(device).clone()


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The generators that dropout draws from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def put_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def _verify(place: Path) -> None:
    """Raise ModelError unless each file is there as the manifest says."""
    try:
        files = read_json(place / "manifest.json")["files"]
        wanted = {name: files[name] for name in FILES}
    except (OSError, ModelError, KeyError, TypeError) as error:
        raise ModelError(f"checkpoint {place}: its manifest.json is missing or damaged") from error
    for name, want in wanted.items():
        if not (place / name).is_file():
            raise ModelError(f"checkpoint {place}: {name} is missing")
        if fingerprint(place / name) != want:
            raise ModelError(f"checkpoint {place}: {name} is damaged, its sha256 differs from the manifest's")


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
