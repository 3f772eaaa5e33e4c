"""GGUF files written by llama.cpp's own package: numbers, weights, tokens, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import sentencepiece
import torch
from small_models import TEXTS, make_original

import regard
from regard.errors import ModelError
from regard.interop import import_model, read
from regard.interop.files.gguf_blocks import QUANTIZED, to_q8_0
from regard.interop.single_files.byte_pairs import scored_tokenizer

KINDS = gguf.GGMLQuantizationType
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.layers": "blk",
}


def write_gguf(path: Path, original: Any, *, kind: gguf.GGMLQuantizationType = KINDS.F32, **extra: Any) -> None:
    """Write a model of transformers as llama.cpp's converter does."""
    config, family = original.model.config, original.model.config.model_type
    writer = gguf.GGUFWriter(path, family)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if family == "qwen3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    library = original.tokenizer
    tokens = sorted(library.get_vocab(), key=library.get_vocab().get)
    tokens += [f"[PAD{i}]" for i in range(config.vocab_size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (len(tokens) - 1))
    writer.add_token_merges(original.merges)
    writer.add_eos_token_id(0)
    for name, value in extra.items():
        key = name.replace("__", ".")
        getattr(
            writer,
            f"add_{type(value).__name__.replace('str', 'string').replace('int', 'uint32').replace('float', 'float32')}",
        )(key, value)
    for name, weight in original.model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        numbers = weight.numpy()
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            numbers = numbers.reshape(heads, 2, -1, *numbers.shape[1:]).swapaxes(1, 2).reshape(numbers.shape)
        for theirs, short in NAMES.items():
            name = name.replace(theirs, short)
        if numbers.ndim == 2 and kind != KINDS.F32 and numbers.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0:
            writer.add_tensor(name, gguf.quantize(numbers, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, np.ascontiguousarray(numbers))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Original:
    """A random model of transformers with its tokenizer."""

    def __init__(self, family: str, folder: Path, **settings: Any) -> None:
        from tokenizers import Tokenizer

        self.model, self.folder = make_original(family, folder, **settings)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        import json

        merges = json.loads(self.tokenizer.to_str())["model"]["merges"]
        self.merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_logits_and_tokens(tmp_path: Path, family: str) -> None:
    settings = {"attention_bias": False} if family == "llama" else {}
    original = Original(family, tmp_path / "original", **settings)
    write_gguf(tmp_path / "model.gguf", original)
    folder = import_model(tmp_path / "model.gguf", tmp_path / "ours")
    model, writer = regard.load_model(folder), regard.load(folder, device="cpu")
    tokens = torch.randint(0, 270, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = original.model(tokens).logits
        torch.testing.assert_close(model(tokens), expected, atol=1e-6 * float(expected.abs().max()), rtol=0)
    for text in TEXTS:
        assert writer.tokenizer.encode(text) == original.tokenizer.encode(text).ids
    assert "model.gguf" in (folder / "README.md").read_text()


@pytest.mark.parametrize("kind", [KINDS.Q8_0, KINDS.Q4_0, KINDS.F16, KINDS.BF16])
def test_quantized_weights(tmp_path: Path, kind: gguf.GGMLQuantizationType) -> None:
    """The numbers are those that llama.cpp's package gives, and keep their type where there is one."""
    original = Original("llama", tmp_path / "original", attention_bias=False, hidden_size=32, intermediate_size=64)
    write_gguf(tmp_path / "model.gguf", original, kind=kind)
    imported = read(tmp_path / "model.gguf")
    assert imported.storage == {KINDS.F16: "float16", KINDS.BF16: "bfloat16"}.get(kind, "float32")
    ours = dict(imported.weights())
    reader = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    for ours_name, theirs_name in (
        ("input.embedding.weight", "token_embd.weight"),
        ("decoder.blocks.1.feed_forward.down.weight", "blk.1.ffn_down.weight"),
    ):
        tensor = reader[theirs_name]
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(ours[ours_name].float().numpy(), expected.reshape(ours[ours_name].shape))


@pytest.mark.parametrize("number", QUANTIZED)
def test_blocks(number: int) -> None:
    """Random bytes of each type, with scales that are finite."""
    name, count, size, dequantize = QUANTIZED[number]
    kind = KINDS(number)
    assert kind.name == name and gguf.GGML_QUANT_SIZES[kind] == (count, size)
    blocks = np.random.default_rng(number).integers(0, 256, (40, size), dtype=np.uint8)
    for at in range(size - 1):  # no float16 is infinite, wherever it lies
        wide = (blocks[:, at + 1] & 0x7C) == 0x7C
        blocks[wide, at + 1] &= 0x83
    np.testing.assert_array_equal(dequantize(blocks), gguf.dequantize(blocks, kind))


def test_q8_0_is_written_as_theirs() -> None:
    numbers = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    numbers[0] = 0
    theirs = gguf.quantize(numbers, KINDS.Q8_0)
    np.testing.assert_array_equal(to_q8_0(numbers).reshape(theirs.shape), theirs)


def test_tokens_of_sentencepiece(tmp_path: Path) -> None:
    """A BPE of sentencepiece with bytes, as Llama 2 has it, against sentencepiece itself."""
    text = tmp_path / "text.txt"
    lines = (Path(regard.__file__).parents[1] / "LICENSE").read_text().splitlines()
    text.write_text("\n".join(lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "spm"), vocab_size=600, model_type="bpe", byte_fallback=True,
        character_coverage=0.99, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
    )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    tokens = [theirs.id_to_piece(i) for i in range(theirs.get_piece_size())]
    scores = [theirs.get_score(i) for i in range(len(tokens))]
    ours = scored_tokenizer(tokens, scores, unknown=0, special=(1, 2), before=(1,))
    for line in [*lines, "Les élèves 🙂", "a  b", " x", "日本"]:
        assert ours.encode(line) == theirs.encode(line), line
        assert ours.decode(theirs.encode(line)) == line
    assert ours.frame() == ([1], [])


def test_llama_3_scaling(tmp_path: Path) -> None:
    """Its factors are a weight of the file."""
    scaled = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    original = Original("llama", tmp_path / "original", attention_bias=False, rope_parameters=scaled)
    frequencies = original.model.model.rotary_emb.inv_freq
    plain = 1.0 / 500.0 ** (torch.arange(0, 4, 2).float() / 4)
    original.model.register_buffer("rope_freqs.weight".replace(".", "_"), plain / frequencies)
    state = original.model.state_dict()
    state["rope_freqs.weight"] = state.pop("rope_freqs_weight")
    original.model.state_dict = lambda: state  # type: ignore[method-assign]
    write_gguf(tmp_path / "model.gguf", original)
    config = read(tmp_path / "model.gguf").config
    assert (config.rope_scaling, config.rope_factor, config.rope_trained_length) == ("llama3", 8.0, 8192)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"llama__expert_count": 8}, "expert_count is 8"),
        ({"llama__rope__dimension_count": 2}, "rope.dimension_count is 2"),
        ({"llama__something": 1}, "does not know the key 'llama.something'"),
        ({"llama__rope__scaling__type": "longrope"}, "rope.scaling.type is 'longrope'"),
        ({"llama__attention__sliding_window": 5}, "does not know the key"),
        ({"tokenizer__ggml__new": 1}, "does not know the key"),
    ],
)
def test_settings_are_refused_by_name(tmp_path: Path, extra: dict[str, Any], message: str) -> None:
    original = Original("llama", tmp_path / "original", attention_bias=False)
    write_gguf(tmp_path / "model.gguf", original, **extra)
    with pytest.raises(ModelError, match=message):
        read(tmp_path / "model.gguf")


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"something else entirely, of no known format")
    with pytest.raises(ModelError, match="does not recognize this file"):
        read(path)
