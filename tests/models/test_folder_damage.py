"""A model folder from anywhere: each damage is a ModelError that names the file, and nothing worse ever happens."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from regard import RecurrentTranslatorConfig, TransformerConfig, load_model, make_model, save_model
from regard.errors import ModelError
from regard.models.folder import verify_folder

TINY: dict[str, Any] = {"layers": 1, "dim": 8, "heads": 2, "hidden": 12}
SIDES = {"source_vocabulary": 13, "target_vocabulary": 13}
FIRST = "source.embedding.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(make_model(TransformerConfig(**TINY, **SIDES)), tmp_path / "m", files={"tokenizer.model": b"t"})


def sign(folder: Path, **changes: Any) -> None:
    """A manifest that fits the files, as somebody who means harm would write it."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in folder.iterdir()
        if path.name != "manifest.json"
    }
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "files": files, **changes}))


def with_settings(**changes: Any) -> Callable[[Path], None]:
    """Damage: other settings of the model."""

    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config["model"] |= changes
        (folder / "config.json").write_text(json.dumps(config))
        sign(folder)

    return damage


def with_config(content: Any) -> Callable[[Path], None]:
    """Damage: another config.json, as bytes or as what JSON shall hold."""

    def damage(folder: Path) -> None:
        (folder / "config.json").write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        sign(folder)

    return damage


def with_weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    """Damage: other weights."""

    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")
        sign(folder)

    return damage


def with_raw_weights(content: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(content)
        sign(folder)

    return damage


def with_manifest(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: sign(folder, **changes)


def with_listed(name: str, entry: Any = None) -> Callable[[Path], None]:
    """Damage: one more name in the manifest."""

    def damage(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"][name] = entry or {"size": 1, "sha256": "0" * 64}
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return damage


def to_symlink(folder: Path) -> None:
    target = folder.parent / "elsewhere.json"
    (folder / "config.json").rename(target)
    (folder / "config.json").symlink_to(target)


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-7]) and None


def flip(name: str, place: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[place] ^= 1
        (folder / name).write_bytes(content)

    return damage


def header(entries: dict[str, Any]) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "weights cut short": (cut("model.safetensors"), r"model\.safetensors: its size differs"),
    "config cut short": (cut("config.json"), r"config\.json: its size differs"),
    "manifest cut short": (cut("manifest.json"), r"manifest\.json: not valid JSON"),
    "bit of the weights": (flip("model.safetensors", -5), r"model\.safetensors: its sha256 differs"),
    "bit of the tokenizer": (flip("tokenizer.model", 0), r"tokenizer\.model: its sha256 differs"),
    "bit of the card": (flip("README.md", 3), r"README\.md: its sha256 differs"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors: listed .* but not there"),
    "no tokenizer": (lambda f: (f / "tokenizer.model").unlink(), r"tokenizer\.model: listed .* but not there"),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), r"no manifest\.json, so this is not a model folder"),
    "a folder for a file": (
        lambda f: ((f / "tokenizer.model").unlink(), (f / "tokenizer.model").mkdir()),
        r"tokenizer\.model: listed .* but not there as a file",
    ),
    "symlink": (to_symlink, r"config\.json: listed in the manifest, but not there as a file"),
    "way out": (with_listed("../../etc/passwd"), r"manifest\.json: '\.\./\.\./etc/passwd' is no file"),
    "absolute name": (with_listed("/etc/passwd"), r"manifest\.json: '/etc/passwd' is no file"),
    "name with a newline": (with_listed("config.json\n"), r"'config\.json\\n' is no file"),
    "program": (with_listed("setup.py"), r"manifest\.json: 'setup\.py' is no file"),
    "missing extra": (with_listed("target.tokenizer.model"), r"target\.tokenizer\.model: listed"),
    "entry is no object": (with_listed("tokenizer.model", "abc"), r"tokenizer\.model: its size differs"),
    "newer format": (with_manifest(format=2), r"written in format 2; this regard, .*, reads up to 1: update regard"),
    "format zero": (with_manifest(format=0), r"manifest\.json: format or files is missing or damaged"),
    "format text": (with_manifest(format="1"), r"manifest\.json: format or files is missing or damaged"),
    "files a list": (with_manifest(files=["config.json"]), r"manifest\.json: format or files is missing"),
    "nothing listed": (with_manifest(files={}), r"manifest\.json: config\.json is not listed"),
    "manifest a list": (lambda f: (f / "manifest.json").write_text("[1]"), r"manifest\.json: holds no JSON object"),
    "config no json": (with_config(b"{'kind': 1}"), r"config\.json: not valid JSON"),
    "config no text": (with_config(b"\xff\xfe\x00"), r"config\.json: not valid JSON"),
    "config too deep": (with_config(b"[" * 200_000), r"config\.json: not valid JSON"),
    "config deep object": (with_config(b'{"a":' * 200_000), r"config\.json: not valid JSON"),
    "config long number": (with_config(b'{"a": ' + b"9" * 10_000 + b"}"), r"config\.json: not valid JSON"),
    "config a list": (with_config([]), r"config\.json: holds no JSON object"),
    "config empty": (with_config({}), r"config\.json: unknown kind of model None"),
    "kind unknown": (with_config({"kind": "transformr"}), r"config\.json: unknown .* did you mean 'transformer'"),
    "kind a list": (with_config({"kind": ["transformer"]}), r"config\.json: unknown kind of model"),
    "kind an object": (with_config({"kind": {}}), r"config\.json: unknown kind of model"),
    "no settings": (with_config({"kind": "transformer"}), r"config\.json: the settings of the model are missing"),
    "settings a list": (with_config({"kind": "transformer", "model": []}), r"settings of the model are missing"),
    "unknown setting": (with_settings(layer=3), r"config\.json: unknown setting .* did you mean 'layers'"),
    "wrong setting": (with_settings(dropout="no"), r"config\.json: dropout must be a share"),
    "settings that do not fit": (with_settings(kv_heads=3), r"config\.json: heads=2 is not a multiple of kv_heads=3"),
    "odd rotation": (with_settings(position="rotary", heads=8), r"config\.json: head_dim .* must be even"),
    "huge width": (with_settings(dim=2**24), rf"model\.safetensors: the weight '{FIRST}' has shape \(13, 8\)"),
    "huge vocabulary": (with_settings(source_vocabulary=2**24), rf"the weight '{FIRST}' has shape \(13, 8\)"),
    "huge inner width": (with_settings(hidden=2**24), r"has shape \(12, 8\), the settings ask for \(16777216, 8\)"),
    "too huge": (with_settings(dim=2**40), r"config\.json: dim must be a whole number from 1 to"),
    "many heads": (with_settings(dim=2**20, heads=2**20, form="slice"), r"config\.json: heads must be a whole number"),
    "many layers": (with_settings(layers=10**9), r"config\.json: layers must be a whole number from 1 to 1024"),
    "one layer more": (with_settings(layers=2), r"the weight '\w+\.blocks\.1\..*' is missing"),
    "weight missing": (with_weights(lambda w: w.pop(FIRST)), rf"model\.safetensors: the weight '{FIRST}' is missing"),
    "weight too many": (
        with_weights(lambda w: w.update(extra=torch.zeros(1))),
        r"model\.safetensors: the weight 'extra' belongs to no part of the model",
    ),
    "weight of another shape": (
        with_weights(lambda w: w.update({FIRST: w[FIRST].T.contiguous()})),
        r"has shape \(8, 13\), the settings ask for \(13, 8\)",
    ),
    "float64": (with_weights(lambda w: w.update({FIRST: w[FIRST].double()})), r"is stored as F64"),
    "bool": (with_weights(lambda w: w.update({FIRST: w[FIRST] > 0})), r"is stored as BOOL"),
    "int8 without scale": (
        with_weights(lambda w: w.update({FIRST: w[FIRST].to(torch.int8)})),
        rf"the weight '{FIRST}\.scale' is missing",
    ),
    "int8 with a wrong scale": (
        with_weights(lambda w: w.update({FIRST: w[FIRST].to(torch.int8), f"{FIRST}.scale": torch.ones(2)})),
        rf"the weight '{FIRST}\.scale' has shape \(2,\)",
    ),
    "int8 with an int8 scale": (
        with_weights(
            lambda w: w.update({FIRST: w[FIRST].to(torch.int8), f"{FIRST}.scale": torch.ones(13, dtype=torch.int8)})
        ),
        rf"the weight '{FIRST}\.scale' is stored as I8",
    ),
    "int8 vector": (
        with_weights(
            lambda w: (
                w.update({"encoder.blocks.0.self_norm.weight": torch.ones(8, dtype=torch.int8)})
                or w.update({"encoder.blocks.0.self_norm.weight.scale": torch.ones(8)})
            )
        ),
        r"'encoder\.blocks\.0\.self_norm\.weight' is stored as I8",
    ),
    "no safetensors": (with_raw_weights(b"PK\x03\x04 a pickle"), r"model\.safetensors: cannot be read as safetensors"),
    "empty weights": (with_raw_weights(b""), r"model\.safetensors: cannot be read as safetensors"),
    "header beyond the file": (with_raw_weights(struct.pack("<Q", 2**62) + b"{}"), r"cannot be read as safetensors"),
    "tensor beyond the file": (
        with_raw_weights(header({FIRST: {"dtype": "F32", "shape": [2**40, 8], "data_offsets": [0, 2**45]}})),
        r"model\.safetensors: cannot be read as safetensors",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage(name: str, folder: Path) -> None:
    damage, message = DAMAGES[name]
    load_model(folder)
    damage(folder)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(folder)
    assert str(folder) in str(caught.value)
    assert caught.value.exit_code == 4


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere: there is no such folder"):
        load_model(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelError, match="file: there is no such folder"):
        verify_folder(tmp_path / "file")


def test_settings_that_do_not_fit_of_a_recurrent_model(tmp_path: Path) -> None:
    folder = save_model(make_model(RecurrentTranslatorConfig(**SIDES, embedding=4, hidden=8)), tmp_path / "m")
    with_settings(attention="dot", encoder_hidden=3)(folder)
    with pytest.raises(ModelError, match=r"config\.json: score 'dot' multiplies queries and keys of one width"):
        load_model(folder)


def test_a_huge_file_is_not_read_whole(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("regard.models.folder.LARGEST_TEXT", 100)
    with pytest.raises(ModelError, match=r"manifest\.json: larger than 100 bytes"):
        load_model(folder)


def test_huge_settings_take_no_memory(folder: Path, monkeypatch: Any) -> None:
    """They would be thousands of terabytes: the network is only outlined, and then held against the file."""
    with_settings(dim=2**24, hidden=2**24, source_vocabulary=2**24)(folder)
    made: list[nn.Module] = []
    real = make_model
    monkeypatch.setattr("regard.models.folder.make_model", lambda config: made.append(real(config)) or made[-1])
    with pytest.raises(ModelError, match="the settings ask for"):
        load_model(folder)
    assert all(parameter.is_meta for parameter in made[0].parameters())


def changed(content: bytes, dice: random.Random) -> bytes:
    """The file with a bit flipped, a byte replaced, a piece cut out, doubled or cut off, or a digit changed."""
    data = bytearray(content)
    place = dice.randrange(len(data))
    match dice.randrange(6):
        case 0:
            data[place] ^= 1 << dice.randrange(8)
        case 1:
            data[place] = dice.randrange(256)
        case 2:
            del data[place : place + dice.randrange(1, 9)]
        case 3:
            data[place:place] = data[place : place + 9]
        case 4:
            del data[place:]
        case 5:
            digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
            data[dice.choice(digits)] = dice.choice(b'0123456789-.e["')
    return bytes(data)


@pytest.mark.parametrize("seed", range(3))
def test_mutations(seed: int, folder: Path) -> None:
    """300 in all, the manifest signed anew: a ModelError or a model, never another error."""
    dice = random.Random(seed)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = 0
    for _ in range(100):
        name = dice.choice(["config.json", "config.json", "model.safetensors", "model.safetensors", "manifest.json"])
        content = kept[name]
        if name == "model.safetensors" and dice.random() < 0.7:  # the header is what can be wrong
            end = 8 + struct.unpack("<Q", content[:8])[0]
            content = changed(content[:end], dice) + content[end:]
        else:
            content = changed(content, dice)
        (folder / name).write_bytes(content)
        if name != "manifest.json":
            sign(folder)
        try:
            load_model(folder)
        except ModelError:
            refused += 1
        for restored in (name, "manifest.json"):
            (folder / restored).write_bytes(kept[restored])
    assert refused > 30
    load_model(folder)
