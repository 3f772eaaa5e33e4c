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
from regard.errors import ModelError, UsageError
from regard.models.folder import verify_folder
from regard.models.folder.config_file import MAX_JSON_BYTES

from ...repeats import some

TINY: dict[str, Any] = {"layers": 1, "dim": 8, "heads": 2, "hidden": 12}
SIDES = {"source_vocabulary": 13, "target_vocabulary": 13}
FIRST = "source.embedding.weight"


def in_groups(weight: Any, scale: float, minimum: float) -> dict[str, Any]:
    """The first table as integers in groups."""
    groups = {f"{FIRST}.scale": torch.full((13, 1), scale), f"{FIRST}.minimum": torch.full((13, 1), minimum)}
    return {FIRST: weight.to(torch.uint8).contiguous(), **{name: each.half() for name, each in groups.items()}}


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


def with_info(**changes: Any) -> Callable[[Path], None]:
    """Damage: something else beside the settings in config.json."""

    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        sign(folder)

    return damage


def with_text(name: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    """Damage: one place of a file written otherwise."""

    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        assert old in content
        (folder / name).write_bytes(content.replace(old, new, 1))
        if name != "manifest.json":
            sign(folder)

    return damage


def with_header(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Damage: another header before the weights."""

    def damage(folder: Path) -> None:
        content = (folder / "model.safetensors").read_bytes()
        end = 8 + struct.unpack("<Q", content[:8])[0]
        found = change(content[8:end])
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(found)) + found + content[end:])
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


def to_symlink(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        target = folder.parent / "elsewhere.json"
        (folder / name).rename(target)
        (folder / name).symlink_to(target)

    return damage


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
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors: listed .* but missing"),
    "no tokenizer": (lambda f: (f / "tokenizer.model").unlink(), r"tokenizer\.model: listed .* but missing"),
    "no manifest": (
        lambda f: (f / "manifest.json").unlink(),
        r"no manifest\.json, so this is not a model folder",
    ),
    "a folder for a file": (
        lambda f: ((f / "tokenizer.model").unlink(), (f / "tokenizer.model").mkdir()),
        r"tokenizer\.model: listed .* but missing or not a regular file",
    ),
    "symlink": (to_symlink("config.json"), r"config\.json: listed in the manifest, but missing or not a regular file"),
    "symlink to a manifest": (to_symlink("manifest.json"), r"manifest\.json: not a regular file"),
    "not listed": (
        lambda f: (f / "target.characters.json").write_text("{}"),
        r"target\.characters\.json: not listed in the manifest",
    ),
    "name twice in the manifest": (
        with_text("manifest.json", b'"format": 1', b'"format": 1, "format": 1'),
        r"manifest\.json: not valid JSON: a name occurs twice",
    ),
    "huge manifest": (
        lambda f: (f / "manifest.json").write_bytes(b" " * MAX_JSON_BYTES + b"{}"),
        rf"manifest\.json: larger than {MAX_JSON_BYTES} bytes",
    ),
    "way out": (with_listed("../../etc/passwd"), r"manifest\.json: '\.\./\.\./etc/passwd' is not a file"),
    "absolute name": (with_listed("/etc/passwd"), r"manifest\.json: '/etc/passwd' is not a file"),
    "name with a newline": (with_listed("config.json\n"), r"'config\.json\\n' is not a file"),
    "program": (with_listed("setup.py"), r"manifest\.json: 'setup\.py' is not a file"),
    "missing extra": (with_listed("target.tokenizer.model"), r"target\.tokenizer\.model: listed"),
    "entry is no object": (with_listed("tokenizer.model", "abc"), r"tokenizer\.model: its size differs"),
    "newer format": (
        with_manifest(format=3),
        r"written in format 3, but .* reads formats up to 2: update regard",
    ),
    "format zero": (with_manifest(format=0), r"manifest\.json: format or files is missing or damaged"),
    "format true": (with_manifest(format=True), r"manifest\.json: format or files is missing or damaged"),
    "format of many digits": (with_manifest(format=10**1000), r"written in format 1000+…, but regard"),
    "format text": (with_manifest(format="1"), r"manifest\.json: format or files is missing or damaged"),
    "files a list": (with_manifest(files=["config.json"]), r"manifest\.json: format or files is missing"),
    "nothing listed": (with_manifest(files={}), r"manifest\.json: config\.json is not listed"),
    "manifest a list": (lambda f: (f / "manifest.json").write_text("[1]"), r"manifest\.json: not a JSON object"),
    "config no json": (with_config(b"{'kind': 1}"), r"config\.json: not valid JSON"),
    "config no text": (with_config(b"\xff\xfe\x00"), r"config\.json: not valid JSON"),
    "config in another encoding": (
        with_config(json.dumps({"kind": 1}).encode("utf-16")),
        r"config\.json: not valid JSON",
    ),
    "config with half a character": (with_info(note="\ud800"), r"config\.json: not valid JSON: .*surrogates"),
    "name twice in config": (
        with_text("config.json", b'"layers": 1', b'"layers": 1, "layers": 1'),
        r"config\.json: not valid JSON: a name occurs twice",
    ),
    "huge config": (with_info(note=["x"] * MAX_JSON_BYTES), rf"config\.json: larger than {MAX_JSON_BYTES} bytes"),
    "config too deep": (with_config(b"[" * 200_000), r"config\.json: not valid JSON"),
    "config deep object": (with_config(b'{"a":' * 200_000), r"config\.json: not valid JSON"),
    "config long number": (with_config(b'{"a": ' + b"9" * 10_000 + b"}"), r"config\.json: not valid JSON"),
    "config a list": (with_config([]), r"config\.json: not a JSON object"),
    "config empty": (with_config({}), r"config\.json: unknown kind of model None"),
    "kind unknown": (with_config({"kind": "transformr"}), r"config\.json: unknown .* did you mean 'transformer'"),
    "kind a list": (with_config({"kind": ["transformer"]}), r"config\.json: unknown kind of model"),
    "kind an object": (with_config({"kind": {}}), r"config\.json: unknown kind of model"),
    "no settings": (with_config({"kind": "transformer"}), r"config\.json: the settings of the model are missing"),
    "settings a list": (with_config({"kind": "transformer", "model": []}), r"settings of the model are missing"),
    "unknown setting": (with_settings(layer=3), r"config\.json: unknown setting .* did you mean 'layers'"),
    "wrong setting": (with_settings(dropout="no"), r"config\.json: dropout must be a number"),
    "settings that do not fit": (with_settings(kv_heads=3), r"config\.json: heads=2 is not a multiple of kv_heads=3"),
    "odd rotation": (with_settings(position="rotary", heads=8), r"config\.json: head_dim .* must be even"),
    "huge width": (with_settings(dim=2**24), rf"model\.safetensors: the weight '{FIRST}' has shape \(13, 8\)"),
    "huge vocabulary": (with_settings(source_vocabulary=2**24), rf"the weight '{FIRST}' has shape \(13, 8\)"),
    "huge inner width": (with_settings(hidden=2**24), r"has shape \(12, 8\), the settings ask for \(16777216, 8\)"),
    "too huge": (with_settings(dim=2**40), r"config\.json: dim must be a whole number from 1 to"),
    "many heads": (with_settings(dim=2**20, heads=2**20, form="slice"), r"config\.json: heads must be a whole number"),
    "many layers": (with_settings(layers=10**9), r"config\.json: layers must be a whole number from 1 to 1024"),
    "most layers": (
        with_settings(layers=1024),
        r"config\.json: there are 1024 layers, but model.safetensors is too short",
    ),
    "most layers of the decoder": (with_settings(decoder_layers=1024), r"config\.json: there are 1025 layers"),
    "long setting": (with_settings(order="x" * 5000), r"config\.json: unknown order 'x{100,300}…$"),
    "colourful setting": (with_settings(**{"\x1b[31m": 1}), r"config\.json: unknown setting .* '\\x1b\[31m'"),
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
    "int8 with a scale of 0": (
        with_weights(lambda w: w.update({FIRST: w[FIRST].to(torch.int8), f"{FIRST}.scale": torch.arange(13.0)})),
        rf"a scale of the weight '{FIRST}' is not a positive number",
    ),
    "int8 with a scale that is no number": (
        with_weights(
            lambda w: w.update({FIRST: w[FIRST].to(torch.int8), f"{FIRST}.scale": torch.full((13,), torch.nan)})
        ),
        rf"a scale of the weight '{FIRST}' is not a positive number",
    ),
    "int8 with an int8 scale": (
        with_weights(
            lambda w: w.update({FIRST: w[FIRST].to(torch.int8), f"{FIRST}.scale": torch.ones(13, dtype=torch.int8)})
        ),
        rf"the weight '{FIRST}\.scale' is stored as I8",
    ),
    "groups without minima": (
        with_weights(lambda w: w.update({FIRST: w[FIRST].to(torch.uint8), f"{FIRST}.scale": torch.ones(13, 1).half()})),
        rf"the weight '{FIRST}\.minimum' is missing",
    ),
    "groups of another size": (
        with_weights(lambda w: w.update(in_groups(w[FIRST][:, :3], 1, 0))),
        r"has shape \(13, 3\), the settings ask for \(13, 4\)|has shape \(13, 3\)",
    ),
    "groups with a negative scale": (
        with_weights(lambda w: w.update(in_groups(w[FIRST], -1, 0))),
        rf"a scale of the weight '{FIRST}' is not a number from 0",
    ),
    "groups with a minimum that is no number": (
        with_weights(lambda w: w.update(in_groups(w[FIRST], 1, torch.nan))),
        rf"a minimum of the weight '{FIRST}' is not a finite number",
    ),
    "vector in groups": (
        with_weights(lambda w: w.update({"encoder.blocks.0.self_norm.weight": torch.ones(8, dtype=torch.uint8)})),
        r"'encoder\.blocks\.0\.self_norm\.weight' is stored as U8",
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
    "long header": (
        with_header(lambda h: h + b" " * 10**6),
        r"its header of \d+ bytes is too long for this model",
    ),
    "colourful type": (
        with_header(lambda h: h.replace(b'"F32"', b'"\\u001b[31m"', 1)),
        r"cannot be read as safetensors: .*\\x1b\[31m",
    ),
    "long name of a weight": (
        with_header(lambda h: h.replace(FIRST.encode(), b"x" * 1000)),
        rf"model\.safetensors: the weight '{FIRST}' is missing",
    ),
    "shape of many numbers": (
        with_header(lambda h: h.replace(b'"shape":[13,8]', b'"shape":[13,8' + b",1" * 500 + b"]", 1)),
        r"has shape \(13, 8, [1, ]{100,300}…, the settings ask for \(13, 8\)",
    ),
    "two weights in one place": (
        with_header(lambda h: h[:-1] + b',"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'),
        r"model\.safetensors: cannot be read as safetensors",
    ),
    "tensor beyond the file": (
        with_raw_weights(header({FIRST: {"dtype": "F32", "shape": [2**40, 8], "data_offsets": [0, 2**45]}})),
        r"model\.safetensors: cannot be read as safetensors",
    ),
}


INFOS: dict[str, list[Any]] = {
    "storage": ["float8", 3, []],
    "special_tokens": [{}, [], {"<pad>": 0, "<unk>": 1, "<s>": 3, "</s>": 2}],
    "versions": [[], {"regard": 1}],
    "languages": ["fr", {"source": {}}],
    "scores": [3, {"loss": "x"}, {"loss": True}, {"bleu": {}}, {"bleu": {"value": "30"}}],
    "recipe": ["x", {"data": []}, {"data": {"max_length": 0}}, {"data": {"max_length": True}}],
    "context": [1, True, 20.0, "20", []],
    "unseen_pieces": ["abc", 3, [-1], [1.0], [[4]], [True], {"4": 4}],
    "known_names": ["abc", 3, [4], [["Zoé"]], {"Zoé": 1}],
    "alignment": [
        "best",
        {},
        {"layer": 1},
        {"layer": "x", "head": -1},
        {"layer": "x", "head": True},
        {"layer": "x", "head": 0, "heads": []},
        {"layer": "x", "head": 0, "heads": [{"head": 0}]},
        {"layer": "x", "head": 0, "heads": [{"layer": "x", "head": 0, "shifted": 1}]},
    ],
}
DAMAGES |= {
    f"{name} is {value}": (with_info(**{name: value}), rf"config\.json: {name} must be .*, got ")
    for name, values in INFOS.items()
    for value in values
}


@pytest.mark.parametrize("name", some(DAMAGES, 40))
def test_damage(name: str, folder: Path) -> None:
    damage, message = DAMAGES[name]
    load_model(folder)
    damage(folder)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(folder)
    said = str(caught.value)
    assert str(folder) in said and said.isprintable() and len(said) < 1000
    assert caught.value.exit_code == 4


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere: no such folder"):
        load_model(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelError, match="file: no such folder"):
        verify_folder(tmp_path / "file")


def test_settings_that_do_not_fit_of_a_recurrent_model(tmp_path: Path) -> None:
    folder = save_model(make_model(RecurrentTranslatorConfig(**SIDES, embedding=4, hidden=8)), tmp_path / "m")
    with_settings(attention="dot", encoder_hidden=3)(folder)
    with pytest.raises(ModelError, match=r"config\.json: score 'dot' compares queries and keys of one width"):
        load_model(folder)


def test_a_kind_that_is_not_of_these_settings(tmp_path: Path) -> None:
    folder = save_model(make_model(RecurrentTranslatorConfig(**SIDES, embedding=4, hidden=8)), tmp_path / "m")
    with_info(kind="rnn-seq2seq")(folder)
    with pytest.raises(ModelError, match=r"the kind is 'rnn-seq2seq', but with these settings it is 'rnn-attention'"):
        load_model(folder)


@pytest.mark.parametrize(("name", "value"), [(name, values[-1]) for name, values in INFOS.items()])
def test_what_could_not_be_read_is_not_written(name: str, value: Any, tmp_path: Path) -> None:
    if name in ("storage", "special_tokens", "versions"):
        message = f"info may not contain '{name}'"
    else:
        message = f"could not be read again: {name} must be"
    with pytest.raises(UsageError, match=message):
        save_model(make_model(TransformerConfig(**TINY, **SIDES)), tmp_path / "m", info={name: value})
    with pytest.raises(UsageError, match="could not be read again: more than"):
        save_model(make_model(TransformerConfig(**TINY, **SIDES)), tmp_path / "m", info={"note": "x" * MAX_JSON_BYTES})
    assert not list(tmp_path.iterdir())


def test_what_training_knows_may_be_missing(tmp_path: Path) -> None:
    known: dict[str, list[Any]] = {
        "languages": [None, {}, {"source": "fr", "target": None}],
        "scores": [None, {}, {"loss": float("nan"), "bleu": {"value": 30}}],
        "recipe": [None, {}, {"data": {}}, {"data": {"max_length": None}}, {"data": {"max_length": 1}}],
        "context": [None, 2],
        "unseen_pieces": [None, [], [0, 10**9]],
        "known_names": [None, [], ["Zoé"]],
        "alignment": [
            None,
            {"layer": "decoder.0.cross"},
            {"layer": "x", "head": 0},
            {"layer": "x", "head": 0, "heads": [{"layer": "x", "head": 0, "shifted": True}]},
        ],
        "more": [None, 3],
    }
    for name, values in known.items():
        for value in values:
            model = make_model(TransformerConfig(**TINY, **SIDES))
            load_model(save_model(model, tmp_path / "m", info={name: value}))


def test_what_cannot_be_read(folder: Path, monkeypatch: Any) -> None:
    def refused(path: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("regard.models.folder.verification.fingerprint", refused)
    with pytest.raises(ModelError, match=r"config\.json: cannot be read: Permission denied|: cannot be read"):
        load_model(folder)


def test_huge_settings_take_no_memory(folder: Path, monkeypatch: Any) -> None:
    """They would be thousands of terabytes: the network is only outlined, and then held against the file."""
    with_settings(dim=2**24, hidden=2**24, source_vocabulary=2**24)(folder)
    made: list[nn.Module] = []
    real = make_model
    monkeypatch.setattr("regard.models.folder.loading.make_model", lambda config: made.append(real(config)) or made[-1])
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


@pytest.mark.parametrize("seed", some(range(3), 1))
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
