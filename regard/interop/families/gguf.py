"""The settings and the names of weights in GGUF files, as those of the family in the format of Hugging Face."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from regard.errors import ModelError
from regard.interop.files.settings_file import SettingsFile
from regard.machine.lazy_torch import torch
from regard.models.folder.config_file import shortened
from regard.positions.rotary import LlamaScaling

# Architecture -> model_type. The order of rotary positions in the file is in INTERLEAVED.
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
INTERLEAVED = ("llama",)
# The name of a setting without the architecture -> that of config.json, and its type.
KEYS: dict[str, tuple[str, type]] = {
    "block_count": ("num_hidden_layers", int),
    "context_length": ("max_position_embeddings", int),
    "embedding_length": ("hidden_size", int),
    "feed_forward_length": ("intermediate_size", int),
    "attention.head_count": ("num_attention_heads", int),
    "attention.head_count_kv": ("num_key_value_heads", int),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", float),
    "rope.freq_base": ("rope_theta", float),
    "attention.key_length": ("head_dim", int),
    "vocab_size": ("vocab_size", int),
}
# Names of weights of a layer in the file -> those of Hugging Face.
WEIGHTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ENDS = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
FREQUENCIES = "rope_freqs.weight"  # the factors of Llama 3's scaled positions
SCALINGS = (
    LlamaScaling(factor=8.0, trained_length=8192),  # Llama 3.1
    LlamaScaling(factor=32.0, trained_length=8192),  # Llama 3.2
)


def hub_name(name: str) -> str:
    """Return the name that a weight has in the format of Hugging Face; another name as it is."""
    stem, _, what = name.rpartition(".")
    if stem in ENDS:
        return f"{ENDS[stem]}.{what}"
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    return f"layers.{layer[1]}.{WEIGHTS[layer[2]]}.{what}" if layer and layer[2] in WEIGHTS else name


def gguf_name(name: str) -> str:
    """Undo `hub_name`."""
    stem, _, what = name.rpartition(".")
    ends = {theirs: ours for ours, theirs in ENDS.items()}
    if stem in ends:
        return f"{ends[stem]}.{what}"
    _, number, part = stem.split(".", 2)
    return f"blk.{number}.{next(ours for ours, theirs in WEIGHTS.items() if theirs == part)}.{what}"


def hub_settings(
    settings: SettingsFile, weights: dict[str, tuple[int, ...]], frequencies: torch.Tensor | None
) -> dict[str, Any]:
    """Return config.json of a model with these settings and weights."""
    architecture = settings.take("general.architecture", str)
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelError(f"{settings.path}: general.architecture is {shortened(repr(architecture))}, known: {known}")
    mapped: dict[str, Any] = {"model_type": ARCHITECTURES[architecture]}
    for name, (key, kind) in KEYS.items():
        value: Any = settings.take(f"{architecture}.{name}", kind, None)
        if value is not None:
            mapped[key] = float(str(np.float32(value))) if kind is float else value
    heads, width = mapped.get("num_attention_heads"), mapped.get("hidden_size")
    if "token_embd.weight" not in weights or not heads or not width:
        raise ModelError(f"{settings.path}: the sizes of the model, or its table of token vectors, are missing")
    mapped.setdefault("vocab_size", weights["token_embd.weight"][0])
    mapped.setdefault("num_key_value_heads", heads)
    head = mapped.setdefault("head_dim", width // heads)
    settings.must_be(f"{architecture}.attention.value_length", head, why="it differs from the keys' length")
    settings.must_be(f"{architecture}.rope.dimension_count", head, why="regard rotates whole heads")
    settings.must_be(f"{architecture}.expert_count", 0)
    mapped["tie_word_embeddings"] = "output.weight" not in weights
    if architecture == "llama":
        mapped["attention_bias"] = "blk.0.attn_output.bias" in weights
        mapped["mlp_bias"] = "blk.0.ffn_down.bias" in weights
    mapped["rope_parameters"] = {"rope_theta": mapped.pop("rope_theta", 10000.0)}
    mapped["rope_parameters"] |= _scaling(settings, architecture, mapped, frequencies)
    settings.ignore(*(name for name in settings.content if name.startswith(("general.", "quantize.", "split."))))
    settings.must_be("general.type", "model")
    settings.must_be("split.count", 0, 1, why="regard reads models in one file")
    return mapped


def _scaling(settings: SettingsFile, architecture: str, mapped: dict[str, Any], frequencies: Any) -> dict[str, Any]:
    kind = settings.take(f"{architecture}.rope.scaling.type", str, "none")
    factor = settings.take(f"{architecture}.rope.scaling.factor", float, None)
    trained = settings.take(f"{architecture}.rope.scaling.original_context_length", int, None)
    settings.must_be(f"{architecture}.rope.scaling.attn_factor", 1.0)
    settings.ignore(f"{architecture}.rope.scaling.finetuned")
    if frequencies is not None:
        if kind != "none":
            raise ModelError(f"{settings.path}: rope.scaling.type is {shortened(kind)} beside {FREQUENCIES}")
        return _llama3(settings, mapped, frequencies)
    if kind == "none":
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn" and trained is not None:
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained}
    raise ModelError(f"{settings.path}: rope.scaling.type is {shortened(repr(kind))}, known: none, linear, yarn")


def _llama3(settings: SettingsFile, mapped: dict[str, Any], frequencies: torch.Tensor) -> dict[str, Any]:
    """Return the scaling of a Llama 3 whose factors are those of the file."""
    d = mapped["head_dim"]
    theta = 1.0 / mapped["rope_parameters"]["rope_theta"] ** (torch.arange(0, d, 2, dtype=torch.float32) / d)
    for scaling in SCALINGS:
        if frequencies.shape == theta.shape and torch.allclose(theta / frequencies, scaling(theta), rtol=1e-5, atol=0):
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low,
                "high_freq_factor": scaling.high,
                "original_max_position_embeddings": scaling.trained_length,
            }
    raise ModelError(f"{settings.path}: {FREQUENCIES} has the factors of no Llama 3 that regard knows")
