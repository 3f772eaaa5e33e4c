"""Record the attention weights of other libraries: PyTorch's own layers, and those of `transformers` models.

H4. A hook requests the weights of each head from PyTorch's `MultiheadAttention` and returns to the caller what it asked
for. The eager attention of `transformers` always returns its weights; its other implementations have none.

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
# The arguments of PyTorch's MultiheadAttention.forward, in order.
ARGUMENTS = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights")
CROSS = ("multihead_attn", "encoder_attn", "cross_attn", "cross_attention", "crossattention", "EncDecAttention")


def foreign_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the attention layers of PyTorch and `transformers` by names like ours: encoder.0.self, decoder.1.cross.

    A layer without a number, or whose name is already in use, is named by its path.
    """
    modules = dict(model.named_modules())
    layers: dict[str, nn.Module] = {}
    for path, module in modules.items():
        if isinstance(module, nn.MultiheadAttention) or _is_transformers(module):
            name = foreign_name(path, module, modules[path.rpartition(".")[0]])
            layers[path if name in layers else name] = module
    return layers


def foreign_name(path: str, module: nn.Module, parent: nn.Module) -> str:
    """Return the name of a layer at this path, inside this parent."""
    parts = path.split(".")
    numbers = [part for part in parts if part.isdigit()]
    if not numbers:
        return path or "attention"
    cross = any(part in CROSS for part in parts)
    causal = getattr(module, "is_causal", False) and "encoder" not in parts
    decodes = cross or causal or "decoder" in parts or isinstance(parent, nn.TransformerDecoderLayer)
    return f"{'decoder' if decodes else 'encoder'}.{numbers[0]}.{'cross' if cross else 'self'}"


def record_layer(module: nn.Module, store: Store) -> list[RemovableHandle]:
    """Add hooks that store the weights of a foreign layer each time it runs."""
    if not isinstance(module, nn.MultiheadAttention):
        return [module.register_forward_hook(_store_returned(store))]
    requests: list[tuple[bool, bool]] = []
    ask, take = _request_weights(requests), _store_requested(requests, store)
    return [
        module.register_forward_pre_hook(ask, with_kwargs=True),
        module.register_forward_hook(take, prepend=True),
    ]


@contextmanager
def plain_torch_layers() -> Iterator[None]:
    """Turn off the fused path of PyTorch's encoder layers inside the block, because it runs no hooks."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _is_transformers(module: nn.Module) -> bool:
    """Whether this is the innermost attention module of a `transformers` model; UsageError unless it is eager."""

    def is_attention(candidate: nn.Module) -> bool:
        kind = type(candidate)
        return kind.__module__.startswith("transformers.") and kind.__name__.endswith("Attention")

    if not is_attention(module) or any(is_attention(child) for child in module.modules() if child is not module):
        return False
    implementation = getattr(getattr(module, "config", None), "_attn_implementation", "eager")
    if implementation != "eager":
        raise UsageError(
            f"this model computes attention with {implementation!r}, which returns no weights: load it with "
            'attn_implementation="eager"'
        )
    return True


def _request_weights(requests: list[tuple[bool, bool]]) -> Callable:
    """Return a hook that requests the weights of each head and stores what the caller requested."""

    def ask(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        arguments = {**dict(zip((*ARGUMENTS, "is_causal"), args, strict=False)), **kwargs}
        requests.append((arguments.get("need_weights", True), arguments.get("average_attn_weights", True)))
        return (), {**arguments, "need_weights": True, "average_attn_weights": False}

    return ask


def _store_requested(requests: list[tuple[bool, bool]], store: Store) -> Callable:
    """Return a hook that stores the weights and returns what the caller requested."""

    def take(module: nn.Module, args: tuple, result: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
        output, weights = result  # weights (B, H, m, n), or (H, m, n) without a batch
        store((weights if weights.dim() == 4 else weights[None]).detach())
        wanted, averaged = requests.pop()
        if not wanted:
            return output, None
        return output, weights.mean(-3) if averaged else weights

    return take


def _store_returned(store: Store) -> Callable:
    """Return a hook that stores what eager attention returns beside its output: its last tensor (B, H, m, n)."""

    def take(module: nn.Module, args: tuple, result: Any) -> None:
        items = result if type(result) is tuple else ()
        weights = [item for item in items if isinstance(item, Tensor) and item.dim() == 4]
        if not weights:
            raise UsageError(f"{type(module).__name__} returned no attention weights beside its output")
        store(weights[-1].detach())

    return take
