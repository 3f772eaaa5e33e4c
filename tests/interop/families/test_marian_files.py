"""Models that Marian itself trained (tests/data/marian): their scores and translations are those of Marian."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import mutations

import regard
from regard.errors import ModelError, RegardError, UsageError
from regard.interop import import_model, read
from regard.interop.files.flat_yaml import read_settings, read_vocabulary
from regard.interop.files.marian_file import MarianFile
from regard.look import inside_block, trace_text

DATA = Path(__file__).parents[2] / "data/marian"
RECORDED = json.loads((DATA / "recorded.json").read_text(encoding="utf-8"))
MODELS = ("ssru", "pre")
# Of the settings of a model: those of other architectures, and of the training.
HARMLESS = (
    "bert|char|factors-combine|enc-cell|enc-type|dec-cell-|aan|guided|ulr-|separator|alibi-trainable|version|dim-rnn"
)


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_model(DATA / f"{name}.npz", tmp_path_factory.mktemp(name) / "model")


def test_scores_are_those_of_marian(name: str, folder: Path) -> None:
    translator = regard.load(folder, device="cpu")
    scored = translator.score(RECORDED["sources"], RECORDED["targets"])
    assert [each.score for each in scored] == pytest.approx(RECORDED[name]["scores"], abs=2e-4)


def test_greedy_translations_are_those_of_marian(tmp_path: Path) -> None:
    """In C and in the modules. Marian's decoder does not agree with its own scores for the pre-norm model."""
    name, folder = "ssru", import_model(DATA / "ssru.npz", tmp_path / "model")
    translator = regard.load(folder, device="cpu")
    options: dict[str, Any] = {"search": regard.Greedy(), "guard": False}
    texts = [each.text for each in translator.translate(RECORDED["sources"], **options)]
    assert texts == RECORDED[name]["translations"]
    plain = regard.Translator(translator.model, *translator_tokenizers(translator), info=translator.info)
    assert [each.text for each in plain.translate(RECORDED["sources"], **options)] == texts


def translator_tokenizers(translator: Any) -> tuple[Any, Any]:
    return translator.source_tokenizer, translator.target_tokenizer


def test_weights_lead_back(name: str) -> None:
    imported = read(DATA / f"{name}.npz")
    file = MarianFile(DATA / f"{name}.npz")
    ours = dict(imported.weights())
    restored = dict(imported.table.write(ours.__getitem__))
    assert restored.keys() == file.shapes.keys()
    assert all(torch.equal(restored[each], file.get(each)) for each in restored)


def test_positions_begin_with_a_zero_vector(folder: Path) -> None:
    model = regard.load_model(folder)
    start = model.config.start_id
    assert not model.target.embedding.weight[start].any()
    assert {start, model.config.unknown_id} == {*model.config.barred_ids}


def rewritten(name: str, folder: Path, settings: str | None = None, **arrays: Any) -> Path:
    """Write the model again with other settings or arrays, beside copies of its vocabularies."""
    shutil.copytree(DATA, folder)
    file = MarianFile(DATA / f"{name}.npz")
    content = {each: file.get(each).numpy() for each in file.shapes}
    text = settings_text(name) if settings is None else settings
    content |= {"special:model.yml": np.frombuffer(text.encode() + b"\0", np.int8)} | arrays
    np.savez(folder / f"{name}.npz", **content)
    return folder / f"{name}.npz"


def settings_text(name: str) -> str:
    with zipfile.ZipFile(DATA / f"{name}.npz") as archive:
        stored = np.lib.format.read_array(archive.open("special:model.yml.npy"), allow_pickle=False)
    return stored.tobytes().rstrip(b"\0").decode()


def test_every_setting_counts(name: str, tmp_path: Path) -> None:
    text = settings_text(name)
    settings = read_settings(text, "model.yml")
    original = read(rewritten(name, tmp_path / "same"))
    path = tmp_path / "same" / f"{name}.npz"
    model = MarianFile(path)
    for key, value in settings.items():
        if any(part in key for part in HARMLESS):
            continue
        for other in mutations(value if value != [] else None):
            changed = settings | {key: other}
            try:
                config = plan_of(model, changed, path)
            except RegardError:
                continue
            assert config != original.config, f"{key} = {other!r} changes nothing"


def plan_of(model: MarianFile, settings: dict[str, Any], path: Path) -> Any:
    from regard.interop.families import marian_original
    from regard.interop.files.settings_file import SettingsFile
    from regard.interop.marian_folder import open_folder, read_tokenizers

    folder = open_folder(path, allow_keys=())
    folder.model.settings = settings
    *_, tokens, _ = read_tokenizers(folder)
    file = SettingsFile(path, settings)
    plan = marian_original.make_plan(file, tokens, model.shapes)
    file.finish()
    return plan.config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("type: transformer", "type: s2s"), "type is 's2s'"),
        (
            ("transformer-ffn-activation: relu", "transformer-ffn-activation: gelu"),
            "transformer-ffn-activation is 'gelu'",
        ),
        (("transformer-decoder-autoreg: rnn", "transformer-decoder-autoreg: average-attention"), "average-attention"),
        (("dec-cell: ssru", "dec-cell: gru"), "dec-cell is 'gru'"),
        (("transformer-postprocess: dan", "transformer-postprocess: nda"), "post-norm"),
        (("right-left: false", "right-left: true"), "right-left is True"),
        (("dim-emb: 32", "dim-emb: 64"), "has shape"),
        (("enc-depth: 3", "enc-depth: 4"), "'encoder_l4_.*' is missing"),
        (("skip: false", "skip: [false"), "YAML that Marian does not write"),
        (("skip: false", "unheard-of: 1"), "does not know the key 'unheard-of'"),
    ],
)
def test_refusals_say_what_is_wrong(changes: tuple[str, str], message: str, tmp_path: Path) -> None:
    text = settings_text("ssru")
    assert changes[0] in text
    with pytest.raises(ModelError, match=message):
        read(rewritten("ssru", tmp_path / "m", text.replace(*changes)))


def test_a_weight_that_is_no_part_of_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="trained positions"):
        read(rewritten("ssru", tmp_path / "a", Wpos=np.zeros((4, 32), np.float32)))
    with pytest.raises(ModelError, match="'extra' belongs to no part"):
        read(rewritten("ssru", tmp_path / "b", extra=np.zeros((4, 32), np.float32)))


def write_bin(path: Path, arrays: dict[str, tuple[int, tuple[int, ...], bytes]]) -> None:
    """Write a .bin as Marian lays it out."""
    heads = b"".join(struct.pack("<QQQQ", len(n) + 1, kind, len(s), len(b)) for n, (kind, s, b) in arrays.items())
    names = b"".join(name.encode() + b"\0" for name in arrays)
    shapes = b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, shape, _ in arrays.values())
    content = b"".join(numbers for *_, numbers in arrays.values())
    path.write_bytes(
        struct.pack("<QQ", 1, len(arrays)) + heads + names + shapes + struct.pack("<Q", 8) + bytes(8) + content
    )


def as_bin(name: str, folder: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """Write a model as a .bin with 8-bit matrices, as Firefox has them; return the weights that they stand for."""
    file = MarianFile(DATA / f"{name}.npz")
    arrays: dict[str, Any] = {}
    meant = {}
    for each, shape in file.shapes.items():
        weight = file.get(each)
        if shape[0] > 1:
            scale = np.float32(127.0 / weight.abs().max().item())
            numbers = (weight * scale).round().clamp(-127, 127).to(torch.int8)
            meant[each] = numbers.float() / float(scale)
            lying = numbers if each == "Wemb" else numbers.T.contiguous()  # outputs first
            arrays[each] = 0x4101, shape, lying.numpy().tobytes() + scale.tobytes() + bytes(12)
            arrays[f"{each}_QuantMultA"] = 0x404, (1, 1), struct.pack("<f", 3.0)
        else:
            meant[each] = weight
            arrays[each] = 0x404, shape, weight.numpy().tobytes()
    arrays["special:model.yml"] = 0x101, (len(settings_text(name)) + 1,), settings_text(name).encode() + b"\0"
    folder.mkdir()
    write_bin(folder / "model.bin", arrays)
    shutil.copy(DATA / "joint.spm", folder / "vocab.spm")
    return folder, meant


def test_a_bin_of_8_bit_numbers(tmp_path: Path) -> None:
    folder, meant = as_bin("ssru", tmp_path / "bin")
    imported = read(folder)
    restored = dict(imported.table.write(dict(imported.weights()).__getitem__))
    assert all(torch.equal(restored[each], weight) for each, weight in meant.items())
    translator = regard.load(import_model(folder, tmp_path / "out"), device="cpu")
    assert translator.translate(RECORDED["sources"][0], max_tokens=20).text


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """Cut short, or with changed bytes in the header: a clear error, or the same model."""
    folder, _ = as_bin("ssru", tmp_path / "bin")
    npz = rewritten("ssru", tmp_path / "npz")
    generator = np.random.default_rng(0)
    for path in (folder / "model.bin", npz):
        content = path.read_bytes()
        for number in range(60):
            damaged = bytearray(content)
            if number % 3:
                limit = len(content) if path == npz else 4000
                for place in generator.integers(0, limit, 3):
                    damaged[place] = generator.integers(256)
            else:
                damaged = damaged[: generator.integers(len(content))]
            path.write_bytes(damaged)
            try:
                dict(read(path).weights())
            except ModelError:
                continue


def test_formats_of_one_cpu_are_refused(tmp_path: Path) -> None:
    write_bin(tmp_path / "model.bin", {"Wemb": (0x1101, (2, 2), bytes(8))})
    shutil.copy(DATA / "joint.spm", tmp_path / "vocab.spm")
    with pytest.raises(ModelError, match="only one kind of CPU"):
        read(tmp_path)


def test_vocabularies_in_yaml() -> None:
    text = '"</s>": 0\n<unk>: 1\n"a\\"b\\\\": 2\n\'it\'\'s\': 3\n'
    text += '"\\x41\\u00e9\\U0001F642": 4\n? "long"\n: 5\n":": 6\na: b: 7\n'
    pieces = ["</s>", "<unk>", 'a"b\\', "it's", "Aé🙂", "long", ":", "a: b"]
    assert read_vocabulary(text, "v.yml") == {piece: number for number, piece in enumerate(pieces)}
    for wrong in ('"a: 1', "a: x", "a: 1\na: 2", "? a", '"\\q": 1', '"\\ud800": 1', "a"):
        with pytest.raises(ModelError, match=r"v\.yml"):
            read_vocabulary(wrong, "v.yml")


def test_the_files_beside_a_model(tmp_path: Path) -> None:
    """A decoder.yml names the vocabularies and the search; without one, the names must be clear."""
    shutil.copy(DATA / "ssru.npz", tmp_path / "model.npz")
    with pytest.raises(ModelError, match=r"vocabularies of the model are unclear \(none\)"):
        read(tmp_path)
    shutil.copy(DATA / "joint.spm", tmp_path / "b.spm")
    assert read(tmp_path).info["search"] == {"beam": 4, "length_penalty": 1.0}
    shutil.copy(DATA / "joint.spm", tmp_path / "a.spm")
    with pytest.raises(ModelError, match="unclear"):
        read(tmp_path)
    (tmp_path / "decoder.yml").write_text(
        "models:\n  - /elsewhere/model.npz\nvocabs:\n  - /elsewhere/a.spm\n  - b.spm\nbeam-size: 6\nnormalize: 0.6\n"
    )
    assert read(tmp_path).info["search"] == {"beam": 6, "length_penalty": 0.6}
    assert {*read(tmp_path).info["imported"]["files"]} == {"model.npz", "decoder.yml", "a.spm", "b.spm"}
    (tmp_path / "decoder.yml").write_text("vocabs:\n  - a.spm\n  - b.spm\nword-penalty: 0.5\n")
    with pytest.raises(ModelError, match=r"word-penalty is 0\.5"):
        read(tmp_path)


def test_looking_inside(folder: Path, name: str) -> None:
    """Traces and recordings have the maps that the model has: an SSRU has none among the words of the target."""
    translator = regard.load(folder, device="cpu")
    trace = trace_text(translator, RECORDED["sources"][1], max_tokens=12)
    assert trace.maps.keys() == {"enc_self", "cross"} | ({"dec_self"} if name == "pre" else set())
    source = translator.read(RECORDED["sources"][1]).ids
    with regard.record(translator.model) as maps, torch.no_grad():
        translator.model(torch.tensor([source]), torch.tensor([[translator.special.start, 5, 6]]))
    assert any(layer.endswith("cross") for layer in maps)
    assert translator.align(RECORDED["sources"][1], RECORDED["targets"][1]).pairs
    options = {"stack": "encoder", "layer": 1, "token": 2, "head": 1}
    if name == "pre":
        with pytest.raises(UsageError, match="normalizes its input"):
            inside_block(translator, RECORDED["sources"][1], **options)
        return
    assert inside_block(translator, RECORDED["sources"][1], **options)["boxes"]
    with pytest.raises(UsageError, match="recurrent layer"):
        inside_block(translator, RECORDED["sources"][1], **{**options, "stack": "decoder", "layer": 0})
