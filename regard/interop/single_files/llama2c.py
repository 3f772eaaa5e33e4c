"""Read a model of llama2.c: a file of float32 numbers behind seven sizes, and tokenizer.bin beside it.

Version 0 begins with seven i32: dim, hidden, layers, heads, kv_heads, vocabulary and context; a negative vocabulary
means that the output layer is not the table. Version 1 has "ak42", i32 1, the seven, u8 whether the output layer is the
table, and zeros up to byte 256; its normalizations come first. Rotary positions are interleaved.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.errors import ModelError
from regard.interop.families import llama
from regard.interop.families.family import TokenIds
from regard.interop.files.settings_file import SettingsFile
from regard.interop.files.weight_source import WeightSource
from regard.interop.rotary_order import to_halves
from regard.interop.single_files.byte_pairs import scored_tokenizer
from regard.interop.single_files.single_file import SingleFile
from regard.machine.lazy_torch import torch
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.tokenizer import SPACE

MAGIC = 0x616B3432
HEADER_BYTES = 256  # of version 1
MAX_LAYERS, MAX_SIZE = 1024, 2**24
UNKNOWN, START, END, FIRST_BYTE = 0, 1, 2, 3
BYTES = 256
MAX_TOKEN_BYTES = 1024


class Sizes(NamedTuple):
    """The header of a file."""

    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int
    tied: bool
    version: int

    @property
    def width(self) -> int:
        return self.dim // self.heads


def could_be_llama2c(begin: bytes, size: int) -> bool:
    """Whether a file with these first 28 bytes and this size is one of llama2.c."""
    if len(begin) < 28:
        return False
    if struct.unpack("<I", begin[:4])[0] == MAGIC:
        return True
    try:
        sizes = _version_0(begin)
        return size == 28 + 4 * sum(count for _, count in _places(sizes))
    except ModelError:
        return False


def read_llama2c(path: Path, allow_keys: Collection[str] = ()) -> SingleFile:
    """Read the sizes and the tokenizer; the weights are read later."""
    with open(path, "rb") as file:
        begin = file.read(HEADER_BYTES)
    if len(begin) < 28:
        raise ModelError(f"{path}: it is cut off at byte {len(begin)}")
    versioned = struct.unpack("<I", begin[:4])[0] == MAGIC
    sizes = _version_1(path, begin) if versioned else _version_0(begin)
    places = _places(sizes)
    start = HEADER_BYTES if versioned else 28
    expected = start + 4 * sum(count for _, count in places)
    if path.stat().st_size != expected:
        raise ModelError(f"{path}: it has {path.stat().st_size} bytes, and a model of these sizes {expected}")
    tokenizer, beside = _tokenizer(path, sizes)
    settings = {
        "model_type": "llama",
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.dim,
        "intermediate_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "max_position_embeddings": sizes.context,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": sizes.tied,
    }
    tokens = TokenIds(START, (START, END), None, UNKNOWN, tokenizer.size, (START,), ())
    plan = llama.make_plan(SettingsFile(path, settings), tokens)
    weights = _weights(path, sizes, places, start, beside)
    return SingleFile("llama", plan, tokens, tokenizer, weights, "", ())


def _version_0(begin: bytes) -> Sizes:
    dim, hidden, layers, heads, kv_heads, vocabulary, context = struct.unpack("<7i", begin[:28])
    return _checked(Sizes(dim, hidden, layers, heads, kv_heads, abs(vocabulary), context, vocabulary > 0, 0))


def _version_1(path: Path, begin: bytes) -> Sizes:
    if len(begin) < HEADER_BYTES:
        raise ModelError(f"{path}: it is cut off at byte {len(begin)}")
    version, dim, hidden, layers, heads, kv_heads, vocabulary, context, tied = struct.unpack("<i7iB", begin[4:37])
    if version != 1:
        raise ModelError(f"{path}: its version is {version}, and regard reads 0 and 1, whose numbers are float32")
    return _checked(Sizes(dim, hidden, layers, heads, kv_heads, vocabulary, context, bool(tied), 1))


def _checked(sizes: Sizes) -> Sizes:
    numbers = sizes[:7]
    good = all(1 <= number <= MAX_SIZE for number in numbers) and sizes.layers <= MAX_LAYERS
    if not good or sizes.dim % sizes.heads or sizes.heads % sizes.kv_heads or sizes.width % 2:
        raise ModelError(f"it is no file of llama2.c: its sizes are {', '.join(map(str, numbers))}")
    return sizes


def _places(sizes: Sizes) -> list[tuple[str, int]]:
    """Return the groups of numbers in the order of the file, and how many numbers each has."""
    d, layers, keys = sizes.dim, sizes.layers, sizes.kv_heads * sizes.width
    table = ("embed_tokens", sizes.vocabulary * d)
    norms = {"input_layernorm": layers * d, "post_attention_layernorm": layers * d, "norm": d}
    attention = {"q_proj": layers * d * d, "k_proj": layers * keys * d, "v_proj": layers * keys * d}
    attention["o_proj"] = layers * d * d
    feed = dict.fromkeys(("gate_proj", "down_proj", "up_proj"), layers * d * sizes.hidden)
    output = [] if sizes.tied else [("lm_head", sizes.vocabulary * d)]
    if sizes.version == 1:
        return [*norms.items(), table, *attention.items(), *feed.items(), *output]
    first, second, last = norms.items()
    waves = ("sines", sizes.context * sizes.width)  # of rotary positions; not used
    return [table, first, *attention.items(), second, *feed.items(), last, waves, *output]


def _weights(path: Path, sizes: Sizes, places: list[tuple[str, int]], start: int, beside: Path) -> WeightSource:
    d, keys = sizes.dim, sizes.kv_heads * sizes.width
    layer_shapes = {
        "self_attn.q_proj": (d, d),
        "self_attn.k_proj": (keys, d),
        "self_attn.v_proj": (keys, d),
        "self_attn.o_proj": (d, d),
        "mlp.gate_proj": (sizes.hidden, d),
        "mlp.down_proj": (d, sizes.hidden),
        "mlp.up_proj": (sizes.hidden, d),
        "input_layernorm": (d,),
        "post_attention_layernorm": (d,),
    }
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (sizes.vocabulary, d), "norm.weight": (d,)}
    if not sizes.tied:
        shapes["lm_head.weight"] = (sizes.vocabulary, d)
    for i in range(sizes.layers):
        shapes |= {f"layers.{i}.{name}.weight": shape for name, shape in layer_shapes.items()}
    starts, offset = {}, start
    for name, count in places:
        starts[name] = offset
        offset += 4 * count
    heads = {"q_proj": sizes.heads, "k_proj": sizes.kv_heads}

    def get(name: str) -> torch.Tensor:
        *layer, part, _ = name.split(".")
        number = int(layer[1]) if layer else 0
        count = int(np.prod(shapes[name]))
        with open(path, "rb") as file:
            file.seek(starts[part] + 4 * count * number)
            weight = torch.frombuffer(bytearray(file.read(4 * count)), dtype=torch.float32).reshape(shapes[name])
        return to_halves(weight, heads[part]) if part in heads else weight

    return WeightSource(path, shapes, get, beside=(beside,))


def _tokenizer(path: Path, sizes: Sizes) -> tuple[ImportedTokenizer, Path]:
    """Return the tokenizer beside the model, tokenizer.bin or tok512.bin for a vocabulary of 512."""
    candidates = [path.parent / name for name in (f"tok{sizes.vocabulary}.bin", "tokenizer.bin")]
    existing = [candidate for candidate in candidates if candidate.is_file() and not candidate.is_symlink()]
    if not existing:
        names = " or ".join(candidate.name for candidate in candidates)
        raise ModelError(f"{path}: its tokenizer, {names}, is not beside it")
    try:
        return read_tokenizer(existing[0], sizes.vocabulary), existing[0]
    except ModelError as error:
        raise ModelError(f"{existing[0]}: {error}") from error


def read_tokenizer(path: Path, vocabulary: int) -> ImportedTokenizer:
    """Read tokenizer.bin: u32 longest; of each token f32 score, i32 length, bytes."""
    if path.stat().st_size > 4 + vocabulary * (8 + MAX_TOKEN_BYTES):
        raise ModelError(f"it is too large for {vocabulary} tokens")
    content = path.read_bytes()
    offset = 4
    tokens: list[str] = []
    scores: list[float] = []
    for _ in range(vocabulary):
        if offset + 8 > len(content):
            raise ModelError(f"it ends after {len(tokens)} of {vocabulary} tokens")
        score, length = struct.unpack("<fi", content[offset : offset + 8])
        offset += 8 + length
        if not 0 <= length <= MAX_TOKEN_BYTES or offset > len(content) or not np.isfinite(score):
            raise ModelError(f"token {len(tokens)} is damaged")
        scores.append(score)
        tokens.append(content[offset - length : offset].decode(errors="replace").replace(" ", SPACE))
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(BYTES))]
    if vocabulary < len(names) or offset != len(content):
        raise ModelError(f"it has other tokens than the {vocabulary} of the model")
    return scored_tokenizer(
        [*names, *tokens[len(names) :]], scores, unknown=UNKNOWN, special=(START, END), before=(START,)
    )
