"""What attention.py times: the same attention by regard, torch and x-transformers, each at its fastest.

B batch   H heads   m queries   n keys   d head width   D = H · d model width
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from benchmarks.timing import Run

H, d = 8, 64
D = H * d
UNEQUAL = "bare sdpa"  # does less than the others, so no cell is judged against it
HAS_X_TRANSFORMERS = importlib.util.find_spec("x_transformers") is not None
Forms = dict[str, dict[str, Run]]  # contender -> its forms, of which the fastest will run
Call = tuple[str, str, nn.Module, Run]  # contender, form, module, what to time


@dataclass(frozen=True)
class Cell:
    """One line of the table."""

    subject: str  # "attend" or "multihead"
    work: str  # "forward", "backward" (forward and backward) or "step" (m = 1, the other n - 1 keys in a cache)
    mask: str  # "none", "causal" or "padding"
    n: int

    @property
    def m(self) -> int:
        return 1 if self.work == "step" else self.n


@dataclass(frozen=True)
class Setting:
    """Where and with what numbers to measure."""

    device: str
    dtype: torch.dtype
    B: int

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device, dtype=self.dtype)

    def keep(self, n: int) -> Tensor:
        """(B, n), False for the padding on the left: between a quarter and a half of each sentence."""
        hidden = torch.linspace(n // 4, n // 2, self.B, device=self.device).long()
        return torch.arange(n, device=self.device) >= hidden[:, None]


def attend_runs(cell: Cell, setting: Setting) -> Forms:
    """The forms of each contender, by name."""
    q = setting.randn(setting.B, H, cell.m, d)
    k, v = setting.randn(setting.B, H, cell.n, d), setting.randn(setting.B, H, cell.n, d)
    mask = setting.keep(cell.n)[:, None, None] if cell.mask == "padding" else None  # (B, 1, 1, n)
    causal = cell.mask == "causal"
    is_causal = causal and cell.work != "step"  # the last query sees every key, which SDPA's flag does not know

    def ours() -> Tensor:
        return regard.attend(q, k, v, mask=mask, causal=causal)

    def bare() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)

    def zeroed() -> Tensor:
        return bare() * mask.any(-1, keepdim=True)

    runs = {"regard": ours, "sdpa": bare}
    if mask is not None and q.is_cuda and q.dtype != torch.float32:
        # There bare SDPA (cuDNN) gives rows without keys the mean of the values and NaN gradients. Ours gives zeros, so
        # equal work is SDPA with such rows set to zero; the bare call is shown and not judged.
        runs = {"regard": ours, "sdpa": zeroed, UNEQUAL: bare}
    if cell.work == "backward":
        inputs, g = [x.requires_grad_() for x in (q, k, v)], setting.randn(*q.shape)
        runs = {name: and_backward(run, inputs, g) for name, run in runs.items()}
    return {name: {"": run} for name, run in runs.items()}


def and_backward(run: Run, inputs: list[Tensor], g: Tensor) -> Run:
    def both() -> tuple[Tensor, ...]:
        y = run()
        return y, *torch.autograd.grad(y, inputs, g)

    return both


def multihead_runs(cell: Cell, setting: Setting) -> Forms:
    """The forms of each contender, by name; all without biases, since x-transformers has none."""
    ours = regard.MultiHeadAttention(dim=D, heads=H, bias=False).to(setting.device, setting.dtype)
    x = setting.randn(setting.B, cell.n, D)
    keep = setting.keep(cell.n) if cell.mask == "padding" else None
    calls = [*our_calls(ours, x, keep, cell), *torch_calls(ours, x, keep, cell)]
    if HAS_X_TRANSFORMERS:
        calls += x_transformers_calls(ours, x, keep, cell)
    g = setting.randn(*x.shape)
    forms: Forms = {}
    for name, form, module, run in calls:
        if cell.work == "backward":
            run = and_backward(run, [x.requires_grad_(), *module.parameters()], g)
        forms.setdefault(name, {})[form] = run
    return forms


def our_calls(layer: regard.MultiHeadAttention, x: Tensor, keep: Tensor | None, cell: Cell) -> list[Call]:
    mask = None if keep is None else regard.masks.padding(keep)
    if cell.work != "step":
        causal = cell.mask == "causal"
        return [("regard", "", layer, lambda: layer(x, mask=mask, causal=causal))]
    cache = layer.new_cache(x.shape[0], cell.n)
    layer(x[:, :-1], causal=True, cache=cache)
    last = x[:, -1:]

    def step() -> Tensor:
        cache.length = cell.n - 1  # forget the token of the last call
        return layer(last, mask=mask, causal=True, cache=cache)

    return [("regard", "KVCache", layer, step)]


def torch_calls(layer: regard.MultiHeadAttention, x: Tensor, keep: Tensor | None, cell: Cell) -> list[Call]:
    """nn.MultiheadAttention: its general path and, without gradients, its native one, which exists only with biases.

    It has no cache: in a step it has to project all n keys and values again.
    """
    general, native = (nn.MultiheadAttention(D, H, bias=bias, batch_first=True).to(x) for bias in (False, True))
    with torch.no_grad():
        for module in (general, native):
            module.in_proj_weight.copy_(layer.input.weight)
            module.out_proj.weight.copy_(layer.output.weight)
    hidden = None if keep is None else ~keep
    if cell.work == "step":
        last = x[:, -1:]
        return [
            ("torch", "no cache", general, lambda: general(last, x, x, key_padding_mask=hidden, need_weights=False)[0])
        ]
    is_causal = cell.mask == "causal"
    later = torch.ones(cell.n, cell.n, dtype=torch.bool, device=x.device).triu(1) if is_causal else None
    # A bool mask would be turned into this one in each call; the general path then drops it for SDPA's own flag.
    never = None if later is None else torch.zeros(later.shape).to(x).masked_fill(later, float("-inf"))

    def run_general() -> Tensor:
        return general(x, x, x, hidden, need_weights=False, attn_mask=never, is_causal=is_causal)[0]

    def run_native() -> Tensor:
        return native(x, x, x, hidden, need_weights=False, attn_mask=later, is_causal=is_causal)[0]

    calls: list[Call] = [("torch", "general", general, run_general)]
    return calls if cell.work == "backward" else [*calls, ("torch", "native", native.eval(), run_native)]


def x_transformers_calls(layer: regard.MultiHeadAttention, x: Tensor, keep: Tensor | None, cell: Cell) -> list[Call]:
    """x_transformers.Attention with flash=True and all of SDPA's kernels."""
    from x_transformers import Attention

    kernels = dict.fromkeys(("enable_flash", "enable_math", "enable_mem_efficient", "enable_cudnn"), True)
    causal = cell.mask == "causal" or cell.work == "step"
    module = Attention(D, dim_head=d, heads=H, causal=causal, flash=True, attend_sdp_kwargs=kernels).to(x)
    with torch.no_grad():
        for part, weight in zip(("to_q", "to_k", "to_v"), layer.input.weight.chunk(3), strict=True):
            getattr(module, part).weight.copy_(weight)
        module.to_out.weight.copy_(layer.output.weight)
    # As context_mask it hides keys and no more; as mask it would also set outputs to zero.
    if cell.work != "step":
        return [("x-transformers", "", module, lambda: module(x, context_mask=keep))]
    last, (_, cache) = x[:, -1:], module(x[:, :-1], return_intermediates=True)
    return [
        (
            "x-transformers",
            "its cache",
            module,
            lambda: module(last, context_mask=keep, cache=cache, return_intermediates=True)[0],
        )
    ]
