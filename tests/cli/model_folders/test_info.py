"""`regard info`: what is in the folder, held against its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import safe_open
from typer.testing import Result

import regard
from regard.system.files import fingerprint

Run = Callable[..., Result]


def described(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        found.setdefault(line[:12].strip(), []).append(line[12:])
    return found


def test_scores_of_the_test_part_say_so(command: Run) -> None:
    """A shipped model has scores of both parts, and they differ."""
    scores = described(command("info", "fr-en").stdout)["scores"]
    assert sum(line.startswith("BLEU ") for line in scores) == 2
    assert [line for line in scores if "on the test set" in line] == scores[-2:]


def test_a_translator(command: Run, models: dict[str, str]) -> None:
    result = command("info", models["translator"])
    assert result.exit_code == 0, result.stderr
    found = described(result.stdout)
    with safe_open(Path(models["translator"]) / "model.safetensors", framework="np") as file:
        count = sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118
    assert found["kind"] == ["transformer"]
    assert found["parameters"] == [f"{count:,}, stored as float32"]
    assert found["languages"] == ["fr to en"]
    assert found["scores"] == ["BLEU 31.2 (nrefs:1|case:mixed)", "loss 1.5"]
    assert found["data"] == ["source: train.fr", "target: train.en"]
    assert "dim 16" in found["settings"][0] and found["vocabulary"][0].endswith(" subwords")
    names = [line.split(",")[0] for line in found["file"]]
    assert sorted(names) == sorted(
        path.name for path in Path(models["translator"]).iterdir() if path.stem != "manifest"
    )
    assert found["use"][0].startswith(f"regard translate -m {models['translator']} (also regard score")
    assert "training" not in found


@pytest.mark.parametrize(("name", "use"), [("writer", "generate"), ("encoder", "embed"), ("plain", "translate")])
def test_what_other_models_are_for(command: Run, models: dict[str, str], name: str, use: str) -> None:
    assert described(command("info", models[name]).stdout)["use"][0].startswith(f"regard {use} -m ")


def test_json(command: Run, models: dict[str, str]) -> None:
    found = json.loads(command("info", models["writer"], "--json").stdout)
    assert found["kind"] == "transformer-lm" and found["config"]["context"] == 32
    assert found["bytes"] == sum(found["files"].values()) and found["uses"][0] == "regard generate"
    for name, size in found["files"].items():
        assert (Path(models["writer"]) / name).stat().st_size == size


def test_a_run_can_go_on(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    folder = shutil.copytree(models["writer"], tmp_path / "run")
    (folder / "training").mkdir()
    assert "regard train" in described(command("info", folder).stdout)["training"][0]


def test_damage_is_told(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    folder = shutil.copytree(models["writer"], tmp_path / "damaged")
    content = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(content.replace(b"32", b"33"))
    result = command("info", folder)
    assert result.exit_code == 4 and "config.json: its sha256 differs" in result.stderr
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    result = command("info", folder)
    assert result.exit_code == 4 and "update regard" in result.stderr


def test_nothing_that_a_terminal_would_obey(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    face = regard.load(models["writer"])
    info = {"languages": {"source": "\x1b[31mfr\n"}, "scores": {"\x07": 1.5}}
    regard.save_model(face.model, tmp_path / "m", files=dict([face.tokenizer.save()]), info=info)
    result = command("info", tmp_path / "m")
    assert result.exit_code == 0 and described(result.stdout)["languages"] == [r"\x1b[31mfr\n"]
    assert all(line.isprintable() for line in result.stdout.splitlines())


def test_nothing_is_known_but_the_settings(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    folder = shutil.copytree(models["translator"], tmp_path / "bare")
    config = json.loads((folder / "config.json").read_text())
    bare = {name: value if name in ("kind", "model") else None for name, value in config.items()}
    (folder / "config.json").write_text(json.dumps(bare))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["config.json"] = fingerprint(folder / "config.json")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    result = command("info", folder)
    assert result.exit_code == 0 and described(result.stdout)["kind"] == ["transformer"]


def test_no_such_model(command: Run) -> None:
    result = command("info", "nowhere")
    assert result.exit_code == 4 and "no model 'nowhere'" in result.stderr
