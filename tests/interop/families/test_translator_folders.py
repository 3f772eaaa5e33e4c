"""Folders of translation models: every key counts, and what does not fit together is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import mutations
from small_translators import make_fairseq, make_marian, make_t5

import regard
from regard.errors import ModelError, RegardError, UsageError
from regard.interop import import_model, read

HARMLESS = {
    *("dtype", "transformers_version", "use_cache", "init_std", "attention_dropout", "_name_or_path", "dropout"),
    *("output_attentions", "output_hidden_states", "return_dict", "id2label", "label2id", "problem_type"),
    *("activation_dropout", "encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "bos_token_id"),
    *("dropout_rate", "initializer_factor"),
}


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_marian(tmp_path_factory.mktemp("folder") / "marian", codes=True).folder


@pytest.fixture
def copied(marian: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(marian, tmp_path / "copied"))


MAKERS: dict[str, Any] = {
    "m2m_100": lambda folder: make_fairseq(folder, "m2m_100"),
    "mbart": lambda folder: make_fairseq(folder, "mbart"),
    "t5": make_t5,
    "flan-t5": lambda folder: make_t5(folder, untied=True, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}


@pytest.mark.parametrize("family", MAKERS)
def test_every_key_of_the_others_counts(family: str, tmp_path: Path) -> None:
    """In config.json, which also has the keys of generation_config.json."""
    folder = MAKERS[family](tmp_path / family).folder
    path, generation = folder / "config.json", folder / "generation_config.json"
    change(
        path, **{k: v for k, v in json.loads(generation.read_text()).items() if k not in ("max_length", "num_beams")}
    )
    generation.unlink()
    content = path.read_text(encoding="utf-8")
    original = what_is_read(folder)
    for key, value in json.loads(content).items():
        if key in HARMLESS | ({"tie_word_embeddings"} if "t5" in family else set()):
            continue  # T5's weights show whether the output has a matrix of its own
        for other in mutations(value):
            change(path, **{key: other})
            try:
                changed = what_is_read(folder)
            except RegardError:
                continue
            assert changed != original, f"{key} = {other!r} changes nothing"
        path.write_text(content, encoding="utf-8")
    change(path, unheard_of=1)
    with pytest.raises(ModelError, match="does not know the key 'unheard_of'"):
        read(folder)


def change(path: Path, **changes: Any) -> None:
    settings = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in {**settings, **changes}.items() if value is not ...}
    path.write_text(json.dumps(kept), encoding="utf-8")


def what_is_read(folder: Path) -> Any:
    imported = read(folder)
    entries = {key: value for key, value in imported.info.items() if key != "imported"}
    scales = [part.scale for row in imported.table.rows.values() for part in row.parts]
    return imported.config, entries, imported.notes, imported.table.excluded, scales


def test_every_key_counts(copied: Path) -> None:
    """In config.json, in generation_config.json and in the settings of the tokenizer."""
    for name in ("generation_config.json", "tokenizer_config.json", "config.json"):
        path = copied / name
        content = path.read_text(encoding="utf-8")
        original = what_is_read(copied)
        for key, value in json.loads(content).items():
            if key in HARMLESS | {"max_length", "model_max_length", "tokenizer_class"}:
                continue
            for other in mutations(value):
                change(path, **{key: other})
                try:
                    changed = what_is_read(copied)
                except RegardError:
                    continue
                assert changed != original, f"{name}: {key} = {other!r} changes nothing"
            path.write_text(content, encoding="utf-8")
        change(path, unheard_of=1)
        with pytest.raises(ModelError, match="does not know the key 'unheard_of'"):
            read(copied)
        path.write_text(content, encoding="utf-8")
        if name == "generation_config.json":
            path.unlink()  # it has precedence over config.json
            change(copied / "config.json", **{k: v for k, v in json.loads(content).items() if k != "max_length"})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("config.json", {"normalize_before": True}, "normalize_before is True"),
        ("config.json", {"decoder_attention_heads": 2}, "one number of heads"),
        ("config.json", {"d_model": 33}, "width|dim|heads"),
        ("generation_config.json", {"bad_words_ids": [[1, 2]]}, "lists of one token"),
        ("generation_config.json", {"no_repeat_ngram_size": 3}, "no_repeat_ngram_size is 3"),
        ("generation_config.json", {"forced_eos_token_id": 4}, "forced_eos_token_id is 4"),
        ("generation_config.json", {"decoder_start_token_id": 4000}, "token 4000 is none of"),
        ("vocab.json", {"</s>": 1}, "each once"),
        ("vocab.json", {"extra": 5000}, "each once"),
        ("tokenizer_config.json", {"separate_vocabs": True}, "target_vocab.json is missing"),
        ("tokenizer_config.json", {"eos_token": "<eos>"}, "has no token '<eos>'"),
    ],
)
def test_refusals_say_what_is_wrong(copied: Path, name: str, changes: dict[str, Any], message: str) -> None:
    change(copied / name, **changes)
    with pytest.raises(ModelError, match=message):
        read(copied)


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json", "config.json"])
def test_a_missing_or_damaged_file_is_named(copied: Path, name: str) -> None:
    content = (copied / name).read_bytes()
    (copied / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=name.split(".")[0]):
        read(copied)
    (copied / name).unlink()
    with pytest.raises(ModelError, match=name):
        read(copied)


def test_a_checkpoint_with_tables_that_differ_is_refused(copied: Path) -> None:
    """transformers#26216: such files were written, and their output is nonsense."""
    path = copied / "model.safetensors"
    weights = load_file(path)
    for name in ("lm_head.weight", "model.decoder.embed_tokens.weight"):
        save_file({**weights, name: weights["model.shared.weight"] + 1}, path)
        with pytest.raises(ModelError, match=r"are one matrix.*differ"):
            read(copied)
    save_file({**weights, "lm_head.weight": weights["model.shared.weight"].clone()}, path)
    read(copied)


def test_the_positions_of_marian_itself(copied: Path) -> None:
    """The last pair of Marian's sinusoids turns by 1/10000 for each position, and eps is smaller."""
    imported = read(copied, positions="original")
    position: Any = imported.model().source.position
    table = position.embed(torch.zeros(1, 3, 32), torch.arange(3))[0]
    frequencies = torch.tensor([10000 ** (-i / 15) for i in range(16)])
    torch.testing.assert_close(table[1], torch.cat([frequencies.sin(), frequencies.cos()]))
    assert imported.config.norm_eps == 1e-6
    with pytest.raises(UsageError, match="positions must be one of"):
        read(copied, positions="other")


def test_renormalized_probabilities_leave_out_what_is_barred(copied: Path, tmp_path: Path) -> None:
    change(copied / "generation_config.json", renormalize_logits=True)
    model = regard.load_model(import_model(copied, tmp_path / "out"))
    pad = model.config.pad_id
    with torch.no_grad():
        logps = model(torch.tensor([[5, 6, 0]]), torch.tensor([[pad, 5]])).log_softmax(-1)
    assert logps[..., pad].exp().max() == 0


def test_languages(copied: Path, tmp_path: Path) -> None:
    """A model for several languages translates into the one that is named, or that a text names."""
    folder = import_model(copied, tmp_path / "out")
    translator = regard.load(folder, device="cpu")
    code = translator.target_tokenizer.token(">>deu<<")
    assert translator.languages == ["deu", "eng"]
    with pytest.raises(UsageError, match="several languages: give the target language as target=…, one of deu, eng"):
        translator.translate("Le chat dort.")
    with pytest.raises(UsageError, match="unknown language 'fra'"):
        translator.translate("Le chat dort.", target="fra")
    with pytest.raises(UsageError, match="no codes for the source language"):
        translator.translate("Le chat dort.", source="fra")
    named = translator.translate("Le chat dort.", target="deu", max_tokens=8)
    coded = translator.translate(">>deu<<Le chat dort.", max_tokens=8)
    assert named.source_ids == coded.source_ids and named.source_ids[0] == code
    assert [word.text for word in named.source_words] == ["Le", "chat", "dort."]
    assert translator.between(target="eng").read("Le chat").ids[0] == translator.target_tokenizer.token(">>eng<<")
    long = ">>deu<<" + "Le chat dort. " * 4 + "\n" + "Il pleut, dit-elle. " * 5
    parts = translator.translate(long, max_tokens=5, guard=True).parts
    assert len(parts) > 1 and all(part.source_ids[0] == code for part in parts)
