"""Training starts from imported models: the loss is that of transformers, and the folder stays what the import was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_encoders import make_encoder, put_around
from small_models import make_original
from small_translators import ENGLISH, FRENCH, make_fairseq, make_marian, make_t5

import regard
from regard.errors import UsageError
from regard.interop import import_model
from regard.models.config import TransformerLMConfig
from regard.tasks.objective import objective
from regard.training.recipe.toml_file import read_recipe
from regard.training.run.prepare import prepare

TEXT = "The cat sat on the mat.\n\nLes élèves 🙂 sont allés\nà l'école.\n" * 9
NLLB = {"data.source_language": "fr", "data.target_language": "eng_Latn"}
MBART = {"data.source_language": "fr", "data.target_language": "en"}
MAKERS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "llama": (lambda folder: make_original("llama", folder), {}),
    "qwen2": (lambda folder: make_original("qwen2", folder), {}),
    "gpt2": (lambda folder: make_original("gpt2", folder), {}),  # padding is its end token
    "marian": (make_marian, {}),
    "marian-codes": (lambda folder: make_marian(folder, codes=True), {"data.target_language": "en"}),
    "marian-separate": (lambda folder: make_marian(folder, separate=True), {}),
    "m2m_100": (lambda folder: make_fairseq(folder, "m2m_100"), NLLB),
    "mbart": (lambda folder: make_fairseq(folder, "mbart", activation_function="gelu"), MBART),
    "t5": (make_t5, {}),
}
SETTINGS = {
    "training.steps": 4, "training.warmup": 1, "training.batch_tokens": 80, "training.lr": 1e-3,
    "training.validate_every": 4, "training.label_smoothing": 0.0, "decoding.sentences": 2,
}  # fmt: skip


def write_data(folder: Path, *, text: bool) -> Path:
    """Write a recipe and its data."""
    if text:
        (folder / "text.txt").write_text(TEXT, encoding="utf-8")
        data = 'text = ["text.txt"]\nvalidation = 60\ncontext = 16\n'
    else:
        for name, lines in (("a.txt", FRENCH), ("b.txt", ENGLISH)):
            (folder / name).write_text("\n".join(lines * 6) + "\n", encoding="utf-8")
        data = 'source = ["a.txt"]\ntarget = ["b.txt"]\nvalidation = 4\nmax_length = 30\n'
    (folder / "tune.toml").write_text(f'name = "tune"\n[data]\n{data}', encoding="utf-8")
    return folder / "tune.toml"


def their_loss(model: Any, batch: Any, pad: int | None) -> float:
    """The loss of transformers for the same texts; it shifts labels itself, and a label of -100 does not count."""
    labels = batch.labels.masked_fill(batch.labels == batch.ignored, -100)
    with torch.no_grad():
        if batch.source is None:
            logits = model(batch.inputs).logits
            return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))
        mask = (batch.source != pad).long()
        return float(model(input_ids=batch.source, attention_mask=mask, labels=labels).loss)


@pytest.mark.parametrize("family", MAKERS)
def test_training_on(family: str, tmp_path: Path) -> None:
    make, languages = MAKERS[family]
    original = make(tmp_path / "original")
    folder = import_model(original.folder, tmp_path / "imported")
    before = json.loads((folder / "config.json").read_text())
    recipe = write_data(tmp_path, text=before["kind"] == "transformer-lm")
    ready = prepare(read_recipe(recipe, {**SETTINGS, **languages}), folder=None, init=folder, say=lambda text: None)
    batch = next(ready.train.batches(0))
    ours = objective(ready.model)(ready.model, batch)
    expected = their_loss(original.model, batch, ready.model.config.pad_id)
    assert ours.tokens == int((batch.labels != batch.ignored).sum())
    assert ours.total.item() / ours.tokens == pytest.approx(expected, abs=2e-5 * max(1.0, expected))
    run = regard.train(recipe, out=tmp_path / "run", init=folder, overrides={**SETTINGS, **languages}, quiet=True)
    after = json.loads((run.folder / "config.json").read_text())
    assert {key: after["model"].get(key) for key in before["model"]} == before["model"]
    kept = before.keys() - {"kind", "model", "storage", "versions", "language_codes"}
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    for path in folder.glob("*.json"):
        if "config" not in path.name and "manifest" not in path.name:
            assert (run.folder / path.name).read_bytes() == path.read_bytes()
    tuned = run.load(device="cpu")
    assert "the imported model" in (run.folder / "README.md").read_text()
    if isinstance(tuned.model.config, TransformerLMConfig):
        assert tuned.perplexity(TEXT).loss < regard.load(folder, device="cpu").perplexity(TEXT).loss
        return
    fresh = regard.load(folder, device="cpu")
    if languages:
        fresh = fresh.between(languages.get("data.source_language"), languages["data.target_language"])
    scores = [translator.score(FRENCH[0], ENGLISH[0]).score for translator in (fresh, tuned)]
    assert scores[1] > scores[0]  # without naming the languages again


def test_a_document_is_tokenized_as_a_whole(tmp_path: Path) -> None:
    """As the tokenizer of the original does: spaces before a line break belong to the same token as the break."""
    import transformers

    original = make_original("llama", tmp_path / "original")
    folder = import_model(original.folder, tmp_path / "imported")
    ready = prepare(
        read_recipe(write_data(tmp_path, text=True), SETTINGS), folder=None, init=folder, say=lambda text: None
    )
    theirs = transformers.AutoTokenizer.from_pretrained(original.folder)
    text = ready.corpora.train.source[0]
    ids = theirs(text, add_special_tokens=False)["input_ids"]
    data: Any = ready.train
    assert data._inputs.tolist() == [ready.model.config.start_id, *ids]
    assert data._labels.tolist() == [*ids, ready.model.config.end_ids[0]]
    assert data.location(0, 0).endswith("text.txt:1")


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_encoders(family: str, tmp_path: Path) -> None:
    """Both sides of a pair are read as transformers reads them, and training brings them together."""
    make_encoder(family, tmp_path / "original")
    put_around(tmp_path / "original", pooling={"pooling_mode_cls_token": True}, limit=24)
    folder = import_model(tmp_path / "original", tmp_path / "imported")
    words = [a + b + c for a in "abc" for b in "def" for c in "ghi"]
    pairs = [(word, " ".join(word[::-1])) for word in words]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    recipe = tmp_path / "tune.toml"
    recipe.write_text('name = "tune"\n[data]\npairs = ["pairs.tsv"]\nvalidation = 4\n[model]\nkind = "encoder"\n')
    embedder = regard.load(folder, device="cpu")
    settings = {**SETTINGS, "training.temperature": 0.5, "training.steps": 30, "training.validate_every": 30}
    del settings["training.label_smoothing"], settings["decoding.sentences"]
    ready = prepare(read_recipe(recipe, settings), folder=None, init=folder, say=lambda text: None)
    batch = next(ready.train.batches(0))
    corpus, pad = ready.corpora.train, embedder.model.config.pad_id
    for texts, side in ((corpus.source, batch.source), (corpus.target, batch.labels)):
        read = [[token for token in tokens if token != pad] for tokens in side.tolist()]
        assert read == [embedder.token_ids(texts[i]) for i in batch.ids]
    run = regard.train(recipe, out=tmp_path / "run", init=folder, overrides=settings, quiet=True)
    tuned = run.load(device="cpu")
    assert (tuned.before, tuned.after, tuned.max_tokens) == (embedder.before, embedder.after, 24)
    assert (tuned.model.config.pooling, tuned.model.config.normalize) == ("first", True)

    def gap(model: Any) -> float:
        scores = model.similarity([a for a, _ in pairs], [b for _, b in pairs])
        return float(scores.diagonal().mean() - scores.mean())

    assert gap(tuned) > gap(embedder) + 0.05


def test_a_run_is_resumed_and_tuned_again(tmp_path: Path) -> None:
    original = make_marian(tmp_path / "original")
    (original.folder / "LICENSE").write_text("Anyone may use this model.")
    folder = import_model(original.folder, tmp_path / "imported", storage="bfloat16")
    recipe = write_data(tmp_path, text=False)
    once = regard.train(recipe, out=tmp_path / "once", init=folder, overrides=SETTINGS, quiet=True)
    more = {**SETTINGS, "training.steps": 8}
    regard.train(recipe, out=tmp_path / "two", init=folder, overrides=SETTINGS, quiet=True)
    twice = regard.train(recipe, out=tmp_path / "two", init=folder, overrides=more, quiet=True)
    again = regard.train(recipe, out=tmp_path / "again", init=once.folder, overrides=SETTINGS, quiet=True)
    for run in (twice, again):
        translator = run.load(device="cpu")
        assert translator.info["search"] == regard.load(folder).info["search"]
        assert translator.score(FRENCH[0], ENGLISH[0]).score > once.load().score(FRENCH[0], ENGLISH[0]).score
        assert "Anyone may use this model." in (run.folder / "README.md").read_text()
    assert again.load().info["imported"] == regard.load(folder).info["imported"]


def test_defaults_and_dropout(tmp_path: Path) -> None:
    """An imported model takes small steps, and few; dropout may differ from that of the folder."""
    folder = import_model(make_marian(tmp_path / "original").folder, tmp_path / "imported")
    recipe = write_data(tmp_path, text=False)
    ready = prepare(read_recipe(recipe, {"model.dropout": 0.2}), folder=None, init=folder, say=lambda text: None)
    assert ready.recipe.training.lr == 5e-5
    assert ready.model.config.dropout == 0.2
    assert {module.p for module in ready.model.modules() if isinstance(module, torch.nn.Dropout)} <= {0.2, 0.0}
    assert torch.equal(ready.model.source.embedding.weight, regard.load_model(folder).source.embedding.weight)


def test_refusals(tmp_path: Path) -> None:
    folder = import_model(make_fairseq(tmp_path / "original", "m2m_100").folder, tmp_path / "imported")
    recipe = write_data(tmp_path, text=False)

    def start(**settings: Any) -> None:
        prepare(read_recipe(recipe, {**SETTINGS, **settings}), folder=None, init=folder, say=lambda text: None)

    with pytest.raises(UsageError, match=r"several languages.*data\.source_language and data\.target_language"):
        start()
    with pytest.raises(UsageError, match="unknown language 'tlh'"):
        start(**{**NLLB, "data.target_language": "tlh"})
    with pytest.raises(UsageError, match="placeholders needs regard's own tokenizers"):
        start(**{**NLLB, "data.placeholders": True})
    with pytest.raises(UsageError, match="join needs subword tokenizers of regard"):
        start(**{**NLLB, "data.join": 0.5})
    (tmp_path / "text").mkdir()
    with pytest.raises(UsageError, match="learns from pairs, or source and target, but the data is given as text"):
        prepare(read_recipe(write_data(tmp_path / "text", text=True)), folder=None, init=folder, say=lambda text: None)
