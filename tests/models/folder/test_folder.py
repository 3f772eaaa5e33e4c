"""The model folder: what is saved comes back, whole or not at all, and old folders load for ever."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from regard import RecurrentLMConfig, TransformerConfig, TransformerLMConfig, load_model, make_model, save_model
from regard.errors import UsageError
from regard.models.config import Config
from regard.models.folder import FORMAT, read_config, saving, verify_folder
from regard.models.folder.config_file import STORAGES

DATA = Path(__file__).parents[2] / "data"
RELEASED = sorted(path.parent for path in DATA.glob("format-*/*/manifest.json"))
TINY: dict[str, Any] = {"layers": 1, "dim": 8, "heads": 2, "hidden": 12}
SIDES = {"source_vocabulary": 13, "target_vocabulary": 13}


def outputs(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    with torch.no_grad():
        if model.config.kind in ("transformer-lm", "rnn-lm"):
            return model(target)
        return model(source) if model.config.kind == "encoder" else model(source, target)


@pytest.fixture
def model() -> Any:
    return make_model(TransformerConfig(**TINY, **SIDES, share_embeddings=True)).eval()


@pytest.fixture
def old(tmp_path: Path, model: Any) -> Path:
    """A model folder in a folder of its own."""
    return save_model(model, tmp_path / "models" / "one")


def test_any_model_comes_back_the_same(any_config: Config, tmp_path: Path, source: Tensor, target: Tensor) -> None:
    model = make_model(any_config).eval()
    loaded = load_model(save_model(model, tmp_path / "m"))
    assert loaded.config == any_config and type(loaded) is type(model)
    assert not loaded.training and all(p.requires_grad for p in loaded.parameters())
    assert torch.equal(outputs(loaded, source, target), outputs(model, source, target))
    names = [name for name, _ in model.named_parameters()]
    assert [name for name, _ in loaded.named_parameters()] == names  # what was shared is shared again
    assert all(p.device.type == "cpu" and p.dtype == torch.float32 for p in loaded.parameters())


def test_a_loaded_model_can_be_trained(old: Path, source: Tensor, target: Tensor) -> None:
    model: Any = load_model(old).train()
    model(source, target).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.source.embedding.weight is model.target.embedding.weight


def test_the_files(old: Path, model: Any) -> None:
    assert sorted(path.name for path in old.iterdir()) == [
        "README.md",
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]
    manifest = json.loads((old / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert set(verify_folder(old)) == set(manifest["files"]) == {"README.md", "config.json", "model.safetensors"}
    for name, entry in manifest["files"].items():
        content = (old / name).read_bytes()
        assert entry == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    config = read_config(old)
    assert config["kind"] == "transformer" and config["storage"] == "float32"
    assert config["special_tokens"] == {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3}
    assert config["model"] == model.config.to_dict()
    assert set(config["versions"]) == {"regard", "torch", "python"}
    assert "| layers | 1 |" in (old / "README.md").read_text()


def test_shared_tables_are_stored_once(old: Path, model: Any) -> None:
    stored = load_file(old / "model.safetensors")
    assert sum(name.endswith("embedding.weight") for name in stored) == 1
    assert sum(tensor.numel() for tensor in stored.values()) == sum(p.numel() for p in model.parameters())


def test_tokenizer_info_and_card(tmp_path: Path, model: Any) -> None:
    files = {"source.tokenizer.model": b"\x00\xff", "target.characters.json": b"[]"}
    path = save_model(model, tmp_path / "m", files=files, info={"scores": {"bleu": 30.5}}, card="# Karte für é\n")
    assert (path / "source.tokenizer.model").read_bytes() == b"\x00\xff"
    assert (path / "README.md").read_text(encoding="utf-8") == "# Karte für é\n"
    assert read_config(path)["scores"] == {"bleu": 30.5}
    assert set(verify_folder(path)) == {*files, "README.md", "config.json", "model.safetensors"}


@pytest.mark.parametrize("storage", ["bfloat16", "int8"])
def test_storages(storage: Any, tmp_path: Path, any_config: Config) -> None:
    """bfloat16 keeps 8 bits of each number; int8 is within half a step of its row's scale."""
    model = make_model(any_config).eval()
    path = save_model(model, tmp_path / "m", storage=storage)
    loaded = dict(load_model(path).named_parameters())
    for name, weight in model.named_parameters():
        error = (loaded[name] - weight).abs()
        if storage == "int8" and weight.dim() != 2:
            assert not error.any(), name
        elif storage == "bfloat16":
            assert (error <= weight.abs() * 2**-8).all(), name
        else:
            scale = weight.abs().amax(1, keepdim=True) / 127
            slack = 0.3 if any_config.kind == "transformer-lm" else 1e-5  # groups have float16 scales
            assert (error <= scale / 2 * (1 + slack)).all(), name
            assert error.any() or (weight == weight[:, :1]).all(), name  # scales of random features are ones
    assert read_config(path)["storage"] == storage


def test_int4_and_int8_of_language_models_are_in_groups(tmp_path: Path) -> None:
    """32 numbers share a scale: a large one spoils no others. Saving what was loaded changes nothing."""
    config = TransformerLMConfig(**{**TINY, "dim": 72, "hidden": 100}, vocabulary=13)  # groups of 32, 32 and 8
    model = make_model(config).eval()
    for weight in model.parameters():
        if weight.dim() == 2:
            weight.data[:, 40] = 1000.0
    for storage in ("int8", "int4"):
        path = save_model(model, tmp_path / storage, storage=storage)  # type: ignore[arg-type]
        again = save_model(load_model(path), tmp_path / "again", storage=storage)  # type: ignore[arg-type]
        assert (path / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
        assert json.loads((path / "manifest.json").read_text())["format"] == 2
        for name, weight in load_model(path).named_parameters():
            exact = dict(model.named_parameters())[name]
            if weight.dim() != 2:
                assert torch.equal(weight, exact)
                continue
            groups, rounded = (x[:, :32].detach() for x in (exact, weight))
            bits = 4 if storage == "int4" and ".blocks." in name else 8
            step = (groups.amax(1) - groups.amin(1)) / (2**bits - 1)
            error = (rounded - groups).abs().amax(1)
            assert (error <= 2.1 * step).all() and (error > 0.01 * step).all(), name
            assert ((weight - exact).abs()[:, 64:] < 1).all()


def test_int4_needs_finite_numbers_that_float16_can_scale(tmp_path: Path, model: Any) -> None:
    for number in (torch.nan, torch.inf, 1e6):
        with torch.no_grad():
            model.source.embedding.weight[3, 2] = number
        with pytest.raises(UsageError, match="has no int8 form"):
            save_model(model, tmp_path / "m", storage="int4")


def test_small_storages_are_small(tmp_path: Path) -> None:
    model = make_model(TransformerConfig(**{**TINY, "dim": 64, "hidden": 128}, **SIDES))
    full, *halves, quarter, sixth = (
        (save_model(model, tmp_path / storage, storage=storage) / "model.safetensors").stat().st_size  # type: ignore[arg-type]
        for storage in STORAGES
    )
    assert max(halves) < 0.53 * full and quarter < 0.32 * full and sixth < 0.24 * full


def test_a_row_of_zeros_in_int8(tmp_path: Path, model: Any) -> None:
    with torch.no_grad():
        model.source.embedding.weight[3] = 0
    path = save_model(model, tmp_path / "m", storage="int8")
    assert (load_file(path / "model.safetensors")["source.embedding.weight.scale"] > 0).all()  # 0 / 0 is no number
    loaded: Any = load_model(path)
    assert not loaded.source.embedding.weight[3].any()
    assert all(parameter.isfinite().all() for parameter in loaded.parameters())


def test_saving_bfloat16_again_changes_nothing(tmp_path: Path, model: Any) -> None:
    once = save_model(model, tmp_path / "once", storage="bfloat16")
    for dtype in (torch.float32, torch.bfloat16):
        twice = save_model(load_model(once, dtype=dtype), tmp_path / "twice", storage="bfloat16")
        assert (once / "model.safetensors").read_bytes() == (twice / "model.safetensors").read_bytes()


def test_dtype(old: Path) -> None:
    assert {p.dtype for p in load_model(old, dtype=torch.bfloat16).parameters()} == {torch.bfloat16}


def test_a_compiled_model_is_saved_as_itself(tmp_path: Path, model: Any, source: Tensor, target: Tensor) -> None:
    loaded = load_model(save_model(torch.compile(model), tmp_path / "m"))
    assert torch.equal(outputs(loaded, source, target), outputs(model, source, target))


def test_saving_leaves_the_model_alone(tmp_path: Path, model: Any) -> None:
    model.double().train()
    before = copy.deepcopy(model.state_dict())
    save_model(model, tmp_path / "m", storage="int8")
    assert model.training and all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert {p.dtype for p in model.parameters()} == {torch.float64}


# Whole or not at all.


def litter(folder: Path) -> list[str]:
    return [path.name for path in folder.parent.iterdir() if path != folder]


def test_a_model_folder_is_replaced(old: Path, source: Tensor, target: Tensor) -> None:
    other = make_model(TransformerConfig(**TINY, **SIDES)).eval()
    assert save_model(other, old, files={"tokenizer.model": b"x"}) == old
    assert torch.equal(outputs(load_model(old), source, target), outputs(other, source, target))
    save_model(other, old)
    assert not (old / "tokenizer.model").exists()  # nothing of the one before is left
    assert litter(old) == []


FAILURES = {"weights": 1, "config": 2, "card": 3, "tokenizer": 4, "manifest": 5, "old away": 6, "new in place": 7}


@pytest.mark.parametrize("moment", FAILURES)
@pytest.mark.parametrize("error", [OSError("no space left on device"), KeyboardInterrupt()], ids=["disk", "signal"])
def test_a_failure_leaves_the_old_folder(
    moment: str, error: BaseException, old: Path, model: Any, source: Tensor, target: Tensor, monkeypatch: Any
) -> None:
    want = outputs(model, source, target)
    calls = 0

    def failing(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == FAILURES[moment]:
                raise error
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(saving, "save_file", failing(saving.save_file))
    monkeypatch.setattr(saving, "write_synced", failing(saving.write_synced))
    monkeypatch.setattr(saving, "replace", failing(saving.replace))
    with pytest.raises(type(error)):
        save_model(make_model(TransformerConfig(**TINY, **SIDES)), old, files={"tokenizer.model": b"x"})
    monkeypatch.undo()
    assert calls >= FAILURES[moment]
    assert torch.equal(outputs(load_model(old), source, target), want)
    assert litter(old) == []


def test_a_failure_of_the_first_save_leaves_nothing(tmp_path: Path, model: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(saving, "_swap", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_model(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_other_folders_are_left_alone(tmp_path: Path, model: Any) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    (tmp_path / "file").write_text("text")
    for name in ("thesis", "file"):
        with pytest.raises(UsageError, match=f"{name} exists and is not a model folder: choose another name"):
            save_model(model, tmp_path / name)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "thesis"]


def test_wrong_arguments(tmp_path: Path, model: Any) -> None:
    with pytest.raises(UsageError, match="unknown storage 'int5'; did you mean 'int"):
        save_model(model, tmp_path / "m", storage="int5")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="only regard's models have a folder format, got Linear"):
        save_model(nn.Linear(2, 2), tmp_path / "m")
    for name in ("../evil", "config.json", "model.safetensors", "README.md", "manifest.json", "a/tokenizer.model"):
        with pytest.raises(UsageError, match="is not a tokenizer file of a model folder"):
            save_model(model, tmp_path / "m", files={name: b""})
    assert list(tmp_path.iterdir()) == []


# What was released once loads for ever.


def test_every_format_is_kept() -> None:
    kinds = {1: {"transformer", "rnn-attention", "transformer-lm", "encoder", "rnn-lm"}, 2: {"transformer-lm"}}
    assert kinds.keys() == {*range(1, FORMAT + 1)}
    for version, names in kinds.items():
        assert {path.name for path in RELEASED if path.parent.name == f"format-{version}"} >= names


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_released_folders_give_their_recorded_outputs(path: Path) -> None:
    recorded = json.loads((path / "outputs.json").read_text())
    model = load_model(path)
    assert model.config.kind == path.name
    got = outputs(model, torch.tensor(recorded["source"]), torch.tensor(recorded["target"]))
    torch.testing.assert_close(got, torch.tensor(recorded["outputs"]), atol=1e-5, rtol=1e-5)


def test_info_keeps_off_the_names_of_the_format(tmp_path: Path) -> None:
    model = make_model(TransformerConfig(source_vocabulary=5, target_vocabulary=5, layers=1, dim=4, heads=1, hidden=4))
    with pytest.raises(UsageError, match="info may not contain 'kind'"):
        save_model(model, tmp_path / "m", info={"kind": "mine"})
    assert read_config(save_model(model, tmp_path / "m", info={"scores": {"bleu": 1}}))["scores"] == {"bleu": 1}


def test_a_run_is_filled_and_keeps_its_training(tmp_path: Path) -> None:
    """A folder that has training/ in it belongs to a run: the model's files are replaced, all else stays."""
    run = tmp_path / "run"
    (run / "training").mkdir(parents=True)
    (run / "training" / "latest").write_text("step-00000005")
    (run / "metrics.jsonl").write_text("{}\n")
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = make_model(RecurrentLMConfig(vocabulary=9, embedding=4, hidden=4))
        save_model(model, run)
        assert all(
            torch.equal(weight, load_model(run).state_dict()[name]) for name, weight in model.state_dict().items()
        )
    assert (run / "training" / "latest").read_text() == "step-00000005"
    assert (run / "metrics.jsonl").read_text() == "{}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_manifest_of_a_run_comes_last(tmp_path: Path, monkeypatch: Any) -> None:
    """Cut off in between, the old manifest does not fit the new files, and the folder is known to be damaged."""
    (tmp_path / "run" / "training").mkdir(parents=True)
    moved: list[str] = []
    real = os.replace
    monkeypatch.setattr(saving, "replace", lambda a, b: (moved.append(Path(b).name), real(a, b)))
    save_model(make_model(RecurrentLMConfig(vocabulary=9, embedding=4, hidden=4)), tmp_path / "run")
    assert moved[-1] == "manifest.json"
    assert set(moved) == {"manifest.json", "config.json", "model.safetensors", "README.md"}


def test_whoever_may_read_one_file_may_read_all(tmp_path: Path, model: Any) -> None:
    """safetensors writes files that only their owner can read, and a model is often passed on."""
    folder = save_model(model, tmp_path / "m")
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
