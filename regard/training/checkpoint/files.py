"""Checkpoint folders, committed completely or not at all.

    training/latest            the name of the newest checkpoint
    training/step-00001000/    weights.safetensors, optimizer.safetensors, state.json, and manifest.json with the
                               size and sha256 of each

A checkpoint is written under a temporary name, synced, renamed, and then read again; only after that are older ones
removed. If a checkpoint is damaged, loading falls back to the one before it and warns.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.errors import ModelError, ResourceError
from regard.models.folder.config_file import read_json
from regard.system import DISK_FULL_CODES, LOCKS_MAPPED_FILES, replace
from regard.system.files import fingerprint, replace_file, sync_file, sync_folder, write_synced

STEP_FOLDER = re.compile(r"step-(\d{8,})")
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
    """Commit a checkpoint to `folder` (a run's training/), then remove all but the newest `keep` checkpoints."""
    target = folder / f"step-{step:08d}"
    fresh = folder / f".{target.name}.writing-{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()  # without parents: a folder that has vanished must not be made again
    try:
        save_file(dict(weights), fresh / "weights.safetensors")
        save_file(dict(optimizer), fresh / "optimizer.safetensors")
        for name in ("weights.safetensors", "optimizer.safetensors"):
            sync_file(fresh / name)
        write_synced(fresh / "state.json", json.dumps(state, indent=1).encode())
        manifest = {"step": step, "files": {name: fingerprint(fresh / name) for name in FILES}}
        write_synced(fresh / "manifest.json", json.dumps(manifest, indent=1).encode())
        sync_folder(fresh)
        old = folder / f".{target.name}.writing-old"
        if target.exists():  # damaged, or saved before a restart from an earlier checkpoint
            shutil.rmtree(old, ignore_errors=True)
            replace(target, old)
        replace(fresh, target)
        sync_folder(folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if (reason := disk_full_reason(error)) is not None:
            raise ResourceError(
                f"the checkpoint of step {step} could not be saved in {folder}: {reason}. {recovery_advice(folder)}"
            ) from error
        raise
    point_at(folder, step)
    _verify(target)
    for old_step in checkpoint_steps(folder)[:-keep]:
        shutil.rmtree(folder / f"step-{old_step:08d}", ignore_errors=True)
    return target


def point_at(folder: Path, step: int) -> None:
    """Make `latest` name the checkpoint of that step."""
    pointer, name = folder / "latest", f"step-{step:08d}".encode()
    if not pointer.is_file() or pointer.read_bytes() != name:
        replace_file(pointer, name)


def disk_full_reason(error: BaseException) -> str | None:
    """Return the system's message if an error means that the disk is full. safetensors gives only text, no errno."""
    for number in DISK_FULL_CODES:
        if getattr(error, "errno", None) == number or f"os error {number})" in str(error):
            return os.strerror(number)
    return None


def recovery_advice(folder: Path) -> str:
    """Say what a run can continue from after an error; `folder` is its training/."""
    steps = checkpoint_steps(folder)
    if not steps:
        return "There was no checkpoint yet"
    return f"The checkpoint of step {steps[-1]} is intact: run the same command again to continue from it"


def checkpoint_steps(folder: Path) -> list[int]:
    """Return the steps of all checkpoints in a folder, intact or not, in order."""
    if not folder.is_dir():
        return []
    matches = (STEP_FOLDER.fullmatch(path.name) for path in folder.iterdir() if path.is_dir())
    return sorted(int(match[1]) for match in matches if match)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest intact checkpoint; None if there is none at all, ModelError if none is intact."""
    steps = checkpoint_steps(folder)
    problems = []
    for step in reversed(steps):
        path = folder / f"step-{step:08d}"
        try:
            _verify(path)
            return Checkpoint(
                step,
                _load_tensors(path / "weights.safetensors"),
                _load_tensors(path / "optimizer.safetensors"),
                read_json(path / "state.json"),
            )
        except (ModelError, OSError, ValueError, SafetensorError) as error:
            problems.append(str(error))
            warnings.warn(f"{error}; falling back to the checkpoint before it", RuntimeWarning, stacklevel=2)
    if problems:
        raise ModelError(f"{folder}: no checkpoint is intact: {'; '.join(problems)}. Start again with another --out")
    return None


def average_weights(folder: Path, count: int, *, fixed: Collection[str] = ()) -> tuple[dict[str, Tensor], list[int]]:
    """Average the weights of the newest `count` checkpoints, and return them with the steps that were averaged.

    Vaswani et al. 2017, section 6.1. The tensors named in `fixed` are not learned and come from the newest checkpoint:
    the mean of two draws of random features is no draw.
    """
    steps = []
    total: dict[str, Tensor] = {}
    for step in checkpoint_steps(folder)[-count:]:
        path = folder / f"step-{step:08d}"
        try:
            _verify(path)
        except ModelError as error:
            warnings.warn(f"{error}; it is left out of the average", RuntimeWarning, stacklevel=2)
            continue
        weights = _load_tensors(path / "weights.safetensors")
        total = {name: weight.double() + total.get(name, 0.0) for name, weight in weights.items()}
        steps.append(step)
    if not steps:
        raise ModelError(f"{folder}: no checkpoint is intact, so there is nothing to average")
    means = {name: (total[name] / len(steps)).to(weight.dtype) for name, weight in weights.items()}
    return {**means, **{name: weights[name] for name in fixed if name in weights}}, steps


def _load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of tensors. safetensors maps it; where that would keep it from being removed, copy the tensors."""
    tensors = load_file(path)
    return {name: tensor.clone() for name, tensor in tensors.items()} if LOCKS_MAPPED_FILES else tensors


def _verify(path: Path) -> None:
    """Raise ModelError unless every file matches the manifest."""
    try:
        files = read_json(path / "manifest.json")["files"]
        expected = {name: files[name] for name in FILES}
    except (OSError, ModelError, KeyError, TypeError) as error:
        raise ModelError(f"checkpoint {path}: its manifest.json is missing or damaged") from error
    for name, expected_file in expected.items():
        if not (path / name).is_file():
            raise ModelError(f"checkpoint {path}: {name} is missing")
        if fingerprint(path / name) != expected_file:
            raise ModelError(f"checkpoint {path}: {name} is damaged, its sha256 differs from the manifest's")
