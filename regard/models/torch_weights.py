"""Blocks and stacks with the weights of `torch.nn.Transformer` and its parts.

E3, E4, E5.
"""

from __future__ import annotations

from typing import Any, NamedTuple, overload

import torch.nn.functional as F
from torch import nn

from regard.attention.multihead import MultiHeadAttention
from regard.attention.torch_weights import attention_from_torch, copy_weights
from regard.errors import UsageError
from regard.layers.block import Block
from regard.layers.feedforward import Activation, FeedForward
from regard.layers.normalization import LayerNorm
from regard.models.stack import Stack

Layer = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
Layers = nn.TransformerEncoder | nn.TransformerDecoder
STACKS = (nn.TransformerEncoder, nn.TransformerDecoder)
CONVERTED = (nn.MultiheadAttention, *LAYERS, *STACKS, nn.Transformer)


class EncoderDecoderStacks(NamedTuple):
    """The two stacks of an encoder-decoder; it has no embeddings, as torch.nn.Transformer has none."""

    encoder: Stack
    decoder: Stack


@overload
def from_torch(module: nn.MultiheadAttention) -> MultiHeadAttention: ...
@overload
def from_torch(module: Layer) -> Block: ...
@overload
def from_torch(module: Layers) -> Stack: ...
@overload
def from_torch(module: nn.Transformer) -> EncoderDecoderStacks: ...
def from_torch(module: nn.Module) -> MultiHeadAttention | Block | Stack | EncoderDecoderStacks:
    """Return regard's counterpart of a module of torch.nn, with a copy of its weights.

        nn.MultiheadAttention                                   MultiHeadAttention
        nn.TransformerEncoderLayer, nn.TransformerDecoderLayer  Block
        nn.TransformerEncoder, nn.TransformerDecoder            Stack
        nn.Transformer                                          the stacks `encoder` and `decoder`

    The counterpart always takes (B, length, width), also if the module has batch_first=False. In its masks True means
    that a query may attend: mask=~attn_mask, and mask=~key_padding_mask[:, None, None]. A float attn_mask is bias=.
    """
    if isinstance(module, nn.MultiheadAttention):
        return attention_from_torch(module)
    if type(module) in LAYERS:
        return _block(module)
    if type(module) in STACKS:
        return _stack(module)
    if type(module) is nn.Transformer:
        return EncoderDecoderStacks(_stack(module.encoder), _stack(module.decoder))
    names = ", ".join(f"nn.{kind.__name__}" for kind in CONVERTED)
    raise TypeError(f"module must be one of {names}, got {type(module).__name__}")


def _stack(module: Any) -> Stack:
    if type(module) not in STACKS:
        raise UsageError(f"a custom {type(module).__name__} inside nn.Transformer cannot be converted")
    for layer in module.layers:
        if type(layer) not in LAYERS:
            raise UsageError(f"a layer of type {type(layer).__name__} cannot be converted")
    norm = None if module.norm is None else _norm(module.norm)
    return Stack(blocks=[_block(layer) for layer in module.layers], norm=norm).train(module.training)


def _block(layer: Any) -> Block:
    """Return the block of an encoder layer, or with cross-attention that of a decoder layer."""
    cross = isinstance(layer, nn.TransformerDecoderLayer)
    norms = iter([layer.norm1, layer.norm2, *([layer.norm3] if cross else [])])  # in the order of a block
    feed_forward = FeedForward(
        dim=layer.linear1.in_features,
        hidden=layer.linear1.out_features,
        activation=_activation(layer.activation),
        bias=layer.linear1.bias is not None,
        dropout=layer.dropout.p,
    ).to(layer.linear1.weight)
    copy_weights(feed_forward.up, layer.linear1.weight, layer.linear1.bias)
    copy_weights(feed_forward.down, layer.linear2.weight, layer.linear2.bias)
    return Block(
        self_attention=attention_from_torch(layer.self_attn),
        cross_attention=attention_from_torch(layer.multihead_attn) if cross else None,
        feed_forward=feed_forward,
        norm=lambda: _norm(next(norms)),
        order="pre" if layer.norm_first else "post",
        dropout=layer.dropout1.p,
    ).train(layer.training)


def _norm(norm: nn.Module) -> LayerNorm:
    if type(norm) is not nn.LayerNorm or len(norm.normalized_shape) != 1 or norm.weight is None:
        raise UsageError(f"a norm {norm} cannot be converted: only nn.LayerNorm over the last dimension can")
    made = LayerNorm(norm.normalized_shape[0], eps=norm.eps, bias=norm.bias is not None).to(norm.weight)
    copy_weights(made, norm.weight, norm.bias)
    return made


def _activation(function: Any) -> Activation:
    """Return the name of an activation; UsageError if FeedForward has none like it."""
    if function is F.relu or isinstance(function, nn.ReLU):
        return "relu"
    if function is F.gelu or (isinstance(function, nn.GELU) and function.approximate == "none"):
        return "gelu"
    if isinstance(function, nn.GELU):
        return "gelu-tanh"
    name = getattr(function, "__name__", type(function).__name__)
    raise UsageError(f"activation {name} cannot be converted: relu, gelu and nn.GELU(approximate='tanh') can")
