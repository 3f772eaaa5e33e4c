"""regard.from_torch: the counterparts of torch.nn's attention, layers and Transformers give the same outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import regard
from regard.errors import UsageError

p, H, d_ff, B, m, n = 16, 4, 28, 3, 5, 7
KEEP = torch.arange(n) < torch.tensor([7, 3, 5])[:, None]  # (B, n)


def randomized(module: nn.Module) -> Any:
    """The module in float64 and eval mode, with biases and norms that are not zeros and ones."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.normal_(std=0.3)
    return module.eval()


def same(a: Tensor, b: Tensor) -> None:
    assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("widths", [{}, {"kdim": 12, "vdim": 10}, {"kdim": 12}, {"kdim": p, "vdim": p}], ids=str)
def test_multi_head_attention(widths: dict[str, int], batch_first: bool, bias: bool) -> None:
    theirs = randomized(nn.MultiheadAttention(p, H, bias=bias, batch_first=batch_first, **widths))
    ours = regard.MultiHeadAttention.from_torch(theirs)
    assert not ours.training and next(ours.parameters()).dtype == torch.float64
    query, key = torch.randn(B, m, p).double(), torch.randn(B, n, widths.get("kdim", p)).double()
    value = torch.randn(B, n, widths.get("vdim", p)).double()
    inputs = [x if batch_first else x.transpose(0, 1) for x in (query, key, value)]
    hidden, added = torch.rand(m, n) < 0.3, torch.randn(m, n).double()
    hidden[:, 0] = False
    for theirs_options, ours_options in [
        ({}, {}),
        ({"key_padding_mask": ~KEEP}, {"mask": KEEP[:, None, None]}),
        ({"attn_mask": hidden}, {"mask": ~hidden}),
        ({"attn_mask": added}, {"bias": added}),
    ]:
        y, weights = theirs(*inputs, average_attn_weights=False, **theirs_options)
        out, ours_weights = ours(query, key, value, return_weights=True, **ours_options)
        same(out, y if batch_first else y.transpose(0, 1))
        same(ours_weights, weights)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu", nn.GELU(approximate="tanh")], ids=str)
@pytest.mark.parametrize("norm_first", [True, False])
def test_layers(norm_first: bool, activation: Any, bias: bool) -> None:
    options: dict[str, Any] = {"norm_first": norm_first, "activation": activation, "bias": bias, "layer_norm_eps": 1e-3}
    x, memory = torch.randn(B, m, p).double(), torch.randn(B, n, p).double()
    triangle = torch.ones(m, m).triu(1).bool()

    encoder = randomized(nn.TransformerEncoderLayer(p, H, d_ff, batch_first=True, **options))
    theirs = encoder(memory, src_key_padding_mask=~KEEP)
    same(regard.from_torch(encoder)(memory, mask=KEEP[:, None, None])[KEEP], theirs[KEEP])

    decoder = randomized(nn.TransformerDecoderLayer(p, H, d_ff, batch_first=True, **options))
    theirs = decoder(x, memory, tgt_mask=triangle, memory_key_padding_mask=~KEEP)
    same(regard.from_torch(decoder)(x, causal=True, memory=memory, memory_mask=KEEP[:, None, None]), theirs)


@pytest.mark.parametrize("batch_first", [True, False])
def test_whole_transformer(batch_first: bool) -> None:
    theirs = randomized(
        nn.Transformer(p, H, 2, 3, d_ff, activation="gelu", norm_first=True, batch_first=batch_first)
    )  # fmt: skip
    ours = regard.from_torch(theirs)
    source, target = torch.randn(B, n, p).double(), torch.randn(B, m, p).double()
    triangle = torch.ones(m, m).triu(1).bool()
    inputs = (source, target) if batch_first else (source.transpose(0, 1), target.transpose(0, 1))
    y = theirs(*inputs, tgt_mask=triangle, src_key_padding_mask=~KEEP, memory_key_padding_mask=~KEEP)
    mask = KEEP[:, None, None]
    states = ours.encoder(source, mask=mask)
    out = ours.decoder(target, causal=True, memory=states, memory_mask=mask)
    same(out, y if batch_first else y.transpose(0, 1))

    config = regard.TransformerConfig(
        source_vocabulary=9, target_vocabulary=9, layers=2, decoder_layers=3, dim=p, heads=H, hidden=d_ff,
        activation="gelu", order="pre",
    )  # fmt: skip
    model: Any = regard.make_model(config).double().eval()
    model.encoder.load_state_dict(ours.encoder.state_dict())
    model.decoder.load_state_dict(ours.decoder.state_dict())
    same(model.decoder(target, causal=True, memory=model.encoder(source, mask=mask), memory_mask=mask), out)


def test_dropout_is_that_of_the_module() -> None:
    block = regard.from_torch(nn.TransformerEncoderLayer(p, H, d_ff, dropout=0.25))
    assert block.training
    assert block.dropout.p == block.self_attention.dropout == block.feed_forward.dropout == 0.25


def test_what_cannot_be_converted() -> None:
    with pytest.raises(UsageError, match="add_bias_kv"):
        regard.MultiHeadAttention.from_torch(nn.MultiheadAttention(p, H, add_bias_kv=True))
    with pytest.raises(UsageError, match="add_zero_attn"):
        regard.from_torch(nn.MultiheadAttention(p, H, add_zero_attn=True))
    with pytest.raises(UsageError, match="activation tanh cannot be converted: relu, gelu"):
        regard.from_torch(nn.TransformerEncoderLayer(p, H, d_ff, activation=torch.tanh))
    with pytest.raises(UsageError, match="a custom Identity inside"):
        regard.from_torch(nn.Transformer(p, H, 1, 1, d_ff, custom_encoder=nn.Identity()))
    with pytest.raises(TypeError, match=r"nn\.MultiheadAttention, .* got Linear"):
        regard.from_torch(nn.Linear(3, 3))  # type: ignore[call-overload]
    layer = nn.TransformerEncoderLayer(p, H, d_ff)
    layer.norm1 = nn.RMSNorm(p)  # type: ignore[assignment]
    with pytest.raises(UsageError, match="norm RMSNorm"):
        regard.from_torch(layer)
