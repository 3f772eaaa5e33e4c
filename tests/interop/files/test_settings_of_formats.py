"""No setting of any format is ignored: each either changes the import, is refused, or is listed here as harmless.

test_settings.py has the language models of Hugging Face, test_marian_files.py Marian's own models.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from random_models import SIZES, VOCABULARY, random_model
from small_encoders import make_encoder, put_around
from small_models import make_original, mutations
from small_translators import make_fairseq, make_marian, make_t5
from test_single_files import write_llama2c, write_nanogpt, write_tokens

from regard.errors import ModelError, RegardError
from regard.interop import export_model, read
from regard.interop.files.ctranslate2_file import CTranslate2File, scalar, write_file
from regard.interop.files.gguf_file import GGUFFile, write_gguf
from regard.models.config import TransformerConfig, TransformerLMConfig

# What has no effect on the outputs of a loaded model, by the documentation of transformers: training and bookkeeping.
HARMLESS = {
    *("dtype", "transformers_version", "use_cache", "initializer_range", "init_std", "initializer_factor"),
    *("output_attentions", "output_hidden_states", "return_dict", "id2label", "label2id", "problem_type"),
    *("_name_or_path", "_num_labels", "dropout", "dropout_rate", "attention_dropout", "activation_dropout"),
    *("encoder_layerdrop", "decoder_layerdrop", "classifier_dropout", "classif_dropout", "qa_dropout"),
    *("seq_classif_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "sinusoidal_pos_embds"),
}
# The start of a text comes from the tokenizer, or from decoder_start_token_id.
UNUSED_TOKENS = {"bos_token_id", "sep_token_id"}
# An encoder has no output layer, and no texts that end.
OF_DECODERS = {"tie_word_embeddings", "eos_token_id"}
# scale_decoder_outputs and the weights themselves say what tie_word_embeddings said once.
OF_T5 = {"n_positions", "tie_word_embeddings"}
MAX_LENGTH = {"max_length"}  # of a text that is written: what a user may choose
FOLDERS: dict[str, tuple[Callable[[Path], Any], set[str]]] = {
    "marian": (make_marian, set()),
    "marian-separate": (lambda folder: make_marian(folder, separate=True), set()),
    "m2m_100": (lambda folder: make_fairseq(folder, "m2m_100"), set()),
    "mbart": (lambda folder: make_fairseq(folder, "mbart"), set()),
    "t5": (make_t5, OF_T5),
    "flan-t5": (lambda folder: make_t5(folder, untied=True, feed_forward_proj="gated-gelu"), OF_T5),
    "bert": (lambda folder: make_encoder("bert", folder), OF_DECODERS),
    "roberta": (lambda folder: make_encoder("roberta", folder), OF_DECODERS),
}


def what_is_read(source: Path, **options: Any) -> Any:
    imported = read(source, **options)
    kept = {key: value for key, value in imported.info.items() if key != "imported"}
    table, tokenizers = imported.table, [tokenizer.save() for tokenizer in imported.tokenizers]
    return imported.config, kept, imported.notes, table.rows, [*table.excluded], tokenizers


def check_every_key(
    settings: dict[str, Any], write: Callable[[dict[str, Any]], None], source: Path, harmless: set[str]
) -> None:
    """Write each setting with other values, and the settings with an unknown key; read what is written."""
    write(settings)
    original = what_is_read(source)
    ignored = []
    for key, value in settings.items():
        for other in [] if key in harmless else mutations(value):
            try:
                write({**settings, key: other})
                if what_is_read(source) == original:
                    ignored.append(f"{key} = {other!r}")
            except (RegardError, struct.error):  # a number that the format cannot store
                continue
    assert ignored == []
    write({**settings, "unheard_of": 1})
    with pytest.raises(ModelError, match="unheard_of"):
        read(source)
    write(settings)


def check_file(path: Path, source: Path, harmless: set[str]) -> None:
    def write(settings: dict[str, Any]) -> None:
        path.write_text(json.dumps(settings), encoding="utf-8")

    check_every_key(json.loads(path.read_text(encoding="utf-8")), write, source, harmless)


@pytest.mark.parametrize("family", FOLDERS)
def test_folders_of_hugging_face(tmp_path: Path, family: str) -> None:
    make, harmless = FOLDERS[family]
    make(tmp_path / "m")
    known = HARMLESS | UNUSED_TOKENS | harmless
    generation = tmp_path / "m/generation_config.json"
    if generation.exists():
        check_file(generation, tmp_path / "m", {*known, *MAX_LENGTH})
        generation.unlink()  # which has precedence over the same keys in config.json
        path = tmp_path / "m/config.json"
        settings = json.loads(path.read_text())
        path.write_text(json.dumps({**settings, "eos_token_id": settings["eos_token_id"] or 0}))
    check_file(tmp_path / "m/config.json", tmp_path / "m", known)


def test_the_files_of_sentence_transformers(tmp_path: Path) -> None:
    make_encoder("bert", tmp_path / "m")
    modes = {f"pooling_mode_{name}": name == "mean_tokens" for name in ("mean_tokens", "cls_token", "max_tokens")}
    put_around(tmp_path / "m", pooling=modes)
    check_file(tmp_path / "m/1_Pooling/config.json", tmp_path / "m", set())
    check_file(tmp_path / "m/sentence_bert_config.json", tmp_path / "m", set())
    path = tmp_path / "m/config_sentence_transformers.json"
    settings = {"prompts": {"query": "q: "}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    path.write_text(json.dumps(settings))
    check_file(path, tmp_path / "m", set())


def test_marian_tokenizers(tmp_path: Path) -> None:
    make_marian(tmp_path / "m", separate=True)
    (tmp_path / "m/tokenizer_config.json").write_text(
        json.dumps({"separate_vocabs": True, "sp_model_kwargs": {}, "eos_token": "</s>", "unk_token": "<unk>"})
    )
    check_file(tmp_path / "m/tokenizer_config.json", tmp_path / "m", set())


def test_gguf(tmp_path: Path) -> None:
    llama = {"norm": "rms", "order": "pre", "position": "rotary", "activation": "swiglu", "bias": False, "kv_heads": 2}
    random_model(tmp_path / "ours", TransformerLMConfig(**{**SIZES, "layers": 1}, vocabulary=VOCABULARY, **llama))
    path = export_model(tmp_path / "ours", tmp_path / "model.gguf", to="gguf")
    file = GGUFFile(path)
    settings = dict(file.settings)
    weights = {name: (0, file.get(name).float().numpy()) for name in file.weights}  # 0: float32
    # The texts of tokens are read by the tests of tokenizers; the rest says what is in the file, not what it computes.
    harmless = {key for key in settings if key.startswith("general.") and key != "general.architecture"}
    harmless |= {"tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type"}
    # The texts of this model begin with no token; the end token after a text is for training and embeddings.
    harmless |= {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_eos_token"}

    def write(changed: dict[str, Any]) -> None:
        path.unlink(missing_ok=True)
        write_gguf(path, changed, weights)

    check_every_key(settings, write, path, harmless)
    for key, value in {
        "llama.rope.scaling.type": "longrope",
        "llama.rope.scaling.attn_factor": 2.0,
        "llama.attention.value_length": 7,
        "llama.rope.dimension_count": 2,
        "llama.expert_count": 2,
        "split.count": 2,
        "tokenizer.ggml.remove_extra_whitespaces": True,
    }.items():
        write({**settings, key: value})
        with pytest.raises(ModelError, match=key.rpartition(".")[2]):
            read(path)


def test_ctranslate2(tmp_path: Path) -> None:
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "share_embeddings": True}
    config = TransformerConfig(**{**SIZES, **sizes, "pad_id": 0, "end_ids": (3,), "tokenizer_size": 270})
    random_model(tmp_path / "ours", config)
    folder = export_model(tmp_path / "ours", tmp_path / "ct2", to="ct2")
    # No text of an encoder-decoder begins with bos_token; num_heads_kv in model.bin says what is computed.
    check_file(folder / "config.json", folder, {"bos_token", "multi_query_attention"})
    file = CTranslate2File(folder / "model.bin")
    arrays = {name: file.get(name) for name in file.arrays}
    scalars = [name for name, array in file.arrays.items() if not array.shape and "alignment" not in name]
    original = what_is_read(folder)
    for name in scalars:
        value = arrays[name].item()
        is_flag = arrays[name].dtype == torch.int8 and value in (0, 1)
        for other in (1 - value,) if is_flag else (value + 1, value + 3):
            changed = {**arrays, name: scalar(other, str(arrays[name].dtype).removeprefix("torch."))}
            write_file(folder / "model.bin", file.kind, file.revision, changed.items(), file.aliases)
            try:
                assert what_is_read(folder) != original, f"{name} = {other} changes nothing"
            except RegardError:
                continue
    write_file(
        folder / "model.bin", file.kind, file.revision, [*arrays.items(), ("encoder/unheard_of", scalar(1, "int8"))],
        file.aliases,
    )  # fmt: skip
    with pytest.raises(ModelError, match="unheard_of"):
        read(folder)


def test_nanogpt(tmp_path: Path) -> None:
    write_nanogpt(tmp_path, bias=True)
    path = tmp_path / "ckpt.pt"
    checkpoint = torch.load(path, weights_only=True)

    def write(settings: dict[str, Any]) -> None:
        torch.save({**checkpoint, "model_args": settings}, path)

    check_every_key(dict(checkpoint["model_args"]), write, path, {"dropout"})


def test_llama2c(tmp_path: Path) -> None:
    """The header is seven numbers: another one fits no file of this size, or changes the model."""
    model = make_original("llama", tmp_path / "hf", vocabulary_margin=30, attention_bias=False).model
    write_llama2c(tmp_path / "model.bin", model, version=1, tied=False)
    write_tokens(tmp_path / "tokenizer.bin")
    shutil.rmtree(tmp_path / "hf")
    path = tmp_path / "model.bin"
    content, original = path.read_bytes(), what_is_read(path)
    for offset in range(0, 4 * 9 + 1, 4):
        for change in (1, 2, 128):
            path.write_bytes(content[:offset] + bytes([content[offset] ^ change]) + content[offset + 1 :])
            try:
                assert what_is_read(path) != original, f"byte {offset} changes nothing"
            except RegardError:
                continue
