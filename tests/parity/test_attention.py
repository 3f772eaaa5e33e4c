"""MultiHeadAttention against torch.nn.MultiheadAttention with the same weights; outputs, weights, gradients to 1e-5.

torch's masks say True = forbidden, ours True = may attend.

    B batch   H heads   m queries   n keys   D width
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from regard import MultiHeadAttention, masks

D, H, B, m, n = 24, 4, 3, 5, 7
LENGTHS = torch.tensor([7, 3, 5])
may = torch.rand(m, n, generator=torch.Generator().manual_seed(0)) < 0.6
may[:, 0] = True  # torch gives NaN where a query has no key


def pair(bias: bool = True, key_dim: int | None = None, value_dim: int | None = None) -> tuple[nn.Module, nn.Module]:
    """(torch's layer, ours with its weights), biases not zero."""
    theirs = nn.MultiheadAttention(D, H, bias=bias, kdim=key_dim, vdim=value_dim, batch_first=True)
    ours = MultiHeadAttention(dim=D, heads=H, bias=bias, key_dim=key_dim, value_dim=value_dim)
    if bias:
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
    ours.load_state_dict(renamed(theirs, dict(theirs.named_parameters())))
    return theirs, ours


def renamed(theirs: nn.MultiheadAttention, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """torch's parameters, or their gradients, under our names."""
    values = {name.replace("out_proj", "output"): value for name, value in values.items()}
    stacked_bias = values.pop("in_proj_bias", None)
    if theirs._qkv_same_embed_dim:
        values["input.weight"] = values.pop("in_proj_weight")
        return values if stacked_bias is None else values | {"input.bias": stacked_bias}
    for i, (letter, word) in enumerate((("q", "query"), ("k", "key"), ("v", "value"))):
        values[f"input.{word}.weight"] = values.pop(f"{letter}_proj_weight")
        if stacked_bias is not None:
            values[f"input.{word}.bias"] = stacked_bias.chunk(3)[i]
    return values


def compare(theirs: nn.Module, ours: nn.Module, inputs: list[Tensor], their_options: dict, our_options: dict) -> None:
    """Outputs, weights of each head and all gradients, of inputs and parameters; `inputs` without repeats."""
    inputs = [x.requires_grad_() for x in inputs]
    query, key, value = (inputs * 3)[:3] if len(inputs) == 1 else (*inputs, inputs[-1])[:3]
    want, want_weights = theirs(query, key, value, average_attn_weights=False, **their_options)
    got = ours(*inputs, **our_options)
    with_weights, weights = ours(*inputs, **our_options, return_weights=True)
    for y in (got, with_weights):
        torch.testing.assert_close(y, want, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(weights, want_weights, atol=1e-5, rtol=1e-5)

    upstream = torch.randn_like(want)
    names, parameters = zip(*theirs.named_parameters(), strict=True)
    grads = torch.autograd.grad(want, [*inputs, *parameters], upstream)
    want_grads = dict(enumerate(grads[: len(inputs)])) | renamed(
        theirs, dict(zip(names, grads[len(inputs) :], strict=True))
    )
    for y in (got, with_weights):
        names, parameters = zip(*ours.named_parameters(), strict=True)
        grads = torch.autograd.grad(y, [*inputs, *parameters], upstream, retain_graph=True)
        for name, grad in zip((*range(len(inputs)), *names), grads, strict=True):
            torch.testing.assert_close(grad, want_grads[name], atol=1e-5, rtol=1e-4, msg=f"gradient of {name}")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention(bias: bool, causal: bool) -> None:
    forbidden = torch.ones(m, m, dtype=torch.bool).triu(1)
    their_options = {"attn_mask": forbidden} if causal else {}
    compare(*pair(bias), [torch.randn(B, m, D)], their_options, {"causal": causal})


@pytest.mark.parametrize("bias", [True, False])
def test_cross_attention(bias: bool) -> None:
    compare(*pair(bias), [torch.randn(B, m, D), torch.randn(B, n, D)], {}, {})
    compare(*pair(bias), [torch.randn(B, m, D), torch.randn(B, n, D), torch.randn(B, n, D)], {}, {})


@pytest.mark.parametrize("bias", [True, False])
def test_keys_and_values_of_other_widths(bias: bool) -> None:
    theirs, ours = pair(bias, key_dim=10, value_dim=6)
    compare(theirs, ours, [torch.randn(B, m, D), torch.randn(B, n, 10), torch.randn(B, n, 6)], {}, {})


def test_key_padding() -> None:
    padding = torch.arange(n) >= LENGTHS[:, None]
    inputs = [torch.randn(B, m, D), torch.randn(B, n, D)]
    compare(*pair(), inputs, {"key_padding_mask": padding}, {"mask": masks.padding(LENGTHS)})
    compare(*pair(), inputs, {"key_padding_mask": padding}, {"mask": masks.padding(~padding)})


def test_mask_for_all_and_for_each_head() -> None:
    inputs = [torch.randn(B, m, D), torch.randn(B, n, D)]
    compare(*pair(), inputs, {"attn_mask": ~may}, {"mask": may})
    each = torch.rand(B, H, m, n) < 0.6
    each[..., 0] = True
    compare(*pair(), inputs, {"attn_mask": ~each.flatten(0, 1)}, {"mask": each})


def test_mask_and_padding_together() -> None:
    padding = torch.arange(n) >= LENGTHS[:, None]
    inputs = [torch.randn(B, m, D), torch.randn(B, n, D)]
    both = {"mask": masks.padding(LENGTHS) & may}
    compare(*pair(), inputs, {"attn_mask": ~may, "key_padding_mask": padding}, both)


def test_float_mask_is_our_bias() -> None:
    bias = torch.randn(m, n)
    inputs = [torch.randn(B, m, D), torch.randn(B, n, D)]
    compare(*pair(), inputs, {"attn_mask": bias}, {"bias": bias})
