"""Attention layers that are not ours, made to tell their weights: torch's own, and those of `transformers` models.

H4. torch's `MultiheadAttention` is asked for the weights of each head, and its caller gets what it wanted. An eager
attention of `transformers` gives its weights away in any case; its fast ones have none.

    B batch   H heads   m queries   n keys
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.errors import UsageError

Store = Callable[[Tensor], None]  # takes weights (B, H, m, n)
# What the arguments of torch's MultiheadAttention.forward are called, in their order.
ARGUMENTS = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights")
CROSS = ("multihead_attn", "encoder_attn", "cross_attn", "cross_attention", "crossattention", "EncDecAttention")


def foreign_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The attention layers that are torch's or of `transformers`, by names like ours: encoder.0.self, decoder.1.cross.

    One that is not numbered, or whose name is taken, is called by its path.
    """
    modules = dict(model.named_modules())
    found: dict[str, nn.Module] = {}
    for path, module in modules.items():
        if isinstance(module, nn.MultiheadAttention) or _is_transformers(module):
            name = foreign_name(path, module, modules[path.rpartition(".")[0]])
            found[path if name in found else name] = module
    return found


def foreign_name(path: str, module: nn.Module, parent: nn.Module) -> str:
    """What a layer at this path, inside this parent, is called."""
    parts = path.split(".")
    numbers = [part for part in parts if part.isdigit()]
    if not numbers:
        return path or "attention"
    cross = any(part in CROSS for part in parts)
    causal = getattr(module, "is_causal", False) and "encoder" not in parts
    decodes = cross or causal or "decoder" in parts or isinstance(parent, nn.TransformerDecoderLayer)
    return f"{'decoder' if decodes else 'encoder'}.{numbers[0]}.{'cross' if cross else 'self'}"


def watch_layer(module: nn.Module, store: Store) -> list[RemovableHandle]:
    """Hooks that store the weights of a foreign layer each time it runs."""
    if not isinstance(module, nn.MultiheadAttention):
        return [module.register_forward_hook(_take_given(store))]
    wishes: list[tuple[bool, bool]] = []
    ask, take = _ask_torch(wishes), _take_torch(wishes, store)
    return [
        module.register_forward_pre_hook(ask, with_kwargs=True),
        module.register_forward_hook(take, prepend=True),
    ]


@contextmanager
def plain_torch_layers() -> Iterator[None]:
    """torch's encoder layers do without their fused path inside the block: it runs no hooks."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _is_transformers(module: nn.Module) -> bool:
    """Whether it is the innermost attention of a `transformers` model, which must be an eager one."""

    def is_attention(one: nn.Module) -> bool:
        return type(one).__module__.startswith("transformers.") and type(one).__name__.endswith("Attention")

    if not is_attention(module) or any(is_attention(one) for one in module.modules() if one is not module):
        return False
    way = getattr(getattr(module, "config", None), "_attn_implementation", "eager")
    if way != "eager":
        raise UsageError(
            f"this model computes its attention by {way!r}, which has no weights to give: load it with "
            'attn_implementation="eager"'
        )
    return True


def _ask_torch(wishes: list[tuple[bool, bool]]) -> Callable:
    """A hook that asks for the weights of each head, and notes what the caller wanted."""

    def ask(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        given = {**dict(zip((*ARGUMENTS, "is_causal"), args, strict=False)), **kwargs}
        wishes.append((given.get("need_weights", True), given.get("average_attn_weights", True)))
        return (), {**given, "need_weights": True, "average_attn_weights": False}

    return ask


def _take_torch(wishes: list[tuple[bool, bool]], store: Store) -> Callable:
    """A hook that stores the weights and gives the caller what it wanted."""

    def take(module: nn.Module, args: tuple, result: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
        output, weights = result  # weights (B, H, m, n), or (H, m, n) without a batch
        store((weights if weights.dim() == 4 else weights[None]).detach())
        wanted, averaged = wishes.pop()
        if not wanted:
            return output, None
        return output, weights.mean(-3) if averaged else weights

    return take


def _take_given(store: Store) -> Callable:
    """A hook that stores what an eager attention gives beside its output: the last of its tensors (B, H, m, n)."""

    def take(module: nn.Module, args: tuple, result: Any) -> None:
        found = [one for one in result if isinstance(one, Tensor) and one.dim() == 4] if type(result) is tuple else []
        if not found:
            raise UsageError(f"{type(module).__name__} gave no attention weights beside its output")
        store(found[-1].detach())

    return take
