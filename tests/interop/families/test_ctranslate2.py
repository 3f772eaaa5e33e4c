"""Folders of CTranslate2 and packages of Argos Translate: our own come back bit for bit, those of its converter compute
and write what CTranslate2 does."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from ctranslate2.converters import TransformersConverter
from random_models import SIZES, VOCABULARY, random_model
from small_translators import TEXTS, make_marian

import regard
from regard.api.model_names import SHIPPED
from regard.errors import ModelError
from regard.interop import export_model, import_model, read
from regard.interop.files.ctranslate2_file import CTranslate2File, scalar, write_file
from regard.models.config import TransformerConfig, TransformerLMConfig

OPTIONS: dict[str, dict[str, Any]] = {
    "post": {"order": "post", "share_embeddings": True, "decoder_layers": 1, "norm_eps": 1e-3},
    "llama": {"order": "pre", "norm": "rms", "bias": False, "activation": "swiglu", "position": "rotary",
              "d_k": 6, "d_v": 6},
    "learned": {"position": "learned", "max_length": 40, "input_norm": True, "activation": "gelu", "tie_output": False},
    "none": {"position": "none", "output_bias": True, "activation": "silu", "bias": False, "order": "pre",
             "qkv_bias": True},
    "halves": {"position_layout": "halves", "position_start": 2, "activation": "gelu-tanh", "scale_embedding": False},
}  # fmt: skip
LM_OPTIONS: dict[str, dict[str, Any]] = {
    "grouped": {"position": "rotary", "kv_heads": 2, "norm": "rms", "bias": False, "order": "pre", "rope_base": 500.0},
    "qk_norm": {"position": "rotary", "qk_norm": True, "norm_eps": 1e-5, "order": "pre", "rope_fraction": 0.5},
}
SPECIAL = {"pad_id": 0, "end_ids": (3,), "tokenizer_size": 270}


@pytest.mark.parametrize("storage", ["float32", "int8"])
@pytest.mark.parametrize("options", [*OPTIONS, *LM_OPTIONS])
def test_the_way_there_and_back(tmp_path: Path, options: str, storage: str) -> None:
    """An export, its import, and the export of that: the same model.bin, byte for byte."""
    if options in OPTIONS:
        sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY}
        config: Any = TransformerConfig(**{**SIZES, **sizes, **SPECIAL, **OPTIONS[options]})
    else:
        config = TransformerLMConfig(**SIZES, vocabulary=VOCABULARY, **SPECIAL, **LM_OPTIONS[options])
    model = random_model(tmp_path / "ours", config)
    first = export_model(tmp_path / "ours", tmp_path / "first", to="ct2", storage=storage)
    back = import_model(first, tmp_path / "back")
    second = export_model(back, tmp_path / "second", to="ct2", storage=storage)
    if storage == "float32":
        assert (first / "model.bin").read_bytes() == (second / "model.bin").read_bytes()
    files = [CTranslate2File(folder / "model.bin") for folder in (first, second)]
    assert files[0].arrays == files[1].arrays and files[0].aliases == files[1].aliases
    for name in files[0].arrays:
        one, other = (file.get(name) for file in files)  # the last bit of the scale of an int8 weight may differ
        torch.testing.assert_close(one, other, atol=0, rtol=0 if storage == "float32" else 1e-6)
    restored = regard.load_model(back).state_dict()
    for name, weight in model.state_dict().items():
        tolerance = 0 if storage == "float32" else weight.abs().max().item() / 100
        torch.testing.assert_close(restored[name], weight, atol=tolerance, rtol=0)


@pytest.mark.parametrize("model", ["fr-en", "lecture"])
def test_shipped_models_come_back(tmp_path: Path, model: str) -> None:
    """With their own tokenizer, so the settings and the texts are the same, too."""
    back = regard.load(import_model(export_model(SHIPPED / model, tmp_path / "ct2", to="ct2"), tmp_path / "back"))
    original = regard.load(model)
    for name, weight in original.model.state_dict().items():
        assert torch.equal(back.model.state_dict()[name], weight)
    assert back.translate("Il fait beau.").text == original.translate("Il fait beau.").text


@pytest.mark.parametrize("quantization", [None, "float16", "int8"])
def test_a_folder_of_the_converter(tmp_path: Path, quantization: str | None) -> None:
    """OPUS-MT through CTranslate2's own converter, with the sentencepiece models put into the folder."""
    make_marian(tmp_path / "marian")
    converter = TransformersConverter(str(tmp_path / "marian"), copy_files=["source.spm", "target.spm"])
    converter.convert(str(tmp_path / "ct2"), quantization=quantization)
    writer = regard.load(import_model(tmp_path / "ct2", tmp_path / "ours"), device="cpu", dtype="float32")
    theirs = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    for text in TEXTS:
        ids = writer.read(text).ids
        names = writer.source_tokenizer.pieces(ids)
        target = [5, 9, 12, 20]
        (scored,) = theirs.score_batch([names], [writer.tokenizer.pieces(target)])
        with torch.no_grad():
            start, end = writer.model.config.start_id, writer.model.config.end_ids[0]
            logits = writer.model(torch.tensor([ids]), torch.tensor([[start, *target]]))[0]
        expected = logits.log_softmax(-1).gather(1, torch.tensor([[*target, end]]).T)[:, 0]
        assert scored.log_probs == pytest.approx(expected.tolist(), abs=1e-4 if quantization is None else 2e-2)


def test_a_package(tmp_path: Path) -> None:
    """An argosmodel becomes a translator that searches as Argos Translate does."""
    package = export_model(SHIPPED / "fr-en", tmp_path / "fr_en.argosmodel", to="argos", storage="float32")
    ours = regard.load(import_model(package, tmp_path / "ours"), device="cpu", dtype="float32")
    assert ours.info["languages"] == {"source": "fr", "target": "en"}
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.glob("translate-*")
    theirs = ctranslate2.Translator(str(folder / "model"), compute_type="float32")
    search = regard.Beam(4, length_penalty=0.2, patience=None)
    for text in ("Il fait beau aujourd'hui.", "Je ne sais pas où il est.", "Nous avons mangé du pain."):
        written = ours.translate(text, search=search)
        (result,) = theirs.translate_batch([written.source_tokens[:-1]], beam_size=4, length_penalty=0.2)
        assert result.hypotheses[0] == written.tokens[:-1]


def changed(folder: Path, out: Path, *, arrays: Any = None, settings: Any = None) -> Path:
    """Copy a folder with other attributes or settings."""
    shutil.copytree(folder, out)
    if settings:
        path = out / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    if arrays:
        file = CTranslate2File(folder / "model.bin")
        content = {name: file.get(name) for name in file.arrays} | arrays
        write_file(out / "model.bin", file.kind, file.revision, content.items(), file.aliases)
    return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"something": 1}}, "does not know the key 'something'"),
        ({"settings": {"quantization_type": 1}}, "quantization_type is 1"),
        ({"settings": {"eos_token": "nothing"}}, "no eos_token 'nothing'"),
        ({"arrays": {"encoder/something": scalar(3, "int8")}}, "encoder/something is 3"),
        ({"arrays": {"encoder/num_heads": scalar(3, "int16")}}, "does not split"),
        ({"arrays": {"decoder/num_heads": scalar(2, "int16")}}, "decoder/num_heads is 2"),
        ({"arrays": {"decoder/alibi": scalar(1, "int8")}}, "decoder/alibi is 1"),
        ({"arrays": {"encoder/extra/weight": torch.zeros(2, 2)}}, "'encoder/extra/weight' belongs to no part"),
        ({"arrays": {"encoder/layer_0/self_attention/relative_position_keys": torch.zeros(2, 2)}}, "does not import"),
    ],
)
def test_what_is_not_known_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    export_model(SHIPPED / "lecture", tmp_path / "ct2", to="ct2")
    with pytest.raises(ModelError, match=message):
        read(changed(tmp_path / "ct2", tmp_path / "changed", **change))


def test_missing_and_hostile_files(tmp_path: Path) -> None:
    folder = export_model(SHIPPED / "lecture", tmp_path / "ct2", to="ct2")
    (folder / "sentencepiece.model").unlink()
    with pytest.raises(ModelError, match="its tokenizer is missing"):
        read(folder)
    (folder / "shared_vocabulary.json").unlink()
    with pytest.raises(ModelError, match=r"no shared_vocabulary\.json"):
        read(folder)
    with zipfile.ZipFile(tmp_path / "bad.argosmodel", "w") as archive:
        archive.writestr("a/metadata.json", "{}")
        archive.writestr("a/../../outside", "x")
    with pytest.raises(ModelError, match="is no file of a package"):
        read(tmp_path / "bad.argosmodel")
