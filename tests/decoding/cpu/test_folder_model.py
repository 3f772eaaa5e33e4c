"""A model folder that C reads without torch: the structure, weights and hypotheses of its modules, or a refusal."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.decoding.cpu import folder_model
from regard.decoding.cpu.c_search import why_not
from regard.decoding.cpu.folder_model import FolderModel, why_not_settings, why_not_weights
from regard.decoding.cpu.network_settings import NetworkSettings, is_required
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.engine import generate_tokens
from regard.decoding.requests import make_requests
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import EachOnce, MinTokens
from regard.decoding.searches.sample import Sample
from regard.errors import ModelError
from regard.models.config import TransformerConfig
from regard.models.folder import load_model, save_model
from regard.models.presets import make_model
from regard.system.files import fingerprint
from regard.text.tokenizers.special_tokens import END

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")

SIZES: dict[str, Any] = {"layers": 3, "decoder_layers": 2, "dim": 40, "heads": 4, "hidden": 54}
SIDES = {"source_vocabulary": 70, "target_vocabulary": 70}
KINDS: dict[str, dict[str, Any]] = {
    "paper": {"share_embeddings": True},
    "ssru": {"share_embeddings": True, "decoder_self": "ssru", "output_bias": True},
    "learned": {"order": "pre", "position": "learned", "max_length": 30, "scale_embedding": False},
    "rotary": {"order": "pre", "position": "rotary", "activation": "gelu", "share_embeddings": True},
    "modern": {
        "order": "pre",
        "position": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "kv_heads": 2,
        "bias": False,
        "decoder_layers": None,
    },
    "untied": {"tie_output": False, "position": "none", "activation": "gelu-tanh", "source_vocabulary": 80},
    "imported": {
        "activation": "silu",
        "output_bias": True,
        "norm_eps": 1e-4,
        "position_layout": "halves",
        "position_base": 99.0,
        "position_start": 2,
        "share_embeddings": True,
        "pad_id": 2,
        "unknown_id": 1,
        "start_id": 2,
        "end_ids": (3,),
        "barred_ids": (2, 0),
        "tokenizer_size": 68,
    },
}
TEXTS = [[5 + (i * j) % 60 for i in range(2 + 3 * j)] + [END] for j in range(1, 6)]


def write_folder(place: Path, settings: dict[str, Any], storage: Any = "float32") -> Path:
    torch.manual_seed(2)
    model = make_model(TransformerConfig(**{**SIZES, **SIDES, **settings}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # biases and norms as training leaves them
                torch.nn.init.normal_(parameter, mean=float("norm" in name and "weight" in name), std=0.3)
    return save_model(model, place / "model", storage=storage)


def check_same_structure(arrays: Any, modules: Any, name: str = "model") -> None:
    """Each attribute of the arrays is that of the modules."""
    if dataclasses.is_dataclass(arrays):
        names = [field.name for field in dataclasses.fields(arrays)]
        names += [key for key in ("traits", "rows", "max_length") if hasattr(arrays, key)]
        for part in names:
            check_same_structure(getattr(arrays, part), getattr(modules, part, None), f"{name}.{part}")
    elif isinstance(arrays, list):
        assert len(arrays) == len(modules), name
        for number, pair in enumerate(zip(arrays, modules, strict=True)):
            check_same_structure(*pair, f"{name}.{number}")
    elif isinstance(arrays, np.ndarray):
        weight = getattr(modules, "weight", modules)  # of `output`, which is a module there
        assert torch.equal(torch.from_numpy(arrays), weight), name
    else:
        assert arrays == modules, name


@pytest.mark.parametrize("storage", ["float32", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_the_modules_in_structure_weights_and_hypotheses(kind: str, storage: Any, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, KINDS[kind], storage)
    assert why_not_weights(folder) is None
    ours, plain = FolderModel(folder), load_model(folder)
    check_same_structure(ours.c_search.arrays, plain)
    assert ours.config.max_positions == plain.config.max_positions  # type: ignore[union-attr]
    theirs = pack_weights(load_model(folder), "packed")
    rules = [EachOnce((7, 9)), None, EachOnce((), (8,)), None, None]
    for options in (
        {"search": Greedy()},
        {"search": Beam(3), "allow_unknown": False},
        {"search": Beam(4, length_penalty=0.3), "alternatives": 4},
        {"search": Beam(2), "prefixes": [[9], [], [9, 11], [], [12]], "rules": rules},
    ):
        given: Any = {"max_tokens": [9, 12, 8, 10, 11], "numbers": [4, 2, 0, 1, 3], **options}
        assert generate_tokens(ours, TEXTS, **given) == generate_tokens(theirs, TEXTS, **given)
    assert ours.c_search.statistics.steps > 0 and "module" not in vars(ours)
    given = {"search": Sample(seed=3), "max_tokens": 6}  # which C leaves to the modules
    assert generate_tokens(ours, TEXTS, **given) == generate_tokens(theirs, TEXTS, **given)
    state, wanted = ours.module.state_dict(), plain.state_dict()
    assert state.keys() == wanted.keys() and all(torch.equal(state[name], wanted[name]) for name in wanted)
    assert not ours.module.training and all(weight.requires_grad for weight in ours.module.parameters())


def test_requests_that_c_does_not_implement(tmp_path: Path) -> None:
    model = FolderModel(write_folder(tmp_path, KINDS["learned"]))

    def reason(search: Any = Greedy(), **request: Any) -> str | None:  # noqa: B008  # it is frozen
        return why_not(model, search, [make_requests([[5, END]], None, 4)[0]._replace(**request)])

    assert reason() is None
    assert "Sample" in (reason(Sample()) or "")
    assert "MinTokens" in (reason(Greedy(rules=(MinTokens(2),))) or "")
    assert "MinTokens" in (reason(rule=MinTokens(2)) or "")
    assert "vocabulary" in (reason(source=[70, END]) or "")
    assert "learned positions" in (reason(source=[5] * 31) or "")
    for options in ({"allow_nonsense": False}, {"constraints": [[[9]]], "search": Beam(2)}, {"cached": False}):
        generate_tokens(model, [[5, END]], max_tokens=3, **options)  # type: ignore[arg-type]
    assert "module" in vars(model) and model.c_search.statistics.steps == 0


def test_every_setting_is_known_or_refused() -> None:
    """A new setting of the config is in config.json, where C does not know it."""
    written = TransformerConfig(**SIDES).to_dict()
    fields = dataclasses.fields(NetworkSettings)
    assert written.keys() == {field.name for field in fields if is_required(field)}
    used: dict[str, Any] = {
        "norm_eps": 1e-6,
        "position_start": 2,
        "position_base": 9.0,
        "position_layout": "halves",
        "output_bias": True,
        "pad_id": 3,
        "unknown_id": 1,
        "start_id": 4,
        "end_ids": (0,),
        "barred_ids": (4,),
    }
    config = TransformerConfig(**SIDES, **used, tokenizer_size=60)
    ours = NetworkSettings.from_config({"kind": "transformer", "model": config.to_dict()})
    assert {field.name: getattr(config, field.name) for field in fields} == dataclasses.asdict(ours)
    assert ours.special_tokens == config.special_tokens


def rewrite(folder: Path, **changes: Any) -> None:
    """Change entries of config.json, those of the model with dots, and sign the manifest again."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        owner = config if name == "kind" else config["model"]
        owner.pop(name, None)
        if value != "absent":
            owner[name] = value
    path.write_text(json.dumps(config))
    sign(folder)


def sign(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {name: fingerprint(folder / name) for name in manifest["files"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def settings_reason(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    """The reason in a process that has not imported torch."""
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        patch.setattr(folder_model, "may_have_gpu", lambda: False)
        return why_not_settings(folder, **{"device": "auto", "dtype": "auto", **options}) or ""


@pytest.mark.parametrize(
    "settings",
    [
        {"position": "alibi"},
        {"position": "t5"},
        {"position": "relative"},
        {"window": 4},
        {"score": "additive", "position": "none"},
        {"qk_norm": True},
        {"form": "slice"},
        {"attention": "random-features", "position": "none"},
        {"frequency_start": 1},
        {"input_norm": True},
    ],
    ids=lambda settings: next(iter(settings)) + str(next(iter(settings.values()))),
)
def test_models_that_c_does_not_implement(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path, settings)
    assert settings_reason(folder, monkeypatch) and why_not_weights(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"invented": 1},
        {"kind": "rnn-attention"},
        {"kind": "invented"},
        {"hidden": "absent"},
        {"heads": 3},
        {"kv_heads": 3},
        {"heads": True},
        {"layers": 0},
        {"dropout": 2.0},
        {"activation": "tanh"},
        {"share_embeddings": True, "target_vocabulary": 71},
    ],
    ids=str,
)
def test_changed_settings_are_left_to_the_modules(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which explain what is wrong with them."""
    folder = write_folder(tmp_path, {})
    assert settings_reason(folder, monkeypatch) == ""
    rewrite(folder, **changes)
    assert settings_reason(folder, monkeypatch)
    with pytest.raises(ModelError):
        load_model(folder)


def test_the_machine_and_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path, {})
    assert "imported already" in (why_not_settings(folder, device="cpu", dtype="auto") or "")
    assert settings_reason(folder, monkeypatch, device="cpu", dtype="float32") == ""
    assert "cuda" in settings_reason(folder, monkeypatch, device="cuda")
    assert "int8" in settings_reason(folder, monkeypatch, dtype="int8")
    assert "bfloat16" in settings_reason(folder, monkeypatch, dtype="bfloat16")
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        patch.setattr(folder_model, "may_have_gpu", lambda: True)
        assert "GPU" in (why_not_settings(folder, device="auto", dtype="auto") or "")
        assert why_not_settings(folder, device="cpu", dtype="auto") is None
    monkeypatch.setattr(folder_model, "compiled", lambda: None)
    assert "compiler" in settings_reason(folder, monkeypatch)


def test_weights_that_c_does_not_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {})
    path = folder / "model.safetensors"
    weights = load_file(path)
    name = "encoder.blocks.1.self_norm.weight"

    def reason(**changed: Any) -> str:
        save_file({key: value for key, value in {**weights, **changed}.items() if value is not None}, path)
        sign(folder)
        return why_not_weights(folder) or ""

    assert reason() == ""
    assert name in reason(**{name: None})
    assert name in reason(**{name: torch.ones(41)})
    assert "extra" in reason(extra=torch.ones(1))
    assert "BF16" in reason(**{name: torch.ones(40).bfloat16()})
    assert "I8" in reason(**{name: torch.ones(40, dtype=torch.int8)})
    assert ".scale" in reason(**{"source.embedding.weight": torch.ones(70, 40, dtype=torch.int8)})
    reason()
    path.write_bytes(path.read_bytes()[:-4] + b"\0\1\2\3")
    assert "sha256" in (why_not_weights(folder) or "")
    (folder / "manifest.json").unlink()
    assert "manifest" in (why_not_weights(folder) or "")


def test_wrong_scales_are_named_as_the_modules_name_them(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {}, "int8")
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["source.embedding.weight.scale"][3] = -1.0
    save_file(weights, path)
    sign(folder)
    assert why_not_weights(folder) is None
    messages = []
    for read in (FolderModel, load_model):
        with pytest.raises(ModelError, match="not a positive number") as error:
            read(folder)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
