"""The folder of a stranger: files are found and bounded, and whatever is wrong with them is a clear error."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import make_original

import regard
from regard.errors import ModelError, RegardError, UsageError
from regard.interop import import_model, read

CASES = 60
ALL_CASES = 10_000


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_original("qwen2", tmp_path_factory.mktemp("original")).folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "folder"))


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return dict(read(folder).weights())


def test_shards(folder: Path) -> None:
    """The same weights, in three files and an index."""
    whole = weights_of(folder)
    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = {}
    for number in range(3):
        name = f"model-{number + 1:05}-of-00003.safetensors"
        part = dict(list(stored.items())[number::3])
        save_file(part, folder / name)
        index |= dict.fromkeys(part, name)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": index}), encoding="utf-8")
    again = weights_of(folder)
    assert whole.keys() == again.keys() and all(torch.equal(whole[name], again[name]) for name in whole)

    def refused(weight_map: object, message: str) -> None:
        path.write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
        with pytest.raises(ModelError, match=message):
            read(folder)

    first = next(iter(index))
    refused({**index, first: "../model.safetensors"}, "is not the name of a file in this folder")
    refused({**index, first: "model-00009-of-00003.safetensors"}, "of the index is missing")
    refused({**index, "more": index[first]}, "'more' is not in the file it names")
    refused({**index, first: "pytorch_model.bin"}, r"must name \.safetensors files")
    refused([], "weight_map must name the file of each weight")


def test_links(folder: Path, tmp_path: Path) -> None:
    """The cache of Hugging Face links to its blobs; any other link leaves the folder."""
    cache = tmp_path / "models--who--what"
    (cache / "blobs").mkdir(parents=True)
    snapshot = cache / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.copy(path, cache / "blobs" / str(number))
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(number))
    assert read(snapshot).config == read(folder).config
    (folder / "config.json").rename(tmp_path / "config.json")
    (folder / "config.json").symlink_to(tmp_path / "config.json")
    with pytest.raises(ModelError, match="a link that leaves it"):
        read(folder)


def test_names_of_old_files(folder: Path) -> None:
    """Without the prefix of the base model, and with buffers that nobody needs."""
    expected = weights_of(folder)
    stored = load_file(folder / "model.safetensors")
    renamed = {name.removeprefix("model."): weight for name, weight in stored.items()}
    renamed["layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(2)
    renamed["lm_head.weight"] = renamed["embed_tokens.weight"].clone()
    save_file(renamed, folder / "model.safetensors")
    again = weights_of(folder)
    assert all(torch.equal(expected[name], again[name]) for name in expected)
    renamed["lm_head.weight"][3, 3] += 1
    save_file(renamed, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"the weights 'lm_head\.weight' and 'embed_tokens\.weight' differ"):
        read(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), r"the weight 'norm\.weight' is missing"),
        (lambda w: w.update(more=torch.zeros(3)), "the weight 'more' belongs to no part of the model"),
        (
            lambda w: w.update({"model.norm.weight": torch.zeros(3)}),
            r"'norm\.weight' has shape \(3,\).* ask for \(16,\)",
        ),
        (lambda w: w.update({"model.norm.weight": torch.zeros(16).double()}), "is stored as F64, and regard reads"),
        (lambda w: w.update({"norm.weight": torch.zeros(16)}), "is there with and without 'model.'"),
    ],
)
def test_wrong_weights(change: Callable[[dict[str, torch.Tensor]], None], message: str, folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    change(stored)
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(ModelError, match=message):
        read(folder)


def test_missing_files(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"there is no file of weights: model\.safetensors or pytorch_model\.bin"):
        read(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"there is no tokenizer\.json"):
        read(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"there is no config\.json"):
        read(folder)
    with pytest.raises(ModelError, match="no such folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="unknown family of models 'whisper'"):
        read(folder, family="whisper")


@pytest.mark.parametrize("storage", ["bfloat16", "float16", "int8", None])
def test_storages(storage: str | None, original: Path, folder: Path, tmp_path: Path) -> None:
    """What the import writes is what saving the model writes; by default it keeps the type of the source."""
    if storage is None:
        halves = {name: weight.half() for name, weight in load_file(folder / "model.safetensors").items()}
        save_file(halves, folder / "model.safetensors")
    model = read(folder).model()
    out = import_model(folder, tmp_path / "out", storage=storage)  # type: ignore[arg-type]
    saved = regard.save_model(model, tmp_path / "saved", storage=storage or "float16")  # type: ignore[arg-type]
    one, other = (load_file(path / "model.safetensors") for path in (out, saved))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert json.loads((out / "manifest.json").read_text())["format"] == 2
    with pytest.raises(UsageError, match="exists and is not a model folder"):
        import_model(original, tmp_path)


def spoil(folder: Path, number: int) -> None:
    """Damage one file of the folder, in a way that depends on the number."""
    draw = random.Random(number)
    path = draw.choice(sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors")))
    content = bytearray(path.read_bytes())
    if path.suffix == ".safetensors" and draw.random() < 0.7:
        size = struct.unpack("<Q", content[:8])[0]
        place = draw.randrange(8 + size)  # in the header
        content[place] = draw.randrange(256) if draw.random() < 0.5 else ord(draw.choice('0123456789"[]{},:'))
    elif draw.random() < 0.5 and path.suffix == ".json":
        settings = json.loads(content)
        spoil_part(settings, draw)
        content = bytearray(json.dumps(settings).encode())
    else:
        match draw.randrange(3):
            case 0:
                del content[draw.randrange(len(content)) :]
            case 1:
                content[draw.randrange(len(content))] = draw.randrange(256)
            case 2:
                place = draw.randrange(len(content))
                content[place:place] = draw.randbytes(draw.randrange(1, 9))
    path.write_bytes(content)


def spoil_part(part: object, draw: random.Random) -> None:
    """Replace something inside a JSON value."""
    others = [None, True, -1, 0, 3, 2**40, 1.5, "x", [], {}, [1, "a"], {"type": "x"}, "\ud800", 10**30]
    if isinstance(part, dict | list) and part:
        key = draw.choice(list(part)) if isinstance(part, dict) else draw.randrange(len(part))
        if isinstance(part[key], dict | list) and part[key] and draw.random() < 0.7:
            spoil_part(part[key], draw)
        elif isinstance(part, dict) and draw.random() < 0.2:
            del part[key]
        else:
            part[key] = draw.choice(others)


def check_case(original: Path, place: Path, number: int) -> None:
    folder = Path(shutil.copytree(original, place / "folder"))
    spoil(folder, number)
    with contextlib.suppress(RegardError):  # any other exception fails the test
        out = import_model(folder, place / "out")
        writer = regard.load(out, device="cpu")
        writer.write("The cat", search=regard.Greedy(), max_tokens=2)
    shutil.rmtree(folder)
    shutil.rmtree(place / "out", ignore_errors=True)


@pytest.mark.filterwarnings("ignore")
def test_damaged_folders_are_clear_errors_or_work(original: Path, tmp_path: Path) -> None:
    for number in range(CASES):
        check_case(original, tmp_path, number)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore")
def test_many_damaged_folders(original: Path, tmp_path: Path) -> None:
    for number in range(CASES, ALL_CASES):
        check_case(original, tmp_path, number)
