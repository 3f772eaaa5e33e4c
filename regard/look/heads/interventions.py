"""Reach into attention: switch heads off, or say where they shall look, and see what the model makes of it.

D11, D16, H4. Michel et al. 2019, section 2.3, for heads that are switched off. Both are hooks: a model that nobody
reaches into is what it always was, and decoders in C and CUDA graphs leave the work to the modules meanwhile.

    B batch   H heads   m queries   n keys
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.mixed import Attention as Layer, MixedAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.recording.recorder import layer_name, running_eagerly
from regard.attention.single_head import KeyValueAttention
from regard.decoding.ensemble import Ensemble
from regard.errors import UsageError, unknown_name
from regard.look.trace.from_weights import map_of

Off = tuple[str, int, int]  # the map, the layer, the head
Attention = Layer | KeyValueAttention
Look = str | int | Tensor  # "uniform", the one key that all look at, or weights


def attention_layers(model: nn.Module) -> dict[str, Attention]:
    """The attention layers that a trace has maps of, by the names of regard.record."""
    if isinstance(model, Ensemble):
        raise UsageError("an ensemble is several models: reach into one of them, ensemble.models[0]")
    found = {
        layer_name(path): module
        for path, module in model.named_modules()
        if isinstance(module, Attention) and module.returns_weights
    }
    if not found:
        raise UsageError("this model has no attention layer of regard's")
    return found


@contextmanager
def heads_off(model: nn.Module, off: Iterable[Off]) -> Iterator[None]:
    """Switch heads off inside the block, by map, layer and head: what they give to W^O is zero.

        with heads_off(translator.model, [("cross", 0, 1)]):
            translator.translate("Le chat dort.")

    Maps are those of a trace: enc_self, dec_self, cross, rnn. A recurrent translator's one head gives the context.
    """
    barred = _by_layer(model, off) if (off := list(off)) else {}
    handles = []
    try:
        for layer, heads in barred.items():
            if not isinstance(layer, KeyValueAttention) and layer.output is not None:
                places = [layer.places[head] for head in heads] if isinstance(layer, MixedAttention) else heads
                handles.append(layer.output.register_forward_pre_hook(_silence(_heads(layer), places)))
            else:
                handles.append(layer.register_forward_hook(_silence_all(layer, heads)))
        with running_eagerly():
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def force_attention(model: nn.Module, looks: Mapping[str, Look]) -> Iterator[None]:
    """Make layers look where you say inside the block, by the names of regard.record: the weights used are those given.

        with force_attention(translator.model, {"decoder.2.cross": "uniform"}):
            translator.translate("Le chat dort.")

    A look is "uniform", a number (all look at the key of that place), or weights that broadcast to (B, H, m, n). One
    row of weights is for every query; several are for a pass over a whole text that has as many queries. What a mask
    bars stays barred: the others share its weight.
    """
    layers = attention_layers(model)
    handles = []
    try:
        for name, look in looks.items():
            if name not in layers:
                raise UsageError(unknown_name("attention layer", name, tuple(layers)))
            if isinstance(layers[name], RandomFeatureAttention | MixedAttention):
                raise UsageError(f"{name} has random features, and so no scores that could be replaced")
            handles.append(layers[name].register_forward_pre_hook(_scored(make_score(name, look)), with_kwargs=True))
        with running_eagerly():
            yield
    finally:
        for handle in handles:
            handle.remove()


def make_score(name: str, look: Look) -> Callable[[Tensor, Tensor], Tensor]:
    """The score whose softmax is the look: its logarithm."""
    if isinstance(look, str) and look != "uniform":
        raise UsageError(f"{name}: a look is 'uniform', the number of a key, or a tensor of weights; got {look!r}")
    if isinstance(look, Tensor) and (look.dim() < 2 or not bool((look >= 0).all())):
        raise UsageError(f"{name}: weights are numbers from 0 on, (m, n), (H, m, n) or (B, H, m, n)")

    def score(q: Tensor, k: Tensor) -> Tensor:
        m, n = q.shape[-2], k.shape[-2]
        if isinstance(look, str):
            return q.new_zeros(*q.shape[:-1], n)
        if isinstance(look, int):
            if not 0 <= look < n:
                raise UsageError(f"{name}: there is no key {look} to look at, only 0 to {n - 1}")
            weights = q.new_zeros(1, n)
            weights[:, look] = 1
        else:
            weights = look.to(q)
            if weights.shape[-1] != n or weights.shape[-2] not in (1, m):
                shape = list(weights.shape)
                raise UsageError(
                    f"{name}: weights {shape} do not fit {m} queries and {n} keys; one row fits all queries"
                )
        return weights.log().expand(*q.shape[:-1], n)

    return score


def _by_layer(model: nn.Module, off: Iterable[Off]) -> dict[Attention, list[int]]:
    """The heads to switch off, by their layers."""
    maps: dict[str, list[Attention]] = {}
    for name, layer in attention_layers(model).items():
        maps.setdefault(map_of(name), []).append(layer)
    barred: dict[Attention, list[int]] = {}
    for which, number, head in off:
        if which not in maps:
            raise UsageError(unknown_name("map", which, tuple(maps)))
        if not 0 <= number < len(maps[which]):
            raise UsageError(f"{which} has the layers 0 to {len(maps[which]) - 1}, and no {number}")
        layer = maps[which][number]
        heads = _heads(layer)
        if not 0 <= head < heads:
            raise UsageError(f"{which} has the heads 0 to {heads - 1} in each layer, and no {head}")
        barred.setdefault(layer, []).append(head)
    return barred


def _heads(layer: Attention) -> int:
    if isinstance(layer, MixedAttention):
        return len(layer.places)
    if isinstance(layer, RandomFeatureAttention):
        return layer.sizes.heads
    return layer.heads if isinstance(layer, MultiHeadAttention) else 1


def _silence(heads: int, off: list[int]) -> Callable:
    """A hook that puts zeros in front of W^O where these heads' outputs stand."""

    def hook(output: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        y = args[0].unflatten(-1, (heads, -1)).clone()  # (B, m, H, d_v)
        y[..., off, :] = 0
        return (y.flatten(-2),)

    return hook


def _silence_all(layer: Attention, off: list[int]) -> Callable:
    """The same for a layer without W^O, behind it."""
    silence = _silence(_heads(layer), off)

    def hook(module: nn.Module, args: tuple, result: Tensor | tuple[Tensor, Tensor]) -> Any:
        if isinstance(result, Tensor):
            return silence(module, (result,))[0]
        return silence(module, (result[0],))[0], result[1]

    return hook


def _scored(score: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """A hook that gives a layer this score."""

    def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return args, {**kwargs, "score": score}

    return hook
