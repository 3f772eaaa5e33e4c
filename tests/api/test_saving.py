"""Save what regard.load returns, and load it again: the same outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.api.ensemble import join_translators
from regard.errors import UsageError
from regard.models.config import TransformerConfig, TransformerLMConfig
from regard.models.presets import make_model
from regard.text.tokenizers.characters import train_characters

SIZES: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 2, "hidden": 24}


@pytest.fixture(scope="module")
def shipped() -> Any:
    return regard.load("fr-en", device="cpu")


def test_a_fine_tuned_translator_is_saved_with_everything(shipped: Any, tmp_path: Path) -> None:
    translator = regard.Translator(shipped.model, shipped.source_tokenizer, shipped.target_tokenizer, info=shipped.info)
    with torch.no_grad():
        shipped.model.decoder.norm.weight.mul_(1.01)
    texts = ["Jane visite l'Afrique en septembre", "Zoé Krzysztof dort."]
    folder = translator.save(tmp_path / "mine")
    loaded: Any = regard.load(folder, device="cpu")
    for before, after in zip(translator.translate(texts), loaded.translate(texts), strict=True):
        assert (before.text, pytest.approx(before.score, abs=1e-4)) == (after.text, after.score)
        assert before.alignment().pairs == after.alignment().pairs
    reserved = {"versions", "storage"}
    assert {name: value for name, value in loaded.info.items() if name not in reserved} == {
        name: value for name, value in shipped.info.items() if name not in reserved
    }
    for name, weight in shipped.model.state_dict().items():
        assert torch.equal(weight, loaded.model.state_dict()[name])
    assert translator.save(folder, storage="int8") == folder  # replaces the folder


def test_own_model_and_tokenizers(tmp_path: Path) -> None:
    torch.manual_seed(1)
    source, target = train_characters(["abcdefgh"]), train_characters(["stuvw"])
    config = TransformerConfig(source_vocabulary=source.size, target_vocabulary=target.size, **SIZES)
    translator = regard.Translator(make_model(config).eval(), source, target)
    loaded: Any = regard.load(translator.save(tmp_path / "translator"), device="cpu")
    assert loaded.translate("abc", guard=False).text == translator.translate("abc", guard=False).text
    assert loaded.source_tokenizer.save() == source.save() and loaded.target_tokenizer.save() == target.save()

    lm = TransformerLMConfig(vocabulary=source.size, **SIZES)
    writer = regard.Writer(make_model(lm).eval(), source, info={"context": 32})
    again: Any = regard.load(writer.save(tmp_path / "writer"), device="cpu")
    assert again.write("ab", search=regard.Greedy(), max_tokens=8) == writer.write(
        "ab", search=regard.Greedy(), max_tokens=8
    )
    assert again.context == 32

    encoder = regard.make_model(regard.EncoderConfig(vocabulary=source.size, **SIZES)).eval()
    embedder = regard.Embedder(encoder, source)
    vectors: Any = regard.load(embedder.save(tmp_path / "embedder"), device="cpu")
    # A loaded embedder has packed weights; as one of the same modules, it gives the same bits.
    torch.testing.assert_close(vectors.embed(["abc", "de"]), embedder.embed(["abc", "de"]), rtol=1e-5, atol=1e-6)
    unpacked = regard.Embedder(vectors.model, source)
    assert torch.equal(unpacked.embed(["abc", "de"]), embedder.embed(["abc", "de"]))

    regard.save_model(translator.model, tmp_path / "pair", tokenizer=(source, target))
    model = translator.model
    pair: Any = regard.load(tmp_path / "pair", device="cpu")
    assert pair.translate("abc", guard=False).text == loaded.translate("abc", guard=False).text
    with pytest.raises(UsageError, match="the tokenizer has 12 tokens, but target_vocabulary of the model is 9"):
        regard.save_model(model, tmp_path / "m", tokenizer=source)
    with pytest.raises(UsageError, match="as tokenizer= or as files=, not both"):
        regard.save_model(model, tmp_path / "m", tokenizer=(source, target), files={})
    with pytest.raises(UsageError, match="one of regard's tokenizers, got str"):
        regard.save_model(model, tmp_path / "m", tokenizer="characters.json")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="info may not contain 'kind', 'model', 'versions'"):
        regard.save_model(model, tmp_path / "m", info={"kind": 1, "model": 2, "versions": 3})


def test_what_cannot_be_saved(shipped: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Ensemble"):
        join_translators([shipped, shipped]).save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_rounded_weights_stay_rounded(tmp_path: Path) -> None:
    rounded: Any = regard.load("fr-en", dtype="int8")
    loaded: Any = regard.load(rounded.save(tmp_path / "m", storage="int8"), dtype="int8")
    tokens = torch.randint(4, 500, (2, 7))
    with torch.no_grad():
        assert torch.equal(loaded.model(tokens, tokens), rounded.model(tokens, tokens))
