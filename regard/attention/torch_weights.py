"""Multi-head attention with the weights of `torch.nn.MultiheadAttention`.

D11. PyTorch stacks W_Q, W_K and W_V as regard does and splits the heads in the same order, so weights are only copied.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import SeparateProjection
from regard.errors import UsageError


def attention_from_torch(module: nn.MultiheadAttention) -> MultiHeadAttention:
    """Return a MultiHeadAttention with a copy of the module's weights, on its device and in its dtype."""
    if type(module) is not nn.MultiheadAttention:
        raise TypeError(f"module must be a torch.nn.MultiheadAttention, got {type(module).__name__}")
    for option, used in (("add_bias_kv", module.bias_k is not None), ("add_zero_attn", module.add_zero_attn)):
        if used:
            raise UsageError(f"{option} adds a key that belongs to no token; MultiHeadAttention has no such option")
    has_bias = module.in_proj_bias is not None
    layer = MultiHeadAttention(
        dim=module.embed_dim,
        heads=module.num_heads,
        key_dim=module.kdim,
        value_dim=module.vdim,
        bias=has_bias,
        dropout=module.dropout,
    ).to(module.out_proj.weight)
    if isinstance(layer.input, SeparateProjection):
        parts = (layer.input.query, layer.input.key, layer.input.value)
        biases = module.in_proj_bias.chunk(3) if has_bias else (None, None, None)
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        for linear, weight, bias in zip(parts, weights, biases, strict=True):
            copy_weights(linear, weight, bias)
    else:
        weight = module.in_proj_weight
        if weight is None:  # kdim and vdim were given, with the width of the queries
            weight = torch.cat((module.q_proj_weight, module.k_proj_weight, module.v_proj_weight))
        copy_weights(layer.input, weight, module.in_proj_bias)
    assert layer.output is not None
    copy_weights(layer.output, module.out_proj.weight, module.out_proj.bias)
    return layer.train(module.training)


@torch.no_grad()
def copy_weights(module: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    """Copy these numbers into the weight and the bias of a module."""
    module.get_parameter("weight").copy_(weight)
    if bias is not None:
        module.get_parameter("bias").copy_(bias)
