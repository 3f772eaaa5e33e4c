"""`load`: the right face for each kind of model, from a folder or by a shipped name, and what the errors say."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.api import model_names as finding
from regard.api.embedder import Embedder
from regard.api.model_names import shipped_models
from regard.api.translator import Translator
from regard.api.writer import Writer
from regard.errors import ModelError, UsageError
from regard.machine import find_device
from regard.models.folder import save_model
from regard.models.presets import make_model
from regard.tasks.loading import load, wrap_model
from regard.text.tokenizers.subwords import SubwordTokenizer

TEXT = "le chat noir dort"


def test_a_translator_comes_back_as_it_was(translator: Translator, folder_of: Callable[..., Path]) -> None:
    folder = folder_of(translator, alignment={"layer": "decoder.0.cross", "head": 1})
    loaded = load(folder)
    assert isinstance(loaded, Translator) and loaded.info["alignment"]["head"] == 1
    assert loaded.translate(TEXT, max_tokens=6).ids == translator.translate(TEXT, max_tokens=6).ids
    assert loaded.source_tokenizer is loaded.target_tokenizer is loaded.tokenizer
    assert next(loaded.model.parameters()).dtype == torch.float32 and not loaded.model.training


def test_two_tokenizers(
    translator_of: Callable[..., Translator], folder_of: Callable[..., Path], pieces: object, lossless: object
) -> None:
    big = translator_of(tokenizer=lossless)
    both = Translator(big.model, pieces, lossless)  # type: ignore[arg-type]
    loaded = load(str(folder_of(both)))
    assert loaded.translate(TEXT, max_tokens=6).ids == both.translate(TEXT, max_tokens=6).ids
    assert loaded.source_tokenizer.size != loaded.target_tokenizer.size


def test_writers_and_embedders(
    writer_of: Callable[..., Writer], embedder: Embedder, folder_of: Callable[..., Path]
) -> None:
    writer = load(folder_of(writer_of(context=16), "writer"))
    assert isinstance(writer, Writer) and writer.context == 16
    assert isinstance(load(folder_of(writer_of("rnn-lm"), "recurrent")), Writer)
    loaded = load(folder_of(embedder, "embedder"))
    assert isinstance(loaded, Embedder)
    torch.testing.assert_close(loaded.embed(TEXT), embedder.embed(TEXT))


def test_shipped_names(
    writer_of: Callable[..., Writer],
    embedder: Embedder,
    folder_of: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder of that name here wins over a shipped model."""
    shipped = tmp_path / "shipped"
    shutil.copytree(folder_of(writer_of()), shipped / "plays")
    (shipped / "unfinished").mkdir()
    monkeypatch.setattr(finding, "SHIPPED", shipped)
    monkeypatch.chdir(tmp_path)
    assert shipped_models() == ["plays"]
    assert isinstance(load("plays"), Writer)
    shutil.copytree(folder_of(embedder), tmp_path / "plays")
    assert isinstance(load("plays"), Embedder)
    with pytest.raises(ModelError, match=r"no model 'play': there is no folder .*play, and no .* \(shipped: plays\)"):
        load("play")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="file is a file, not a folder"):
        load(tmp_path / "file")


def test_a_name_cannot_climb_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "SHIPPED", tmp_path / "shipped")
    with pytest.raises(ModelError, match="shipped: none"):
        load("../elsewhere")


def test_damaged_folders(translator: Translator, folder_of: Callable[..., Path]) -> None:
    folder = folder_of(translator)
    with pytest.raises(ModelError, match="not a model folder"):
        load(folder.parent)
    (folder / "tokenizer.model").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.model: listed in the manifest, but missing"):
        load(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["tokenizer.model"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="contains no tokenizer"):
        load(folder)
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 3}))
    with pytest.raises(ModelError, match="reads formats up to 2: update regard"):
        load(folder)


def test_a_tokenizer_that_does_not_fit_is_told_with_the_folder(
    translator_of: Callable[..., Translator], folder_of: Callable[..., Path], lossless: object
) -> None:
    translator = translator_of()
    translator.source_tokenizer = translator.target_tokenizer = lossless  # type: ignore[assignment]
    folder = folder_of(translator)
    with pytest.raises(ModelError, match=f"^{folder}: the source tokenizer has"):
        load(folder)


def test_a_target_tokenizer_that_is_too_small(
    translator_of: Callable[..., Translator], writer_of: Callable[..., Writer], pieces: object, lossless: object
) -> None:
    """The model could write a token that has no text; a source that never comes is harmless."""
    big = translator_of(tokenizer=lossless).model
    Translator(big, pieces, lossless)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"the target tokenizer has only \d+ tokens, but the model \d+"):
        Translator(big, lossless, pieces)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"the tokenizer has \d+ tokens, but the model \d+"):
        Writer(writer_of().model, pieces)  # type: ignore[arg-type]


def test_a_model_with_one_vocabulary_and_two_tokenizers(writer_of: Callable[..., Writer], letters: object) -> None:
    writer = writer_of()
    with pytest.raises(ModelError, match="two tokenizers, but a model of kind 'transformer-lm' has one vocabulary"):
        wrap_model(writer.model, writer.tokenizer, letters, info={})  # type: ignore[arg-type]


def test_another_padding(translator_of: Callable[..., Translator], folder_of: Callable[..., Path]) -> None:
    translator = translator_of()
    config = dataclasses.replace(translator.model.config, pad_id=5)
    folder = folder_of(Translator(make_model(config), translator.source_tokenizer, translator.target_tokenizer))
    with pytest.raises(ModelError, match=f"^{folder}: the model uses token 5 for padding, but the tokenizers use 0"):
        load(folder)


def test_a_tokenizer_far_larger_than_the_model_is_not_even_read(
    translator_of: Callable[..., Translator], folder_of: Callable[..., Path], pieces: SubwordTokenizer
) -> None:
    translator = translator_of()
    large = pieces.save()[1] * 20
    folder = save_model(translator.model, folder_of(translator).parent / "large", files={"tokenizer.model": large})
    with pytest.raises(
        ModelError, match=rf"tokenizer\.model: larger than .* too large for a tokenizer with {pieces.size} tokens"
    ):
        load(folder)


def test_dtypes_and_devices(translator_of: Callable[..., Translator], folder_of: Callable[..., Path]) -> None:
    folder = folder_of(translator_of())
    for dtype, wanted in (("float64", torch.float64), (torch.bfloat16, torch.bfloat16), ("auto", torch.float32)):
        loaded = load(folder, device="cpu", dtype=dtype)
        assert next(loaded.model.parameters()).dtype == wanted
        assert loaded.translate(TEXT, beam=1, max_tokens=3).ids
    with pytest.raises(UsageError, match="unknown dtype 'float46'; did you mean 'float64'"):
        load(folder, dtype="float46")
    with pytest.raises(UsageError, match="dtype must be one of"):
        load(folder, dtype=torch.int8)
    with pytest.raises(UsageError, match="unknown device 'gpu'"):
        load(folder, device="gpu")
    with pytest.raises(UsageError, match="there is no device 'cuda:99' on this machine"):
        load(folder, device="cuda:99")
    assert find_device("auto").type in ("cpu", "cuda", "mps") and find_device(torch.device("cpu")).type == "cpu"
