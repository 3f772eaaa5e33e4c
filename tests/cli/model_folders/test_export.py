"""`regard export`: a model stored in another way is the same model, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import Result

from regard.decoding.cpu.grouped_weight import GroupedWeight
from regard.decoding.cpu.packed_weight import Int8Weight
from regard.models.folder import read_config, verify_folder
from regard.tasks.loading import load

Run = Callable[..., Result]
LINES = ["le chat noir", "Jane dort dans la maison"]


@pytest.mark.parametrize("storage", ["int8", "bfloat16", "float32"])
def test_all_that_uses_a_model_goes_along(command: Run, models: dict[str, str], tmp_path: Path, storage: str) -> None:
    out = tmp_path / "small"
    result = command("export", models["translator"], out, "--storage", storage)
    assert result.exit_code == 0 and f"wrote {out}" in result.stderr
    before, after = read_config(models["translator"]), read_config(out)
    assert after == {**before, "storage": storage}
    assert verify_folder(out) == verify_folder(models["translator"]) and not (out / "training").exists()
    assert f"Stored as {storage} by `regard export`" in (out / "README.md").read_text(encoding="utf-8")
    matrices = [weight for weight in load_file(out / "model.safetensors").values() if weight.dim() == 2]
    assert {weight.dtype for weight in matrices} == {getattr(torch, storage)}
    if storage == "float32":
        ours, theirs = (load(folder).model.state_dict() for folder in (models["translator"], out))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("name", ["translator", "writer", "other"])
def test_what_is_stored_as_int8_is_rounded_once(
    command: Run, models: dict[str, str], tmp_path: Path, name: str
) -> None:
    """Loaded as int8, or stored again, it has the whole numbers of the file, which are those of the model itself."""
    first, again = tmp_path / "first", tmp_path / "again"
    assert command("export", models[name], first).exit_code == command("export", first, again).exit_code == 0
    stored, twice = (load_file(folder / "model.safetensors") for folder in (first, again))
    direct: dict[str, Any] = dict(load(models[name], dtype="int8").model.named_parameters())
    loaded: dict[str, Any] = dict(load(first, dtype="int8").model.named_parameters())
    matrices = {name: weight for name, weight in loaded.items() if isinstance(weight, Int8Weight | GroupedWeight)}
    assert matrices
    for weight, found in matrices.items():
        if isinstance(found, GroupedWeight):  # of a language model
            for part, suffix in zip(found.groups, ("", ".scale", ".minimum"), strict=True):
                assert torch.equal(part, stored[weight + suffix])
            assert all(map(torch.equal, found.groups, direct[weight].groups))
            continue
        assert torch.equal(found.numbers, stored[weight]) and torch.equal(found.numbers, direct[weight].numbers)
        torch.testing.assert_close(found.scales, stored[f"{weight}.scale"], rtol=3e-7, atol=0.0)
        torch.testing.assert_close(found.scales, direct[weight].scales, rtol=3e-7, atol=0.0)
    for weight, numbers in twice.items():
        if numbers.dtype in (torch.int8, torch.uint8):
            assert torch.equal(numbers, stored[weight])


def test_the_same_translations(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    command("export", models["translator"], tmp_path / "small")
    told = [
        [(one.ids, pytest.approx(one.score, abs=1e-3)) for one in load(model, dtype="int8").translate(LINES, beam=2)]
        for model in (models["translator"], tmp_path / "small")
    ]
    assert told[0] == [(ids, score.expected) for ids, score in told[1]]


def test_wrong_use(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    for arguments, code, message in (
        ((models["translator"], tmp_path), 2, "already exists: choose another name"),
        ((models["translator"], tmp_path / "new", "--storage", "int5"), 2, "unknown storage 'int5'"),
        ((tmp_path / "nothing", tmp_path / "new"), 4, "there is no folder"),
    ):
        result = command("export", *arguments)
        assert result.exit_code == code and message in result.stderr
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["out.onnx", "out.GGUF", "model.safetensors"])
def test_a_file_of_another_format_is_refused(command: Run, models: dict[str, str], tmp_path: Path, name: str) -> None:
    """It would be a folder with the name of a file."""
    result = command("export", models["translator"], tmp_path / name)
    assert result.exit_code == 2 and not (tmp_path / name).exists()
    assert "without --to" in result.stderr and "give a folder name" in result.stderr
    assert command("export", models["translator"], tmp_path / "mine-v1.2").exit_code == 0
