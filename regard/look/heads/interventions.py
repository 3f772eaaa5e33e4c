"""Intervene in attention: switch heads off, or replace their weights, and see the effect on the output.

D11, D16, H4. Michel et al. 2019, section 2.3, for switching heads off. Both use hooks, so they do not change the model.
The C decoder and the CUDA graphs fall back to the plain modules meanwhile.

    B batch   H heads   m queries   n keys
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.mixed import MixedAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.recording.recorder import layer_name, running_eagerly
from regard.attention.single_head import KeyValueAttention
from regard.attention.types import Attention as Layer
from regard.decoding.ensemble import Ensemble
from regard.errors import UsageError, unknown_name
from regard.look.trace.from_weights import map_of

Off = tuple[str, int, int]  # the map, the layer, the head
Attention = Layer | KeyValueAttention
Look = str | int | Tensor  # "uniform", the index of the only key with weight, or weights


def attention_layers(model: nn.Module) -> dict[str, Attention]:
    """Return the attention layers that a trace has maps of, by their names in regard.record."""
    if isinstance(model, Ensemble):
        raise UsageError("an ensemble has several models: intervene in one of them, for example ensemble.models[0]")
    layers = {
        layer_name(path): module
        for path, module in model.named_modules()
        if isinstance(module, Attention) and module.returns_weights
    }
    if not layers:
        raise UsageError("this model has none of regard's attention layers")
    return layers


@contextmanager
def heads_off(model: nn.Module, off: Iterable[Off]) -> Iterator[None]:
    """Switch heads off in a `with` block, by map, layer and head: their output before W^O becomes zero.

        with heads_off(translator.model, [("cross", 0, 1)]):
            translator.translate("Le chat dort.")

    The maps are those of a trace: enc_self, dec_self, cross, rnn. The head of a recurrent translator is its context.
    """
    switched_off = _by_layer(model, off) if (off := list(off)) else {}
    handles = []
    try:
        for layer, heads in switched_off.items():
            if not isinstance(layer, KeyValueAttention) and layer.output is not None:
                indices = [layer.places[head] for head in heads] if isinstance(layer, MixedAttention) else heads
                handles.append(layer.output.register_forward_pre_hook(_silence(_heads(layer), indices)))
            else:
                handles.append(layer.register_forward_hook(_silence_all(layer, heads)))
        with running_eagerly():
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def force_attention(model: nn.Module, looks: Mapping[str, Look]) -> Iterator[None]:
    """Replace the attention weights of layers in a `with` block, by their names in regard.record.

        with force_attention(translator.model, {"decoder.2.cross": "uniform"}):
            translator.translate("Le chat dort.")

    A value is "uniform", the index of a key (all weight on that key), or weights that broadcast to (B, H, m, n). One
    row of weights serves every query; several rows need a pass over a whole text with as many queries. Masked keys stay
    masked: the other keys share their weight.
    """
    layers = attention_layers(model)
    handles = []
    try:
        for name, look in looks.items():
            if name not in layers:
                raise UsageError(unknown_name("attention layer", name, tuple(layers)))
            if isinstance(layers[name], RandomFeatureAttention | MixedAttention):
                raise UsageError(f"{name} uses random features, which have no scores to replace")
            handles.append(
                layers[name].register_forward_pre_hook(_replace_score(make_score(name, look)), with_kwargs=True)
            )
        with running_eagerly():
            yield
    finally:
        for handle in handles:
            handle.remove()


def make_score(name: str, look: Look) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the score function whose softmax gives these weights: their logarithm."""
    if isinstance(look, str) and look != "uniform":
        raise UsageError(f"{name}: pass 'uniform', the index of a key, or a tensor of weights; got {look!r}")
    if isinstance(look, Tensor) and (look.dim() < 2 or not bool((look >= 0).all())):
        raise UsageError(f"{name}: weights must be non-negative and of shape (m, n), (H, m, n) or (B, H, m, n)")

    def score(q: Tensor, k: Tensor) -> Tensor:
        m, n = q.shape[-2], k.shape[-2]
        if isinstance(look, str):
            return q.new_zeros(*q.shape[:-1], n)
        if isinstance(look, int):
            if not 0 <= look < n:
                raise UsageError(f"{name}: there is no key {look}; the keys are 0 to {n - 1}")
            weights = q.new_zeros(1, n)
            weights[:, look] = 1
        else:
            weights = look.to(q)
            if weights.shape[-1] != n or weights.shape[-2] not in (1, m):
                shape = list(weights.shape)
                raise UsageError(
                    f"{name}: weights {shape} do not fit {m} queries and {n} keys; one row serves all queries"
                )
        return weights.log().expand(*q.shape[:-1], n)

    return score


def _by_layer(model: nn.Module, off: Iterable[Off]) -> dict[Attention, list[int]]:
    """Group the heads to switch off by layer."""
    maps: dict[str, list[Attention]] = {}
    for name, layer in attention_layers(model).items():
        maps.setdefault(map_of(name), []).append(layer)
    by_layer: dict[Attention, list[int]] = {}
    for which, number, head in off:
        if which not in maps:
            raise UsageError(unknown_name("map", which, tuple(maps)))
        if not 0 <= number < len(maps[which]):
            raise UsageError(f"{which} has layers 0 to {len(maps[which]) - 1}, not {number}")
        layer = maps[which][number]
        heads = _heads(layer)
        if not 0 <= head < heads:
            raise UsageError(f"{which} has heads 0 to {heads - 1} in each layer, not {head}")
        by_layer.setdefault(layer, []).append(head)
    return by_layer


def _heads(layer: Attention) -> int:
    if isinstance(layer, MixedAttention):
        return len(layer.places)
    if isinstance(layer, RandomFeatureAttention):
        return layer.sizes.heads
    return layer.heads if isinstance(layer, MultiHeadAttention) else 1


def _silence(heads: int, off: list[int]) -> Callable:
    """Return a hook that sets the outputs of these heads to zero before W^O."""

    def hook(output: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        y = args[0].unflatten(-1, (heads, -1)).clone()  # (B, m, H, d_v)
        y[..., off, :] = 0
        return (y.flatten(-2),)

    return hook


def _silence_all(layer: Attention, off: list[int]) -> Callable:
    """Return a hook that does the same for a layer without W^O, on its output."""
    silence = _silence(_heads(layer), off)

    def hook(module: nn.Module, args: tuple, result: Tensor | tuple[Tensor, Tensor]) -> Any:
        if isinstance(result, Tensor):
            return silence(module, (result,))[0]
        return silence(module, (result[0],))[0], result[1]

    return hook


def _replace_score(score: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """Return a hook that replaces the score of a layer."""

    def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return args, {**kwargs, "score": score}

    return hook
