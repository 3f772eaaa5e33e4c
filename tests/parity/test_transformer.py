"""Whole blocks and models against other people's with the same weights.

torch.nn.TransformerEncoderLayer, TransformerDecoderLayer, Transformer; GPT-2 of transformers. torch's masks say
True = forbidden, ours True = may attend.

    B batch   m target tokens   n source tokens   p model width   V vocabulary
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard import Block, FeedForward, LayerNorm, MultiHeadAttention, make_model
from regard.models.config import TransformerConfig, TransformerLMConfig

p, H, d_ff, B, m, n = 16, 4, 28, 3, 5, 7
KEEP = torch.arange(n) < torch.tensor([7, 3, 5])[:, None]  # (B, n)
TARGET_KEEP = torch.arange(m) < torch.tensor([2, 5, 4])[:, None]  # (B, m)
SHARED: dict[str, Any] = {"dropout": 0.0, "batch_first": True}

every_kind = [
    pytest.param(order, activation, id=f"{order}-{activation}")
    for order in ("post", "pre")
    for activation in ("relu", "gelu")
]

# torch's names of the parts of a layer -> ours.
ENCODER = {"self_attn": "self_attention", "norm1": "self_norm", "norm2": "feed_norm"}
DECODER = {
    "self_attn": "self_attention",
    "multihead_attn": "cross_attention",
    "norm1": "self_norm",
    "norm2": "cross_norm",
    "norm3": "feed_norm",
}
INSIDE = {
    "linear1": "feed_forward.up",
    "linear2": "feed_forward.down",
    "in_proj_weight": "input.weight",
    "in_proj_bias": "input.bias",
    "out_proj": "output",
    "layers": "blocks",
}


def renamed(state: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """torch's tensors under our names."""
    names = {**names, **INSIDE}
    return {".".join(names.get(part, part) for part in key.split(".")): value for key, value in state.items()}


def stirred(module: nn.Module) -> nn.Module:
    """Biases and norms away from 0 and 1, where a mistake would not show."""
    for parameter in module.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)
    return module


def block(order: str, activation: str, *, cross: bool) -> Block:
    return Block(
        self_attention=MultiHeadAttention(dim=p, heads=H),
        cross_attention=MultiHeadAttention(dim=p, heads=H) if cross else None,
        feed_forward=FeedForward(dim=p, hidden=d_ff, activation=activation),  # type: ignore[arg-type]
        norm=lambda: LayerNorm(p),
        order=order,  # type: ignore[arg-type]
    )


def assert_same(got: Tensor, want: Tensor, where: Tensor, got_in: list[Tensor], want_in: list[Tensor]) -> None:
    """Outputs at the real tokens, and the gradients of the inputs, to 1e-5."""
    torch.testing.assert_close(got[where], want[where], atol=1e-5, rtol=1e-5)
    upstream = torch.randn_like(want[where])
    gots = torch.autograd.grad(got[where], got_in, upstream)
    wants = torch.autograd.grad(want[where], want_in, upstream, retain_graph=True)
    for one, other in zip(gots, wants, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("order", "activation"), every_kind)
def test_encoder_block(order: str, activation: str) -> None:
    theirs = stirred(nn.TransformerEncoderLayer(p, H, d_ff, activation=activation, norm_first=order == "pre", **SHARED))
    ours = block(order, activation, cross=False)
    ours.load_state_dict(renamed(theirs.state_dict(), ENCODER))
    x = torch.randn(B, n, p, requires_grad=True)
    want = theirs(x, src_key_padding_mask=~KEEP)
    assert_same(ours(x, mask=KEEP[:, None, None]), want, KEEP, [x], [x])


@pytest.mark.parametrize(("order", "activation"), every_kind)
def test_decoder_block(order: str, activation: str) -> None:
    theirs = stirred(nn.TransformerDecoderLayer(p, H, d_ff, activation=activation, norm_first=order == "pre", **SHARED))
    ours = block(order, activation, cross=True)
    ours.load_state_dict(renamed(theirs.state_dict(), DECODER))
    y, x = torch.randn(B, m, p, requires_grad=True), torch.randn(B, n, p, requires_grad=True)
    later = torch.ones(m, m, dtype=torch.bool).triu(1)
    want = theirs(y, x, tgt_mask=later, tgt_key_padding_mask=~TARGET_KEEP, memory_key_padding_mask=~KEEP)
    got = ours(y, mask=TARGET_KEEP[:, None, None], causal=True, memory=x, memory_mask=KEEP[:, None, None])
    assert_same(got, want, TARGET_KEEP, [y, x], [y, x])
    projected = ours.cross_attention.project_source(x)  # type: ignore[union-attr]
    again = ours(y, mask=TARGET_KEEP[:, None, None], causal=True, memory=projected, memory_mask=KEEP[:, None, None])
    assert_same(again, want, TARGET_KEEP, [y, x], [y, x])


@pytest.mark.parametrize(("order", "activation"), every_kind)
def test_whole_transformer(order: str, activation: str) -> None:
    """Two encoder and three decoder blocks, from token numbers to logits.

    torch's own puts a norm on top of both stacks; post-norm blocks as in the paper have none there.
    """
    with warnings.catch_warnings(action="ignore"):  # that it cannot use nested tensors
        theirs = nn.Transformer(p, H, 2, 3, d_ff, activation=activation, norm_first=order == "pre", **SHARED)
    if order == "post":
        theirs.encoder.norm = theirs.decoder.norm = None
    stirred(theirs)
    config = TransformerConfig(
        layers=2,
        decoder_layers=3,
        dim=p,
        heads=H,
        hidden=d_ff,
        activation=activation,
        order=order,
        position="none",
        dropout=0.0,
        source_vocabulary=11,
        target_vocabulary=13,
    )
    ours: Any = make_model(config)
    ours.encoder.load_state_dict(renamed(theirs.encoder.state_dict(), ENCODER))
    ours.decoder.load_state_dict(renamed(theirs.decoder.state_dict(), DECODER))

    source = torch.randint(1, 11, (B, n)) * KEEP
    target = torch.randint(1, 13, (B, m)) * TARGET_KEEP
    tables = [ours.source.embedding.weight, ours.target.embedding.weight]
    x, y = (F.embedding(tokens, table) * p**0.5 for tokens, table in zip((source, target), tables, strict=True))
    later = torch.ones(m, m, dtype=torch.bool).triu(1)
    # torch's fused path for inference rounds in another way; with gradients on it is not taken.
    hidden = theirs(x, y, tgt_mask=later, src_key_padding_mask=~KEEP, memory_key_padding_mask=~KEEP)
    assert_same(ours(source, target), hidden @ tables[1].T, TARGET_KEEP, tables, tables)


def test_gpt2() -> None:
    """GPT-2 of transformers, small and with random weights, is our Transformer language model."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 31, "n_positions": 12, "n_embd": p, "n_layer": 3, "n_head": H}
    options = {"activation_function": "gelu", "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 0}
    theirs = GPT2LMHeadModel(GPT2Config(**sizes, **options)).eval()
    stirred(theirs)
    config = TransformerLMConfig(
        vocabulary=31,
        layers=3,
        dim=p,
        heads=H,
        hidden=4 * p,
        activation="gelu",
        order="pre",
        position="learned",
        max_length=12,
        scale_embedding=False,
    )
    ours = make_model(config).eval()
    ours.load_state_dict(from_gpt2(theirs.state_dict(), layers=3))
    tokens = torch.randint(31, (B, 12))
    with torch.no_grad():
        want = theirs(tokens).logits
        torch.testing.assert_close(ours(tokens), want, atol=1e-4, rtol=1e-4)
        assert want.std() > 1  # the comparison says something
    grads = torch.autograd.grad(ours(tokens)[0, -1, 3], ours.input.embedding.weight)[0]
    wants = torch.autograd.grad(theirs(tokens).logits[0, -1, 3], theirs.transformer.wte.weight)[0]
    torch.testing.assert_close(grads, wants, atol=1e-4, rtol=1e-4)


def from_gpt2(state: dict[str, Tensor], *, layers: int) -> dict[str, Tensor]:
    """GPT-2's weights under our names; its matrices are (in, out), ours as torch's (out, in)."""
    ours = {
        "input.embedding.weight": state["transformer.wte.weight"],
        "input.position.table": state["transformer.wpe.weight"],
        "decoder.norm.weight": state["transformer.ln_f.weight"],
        "decoder.norm.bias": state["transformer.ln_f.bias"],
    }
    parts = {
        "ln_1": "self_norm",
        "attn.c_attn": "self_attention.input",
        "attn.c_proj": "self_attention.output",
        "ln_2": "feed_norm",
        "mlp.c_fc": "feed_forward.up",
        "mlp.c_proj": "feed_forward.down",
    }
    for layer in range(layers):
        for theirs, mine in parts.items():
            weight = state[f"transformer.h.{layer}.{theirs}.weight"]
            ours[f"decoder.blocks.{layer}.{mine}.weight"] = weight.T if weight.dim() == 2 else weight
            ours[f"decoder.blocks.{layer}.{mine}.bias"] = state[f"transformer.h.{layer}.{theirs}.bias"]
    return ours
