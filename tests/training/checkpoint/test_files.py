"""Checkpoints: committed whole, checked when read, passed over when damaged."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import ModelError, ResourceError
from regard.training.checkpoint.files import average_weights, checkpoint_steps, load_checkpoint, save_checkpoint
from regard.training.state.tensors import load_optimizer, load_weights, model_weights, optimizer_tensors


def save(folder: Path, step: int, *, keep: int = 3) -> Path:
    tensor = torch.full((2, 3), float(step))
    return save_checkpoint(
        folder, step, weights={"w": tensor}, optimizer={"w/exp_avg": -tensor}, state={"progress": step}, keep=keep
    )


def test_the_newest_one_comes_back(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        save(tmp_path, step)
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, found.state) == (15, {"progress": 15})
    assert torch.equal(found.weights["w"], torch.full((2, 3), 15.0))
    assert torch.equal(found.optimizer["w/exp_avg"], torch.full((2, 3), -15.0))
    assert (tmp_path / "latest").read_text() == "step-00000015"


def test_old_ones_go_and_nothing_else_is_left(tmp_path: Path) -> None:
    for step in (5, 10, 15, 100):
        save(tmp_path, step, keep=2)
    assert checkpoint_steps(tmp_path) == [15, 100]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000015", "step-00000100"]


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "missing") is None


FILES = ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_one_is_passed_over(name: str, damage, tmp_path: Path) -> None:
    save(tmp_path, 5)
    save(tmp_path, 10)
    damage(tmp_path / "step-00000010" / name)
    with pytest.warns(RuntimeWarning, match=r"step-00000010.*falling back to the checkpoint before it"):
        found = load_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 5


def test_none_whole_is_an_error_that_names_them(tmp_path: Path) -> None:
    for step in (5, 10):
        flip(save(tmp_path, step) / "weights.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ModelError, match=r"no checkpoint is intact: .*step-00000010.*; .*step-00000005") as error:
            load_checkpoint(tmp_path)
    assert error.value.exit_code == 4


def test_a_failed_save_leaves_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 5)
    from regard.training.checkpoint import files as checkpoint

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_synced", full)
    with pytest.raises(ResourceError, match=r"step 10 could not be saved .*No space.* step 5 is intact"):
        save(tmp_path, 10)
    assert checkpoint_steps(tmp_path) == [5]
    assert not [path for path in tmp_path.iterdir() if "writing" in path.name]
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 5


def test_the_same_step_can_be_saved_again(tmp_path: Path) -> None:
    save(tmp_path, 5)
    save(tmp_path, 5)
    assert checkpoint_steps(tmp_path) == [5]
    assert load_checkpoint(tmp_path) is not None


def test_the_average_is_the_mean(tmp_path: Path) -> None:
    for step in (1, 2, 6):
        save(tmp_path, step)
    weights, steps = average_weights(tmp_path, 2)
    assert steps == [2, 6]
    assert torch.equal(weights["w"], torch.full((2, 3), 4.0))
    assert weights["w"].dtype == torch.float32
    assert average_weights(tmp_path, 9)[1] == [1, 2, 6]


def test_weights_that_do_not_fit_are_refused() -> None:
    layer = torch.nn.Linear(2, 3)
    weights = model_weights(layer)
    with pytest.raises(ModelError, match="'bias' is missing"):
        load_weights(layer, {"weight": weights["weight"]})
    with pytest.raises(ModelError, match="'more' belongs to no part of the model"):
        load_weights(layer, {**weights, "more": torch.zeros(1)})
    with pytest.raises(ModelError, match=r"'bias' has shape \(4,\), not \(3,\)"):
        load_weights(layer, {**weights, "bias": torch.zeros(4)})


@pytest.mark.parametrize("fused", [True, False])
def test_an_optimizer_goes_on_as_if_nothing_had_happened(fused: bool, tmp_path: Path) -> None:
    """Ten steps at once against five, the way over the file, and five more: every bit the same."""

    def train(layer: torch.nn.Linear, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            (layer(torch.full((4, 2), float(step))) ** 2).sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    whole, parts = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    parts.load_state_dict(whole.state_dict())
    train(whole, torch.optim.AdamW(whole.parameters(), fused=fused), range(10))
    first = torch.optim.AdamW(parts.parameters(), fused=fused)
    train(parts, first, range(5))
    names = {parameter: name for name, parameter in parts.named_parameters()}
    place = save_checkpoint(
        tmp_path, 5, weights=model_weights(parts), optimizer=optimizer_tensors(first, names), state={}, keep=1
    )
    later = torch.nn.Linear(2, 3)
    load_weights(later, load_file(place / "weights.safetensors"))
    second = torch.optim.AdamW(later.parameters(), fused=fused)
    names = {parameter: name for name, parameter in later.named_parameters()}
    load_optimizer(second, names, load_file(place / "optimizer.safetensors"))
    train(later, second, range(5, 10))
    assert torch.equal(whole.weight, later.weight)
    assert torch.equal(whole.bias, later.bias)


def test_the_manifest_lists_every_file(tmp_path: Path) -> None:
    place = save(tmp_path, 5)
    manifest = json.loads((place / "manifest.json").read_text())
    assert (
        set(manifest["files"])
        == set(FILES) - {"manifest.json"}
        == {p.name for p in place.iterdir()} - {"manifest.json"}
    )
