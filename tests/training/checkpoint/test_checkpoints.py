"""Checkpoints of a training: one that an earlier version wrote, another number of processes, and other trainings.

format_2/ holds a run as version 88cbb95 of regard left it after 3 of 6 steps (a small language model on the demo text,
with dropout and a moving average), and the weights that it had after step 6.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import DivergedError, ModelError
from regard.models.presets import make_model
from regard.recipes.model_table import model_config
from regard.training.checkpoint.checkpoints import Checkpoints
from regard.training.parallel.group import Group
from regard.training.recipe.toml_file import read_recipe
from regard.training.run.training_run import train
from regard.training.state.train_state import TrainState

FORMAT_2 = Path(__file__).with_name("format_2")
TABLE = "input.embedding.weight"
STEP_3 = FORMAT_2 / "training" / "step-00000003"
VOCABULARY = len(load_file(STEP_3 / "weights.safetensors")[TABLE])


def make_state() -> TrainState:
    recipe = read_recipe(FORMAT_2 / "training" / "recipe.toml")
    torch.manual_seed(0)
    config = model_config(recipe.kind, recipe.model, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    return TrainState(make_model(config), recipe.training, device=torch.device("cpu"))


def restored(checkpoints: Checkpoints) -> TrainState:
    state, checkpoint = make_state(), checkpoints.load()
    assert checkpoint is not None
    checkpoints.restore(state, checkpoint)
    return state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the old run."""
    shutil.copytree(FORMAT_2, tmp_path / "run")
    return tmp_path / "run" / "training"


def old_checkpoints(folder: Path, **options: object) -> Checkpoints:
    state = json.loads((STEP_3 / "state.json").read_text())
    return Checkpoints(folder, keep=2, fingerprint=state["data"], **options)


def test_an_old_checkpoint_is_written_again_as_it_was(folder: Path) -> None:
    """File by file the same tensors, names and keys: what the old version wrote, it could read from this one."""
    checkpoints = old_checkpoints(folder)
    state = restored(checkpoints)
    shutil.rmtree(folder / STEP_3.name)
    checkpoints.saved_step = 0
    checkpoints.save(state)
    for name in ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
        assert (folder / STEP_3.name / name).read_bytes() == (STEP_3 / name).read_bytes()


def test_an_old_run_goes_on(folder: Path) -> None:
    """Another processor may round otherwise, so not every bit is compared.

    The bias of the keys is left out: it adds the same number to all scores of a query, so its gradient is 0, and Adam
    divides what rounding leaves of it by its own size.
    """
    said: list[str] = []
    train(read_recipe(folder / "recipe.toml"), out=folder.parent, quiet=True, say=said.append)
    assert "continuing from step 3" in said
    weights = load_file(folder / "step-00000006" / "weights.safetensors")
    wanted = load_file(FORMAT_2 / "weights-of-step-6.safetensors")
    for name, bias in weights.items():
        if name.endswith("self_attention.input.bias"):  # of queries, keys and values, one after the other
            keys = slice(len(bias) // 3, 2 * len(bias) // 3)
            bias[keys] = wanted[name][keys] = 0
    torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-5)
    start = load_file(STEP_3 / "weights.safetensors")
    assert max((weights[name] - start[name]).abs().max() for name in start if name.endswith("weight")) > 1e-4


def test_another_number_of_processes_draws_new_numbers(folder: Path) -> None:
    same, first, second = (old_checkpoints(folder, group=group) for group in (Group(0, 1), Group(0, 2), Group(1, 2)))
    numbers, meters = [], []
    for checkpoints in (same, same, first, second):
        state = restored(checkpoints)
        numbers.append(torch.rand(3).tolist())
        meters.append(state.meter.nll)
    assert numbers[0] == numbers[1] and len({tuple(row) for row in numbers}) == 3
    assert meters[0] == meters[2] > 0 == meters[3]  # the first process has all sums, so that none counts twice


def test_other_data_start_with_the_next_epoch(folder: Path) -> None:
    progress = restored(Checkpoints(folder, keep=2, fingerprint="other")).progress
    assert (progress.step, progress.epoch, progress.consumed) == (3, 1, 0)
    progress = restored(old_checkpoints(folder)).progress
    assert (progress.step, progress.epoch, progress.consumed) == (3, 0, 12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 1}, "another version of regard"),
        ({"world": None}, r"does not fit this training \(TypeError"),
        ({"progress": {"step": -1}}, r"does not fit this training \(ValueError: step is -1\)"),
        ({"meters": []}, "does not fit this training"),
    ],
)
def test_what_is_no_state_is_refused(folder: Path, change: dict, message: str) -> None:
    checkpoints = old_checkpoints(folder)
    checkpoint = checkpoints.load()
    assert checkpoint is not None
    changed = dataclasses.replace(checkpoint, state={**checkpoint.state, **change})
    with pytest.raises(ModelError, match=message):
        checkpoints.restore(make_state(), changed)


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    state = make_state()
    state.progress.step = 7
    with torch.no_grad():
        dict(state.model.named_parameters())[TABLE][0, 0] = torch.inf
    with pytest.raises(DivergedError, match=f"{TABLE} is not finite at step 7"):
        Checkpoints(tmp_path, keep=1).save(state)
    assert list(tmp_path.iterdir()) == []


def test_a_step_is_saved_once(tmp_path: Path) -> None:
    state, checkpoints = make_state(), Checkpoints(tmp_path, keep=2)
    for step in (4, 4, 5, 6):
        state.progress.step = step
        checkpoints.save(state)
        written = (tmp_path / f"step-{step:08d}" / "manifest.json").stat().st_mtime_ns
        checkpoints.save(state)
        assert (tmp_path / f"step-{step:08d}" / "manifest.json").stat().st_mtime_ns == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000005", "step-00000006"]
