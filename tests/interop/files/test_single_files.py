"""Models in one file, written here as llama2.c and nanoGPT write them, compute what the originals compute."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import make_original
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.errors import ModelError
from regard.interop import import_model, read

VOCABULARY = 300


def interleaved(weight: Tensor, heads: int) -> np.ndarray:
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape).numpy()


def write_llama2c(path: Path, model: Any, *, version: int, tied: bool) -> None:
    """Write a Llama of transformers as the export script of llama2.c does."""
    config, state = model.config, {name: weight.detach() for name, weight in model.state_dict().items()}
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    sizes = [config.hidden_size, config.intermediate_size, config.num_hidden_layers, heads, groups]

    def all_layers(name: str) -> list[np.ndarray]:
        weights = [state[f"model.layers.{i}.{name}.weight"] for i in range(config.num_hidden_layers)]
        if "q_proj" in name or "k_proj" in name:
            return [interleaved(weight, heads if "q_proj" in name else groups) for weight in weights]
        return [weight.numpy() for weight in weights]

    table, last = [state["model.embed_tokens.weight"].numpy()], [state["model.norm.weight"].numpy()]
    first, second = all_layers("input_layernorm"), all_layers("post_attention_layernorm")
    attention = [weight for name in "qkvo" for weight in all_layers(f"self_attn.{name}_proj")]
    feed = [weight for name in ("gate", "down", "up") for weight in all_layers(f"mlp.{name}_proj")]
    output = [] if tied else [state["lm_head.weight"].numpy()]
    positions = config.max_position_embeddings
    if version == 0:
        header = struct.pack("<7i", *sizes, VOCABULARY if tied else -VOCABULARY, positions)
        waves = [np.zeros((positions, config.hidden_size // heads), np.float32)]
        order = [*table, *first, *attention, *second, *feed, *last, *waves, *output]
    else:
        header = struct.pack("<Ii7iB", 0x616B3432, 1, *sizes, VOCABULARY, positions, tied).ljust(256, b"\0")
        order = [*first, *second, *last, *table, *attention, *feed, *output]
    path.write_bytes(header + b"".join(np.ascontiguousarray(weight, np.float32).tobytes() for weight in order))


def write_tokens(path: Path) -> list[tuple[bytes, float]]:
    """Write tokenizer.bin with some letters and some longer tokens, and return its tokens."""
    tokens = [(b"<unk>", 0.0), (b"\n<s>\n", 0.0), (b"\n</s>\n", 0.0)]
    tokens += [(f"<0x{byte:02X}>".encode(), 0.0) for byte in range(256)]
    longer = [" t", "he", " the", "at", "ca", "cat", " cat", "é", " ", *"abcehlst", "las", "ll", "ss"]
    tokens += [(token.encode(), -float(i)) for i, token in enumerate(longer)]
    tokens += [(f"unused{i}".encode(), -99.0 - i) for i in range(VOCABULARY - len(tokens))]
    content = b"".join(struct.pack("<fi", score, len(token)) + token for token, score in tokens)
    path.write_bytes(struct.pack("<i", max(len(token) for token, _ in tokens)) + content)
    return tokens


def encode_as_llama2c(text: str, tokens: list[tuple[bytes, float]]) -> list[int]:
    """The encoder of run.c: characters or bytes, then the best merge until there is none."""
    numbers = {token: i for i, (token, _) in enumerate(tokens)}
    ids = []
    for character in " " + text if text else "":
        content = character.encode()
        ids += [numbers[content]] if content in numbers else [byte + 3 for byte in content]
    while True:
        best = (-1e10, -1, -1)
        for i in range(len(ids) - 1):
            joined = numbers.get(tokens[ids[i]][0] + tokens[ids[i + 1]][0])
            if joined is not None and tokens[joined][1] > best[0]:
                best = (tokens[joined][1], joined, i)
        if best[2] < 0:
            return ids
        ids[best[2] : best[2] + 2] = [best[1]]


@pytest.mark.parametrize(("version", "tied"), [(0, True), (0, False), (1, True), (1, False)])
def test_llama2c(tmp_path: Path, version: int, tied: bool) -> None:
    settings = {"attention_bias": False, "tie_word_embeddings": tied, "rms_norm_eps": 1e-5}
    settings |= {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    model = make_original("llama", tmp_path / "hf", vocabulary_margin=VOCABULARY - 270, **settings).model
    write_llama2c(tmp_path / "stories.bin", model, version=version, tied=tied)
    tokens = write_tokens(tmp_path / "tokenizer.bin")
    folder = import_model(tmp_path / "stories.bin", tmp_path / "ours")
    ids = torch.randint(0, VOCABULARY, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(regard.load_model(folder)(ids), model(ids).logits, atol=1e-5, rtol=0)
    writer = regard.load(folder, device="cpu")
    for text in ("the cat sat", "", "tell\nthe class", " héat", "🙂 a"):
        assert writer.tokenizer.encode(text) == encode_as_llama2c(text, tokens), text
        assert writer.tokenizer.decode(writer.tokenizer.encode(text)) == text
    assert writer.before == [1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-4], "does not recognize this file"),
        (lambda content: content + b"1234", "does not recognize this file"),
        (lambda content: struct.pack("<Ii", 0x616B3432, 2) + content[8:].ljust(256), "its version is 2"),
    ],
)
def test_damaged_files_of_llama2c(tmp_path: Path, change: Any, message: str) -> None:
    model = make_original("llama", tmp_path / "hf", vocabulary_margin=VOCABULARY - 270, attention_bias=False).model
    write_llama2c(tmp_path / "stories.bin", model, version=0, tied=False)
    path = tmp_path / "stories.bin"
    write_tokens(tmp_path / "tok300.bin")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ModelError, match=message):
        read(path)


class NanoBlock(nn.Module):
    """A block of nanoGPT in a few lines."""

    def __init__(self, dim: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim, bias=bias), nn.LayerNorm(dim, bias=bias)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(dim, 3 * dim, bias), "c_proj": nn.Linear(dim, dim, bias)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(dim, 4 * dim, bias), "c_proj": nn.Linear(4 * dim, dim, bias)})

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.attn["c_attn"](self.ln_1(x)).chunk(3, 2)
        )
        x = x + self.attn["c_proj"](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class NanoGPT(nn.Module):
    def __init__(self, vocabulary: int, dim: int, heads: int, context: int, bias: bool) -> None:
        super().__init__()
        blocks = nn.ModuleList([NanoBlock(dim, heads, bias) for _ in range(2)])
        parts = {"wte": nn.Embedding(vocabulary, dim), "wpe": nn.Embedding(context, dim), "h": blocks}
        self.transformer = nn.ModuleDict({**parts, "ln_f": nn.LayerNorm(dim, bias=bias)})
        self.lm_head = nn.Linear(dim, vocabulary, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.transformer["wte"](tokens) + self.transformer["wpe"].weight[: tokens.shape[1]]
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


CHARACTERS = "\n !,.ABCabcdefghijklmnopqrstuvwxyz"


def write_nanogpt(folder: Path, *, bias: bool, compiled: bool = False, **more: Any) -> NanoGPT:
    """Train a step, so that the optimizer has a state, and save everything as nanoGPT does."""
    torch.manual_seed(0)
    model = NanoGPT(len(CHARACTERS), 16, 4, 24, bias)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, betas=(0.9, 0.95))
    ids = torch.randint(0, len(CHARACTERS), (4, 24))
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    arguments = {"n_layer": 2, "n_head": 4, "n_embd": 16, "block_size": 24, "bias": bias, "dropout": 0.0}
    prefix = "_orig_mod." if compiled else ""
    checkpoint = {
        "model": {prefix + name: weight for name, weight in model.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "model_args": {**arguments, "vocab_size": len(CHARACTERS), **more},
        "iter_num": 1,
        "best_val_loss": loss.detach(),
        "config": {"out_dir": "out", "learning_rate": 1e-3, "compile": compiled},
    }
    torch.save(checkpoint, folder / "ckpt.pt")
    stoi = {character: i for i, character in enumerate(CHARACTERS)}
    meta = {"vocab_size": len(CHARACTERS), "itos": dict(enumerate(CHARACTERS)), "stoi": stoi}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    return model.eval()


@pytest.mark.parametrize(("bias", "compiled"), [(True, True), (False, False)])
def test_nanogpt(tmp_path: Path, bias: bool, compiled: bool) -> None:
    model = write_nanogpt(tmp_path, bias=bias, compiled=compiled)
    folder = import_model(tmp_path / "ckpt.pt", tmp_path / "ours")
    ids = torch.randint(0, len(CHARACTERS), (2, 20), generator=torch.Generator().manual_seed(0))
    ours = regard.load_model(folder)
    with torch.no_grad():
        expected = model(ids)
        torch.testing.assert_close(ours(ids)[..., :-1], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(ours(ids).log_softmax(-1)[..., :-1], expected.log_softmax(-1), atol=1e-5, rtol=0)
    writer = regard.load(folder, device="cpu")
    prompt = "Abc, de"
    assert writer.tokenizer.encode(prompt) == [CHARACTERS.index(character) for character in prompt]
    written = torch.tensor([writer.tokenizer.encode(prompt)])
    for _ in range(10):
        with torch.no_grad():
            written = torch.cat([written, model(written)[:, -1:].argmax(-1)], dim=1)
    expected_text = "".join(CHARACTERS[token] for token in written[0, len(prompt) :].tolist())
    assert writer.write(prompt, search=regard.Greedy(), max_tokens=10) == expected_text


def test_nanogpt_is_refused_by_name(tmp_path: Path) -> None:
    write_nanogpt(tmp_path, bias=True, n_experts=4)
    with pytest.raises(ModelError, match="does not know the key 'n_experts'"):
        read(tmp_path / "ckpt.pt")
    write_nanogpt(tmp_path, bias=True)
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps({"itos": print}))
    with pytest.raises(ModelError, match="itos must have"):
        read(tmp_path / "ckpt.pt")
    (tmp_path / "meta.pkl").unlink()
    with pytest.raises(ModelError, match="tokenizer is not beside it"):
        read(tmp_path / "ckpt.pt")
