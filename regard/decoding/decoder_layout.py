"""What the fast decoders (gpu/, cpu/) ask about a model before they take over its decoding steps.

A fast decoder computes the blocks of a Transformer's decoder without calling their modules. It must therefore know
everything that these modules do. It declares the traits that it implements (see regard.traits), and `why_not` refuses
a model with any other trait, so that the plain modules decode instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set
from typing import Any

from torch import nn

from regard.layers.block import Block
from regard.models.language_model import TransformerLM
from regard.models.stack import Stack, TokenInput
from regard.models.transformer import Transformer
from regard.traits import own_traits, traits_of, why_not_known

ENCODER_PARTS = ("source", "encoder")  # run as modules by every decoder
# What the model, its stack and its blocks may do; a decoder adds what its attention and its embedding may do.
BLOCK_TRAITS = frozenset(
    {
        *("Transformer", "TransformerLM", "tied-output", "untied-output"),
        *("stack", "block", "pre-norm", "post-norm", "cross-attention", "LayerNorm", "RMSNorm"),
        *("feed-forward", "feed-forward-bias"),
        *("activation relu", "activation gelu", "activation gelu-tanh", "activation swiglu"),
        *("attention", "attention-bias", "input-bias", "grouped-query"),
        *("position Rotary", "rotary-interleaved", "rotary-fraction", "rotary-scaling"),
    }
)
INPUT_TRAITS = frozenset({"token-input", "embedding", "scaled-embedding", "padding-row"})


def why_not(model: nn.Module, known: Set[str], *, runs_input: bool) -> str | None:
    """Return the reason why a decoder that implements the traits `known` must refuse a model, or None.

    `runs_input` says whether the decoder calls the module that turns tokens into vectors; it need not know its traits.
    """
    if not isinstance(model, Transformer | TransformerLM):
        return f"a {type(model).__name__} has no Transformer decoder"
    skipped = [
        *ENCODER_PARTS,
        *(name for name, part in model.named_children() if runs_input and part is input_of(model)),
    ]
    parts = [part for name, part in model.named_children() if name not in skipped]
    traits = own_traits(model).union(*map(traits_of, parts))
    return why_not_known(traits, known) or why_not_alike(model.decoder)


def why_not_alike(stack: Stack) -> str | None:
    """Return the reason why one description cannot serve all blocks of a stack, or None."""
    if len(set(map(_describe, stack.blocks))) > 1:
        return "its blocks differ in attention, head sizes, positions, order of the norms or activation"
    first: Any = stack.blocks[0]
    own_sizes = getattr(first.self_attention.input, "sizes", None)  # an SSRU has no heads
    if None not in (first.cross_attention, own_sizes) and first.cross_attention.input.sizes != own_sizes:
        return "its cross-attention has other head sizes than its self-attention"
    if (first.order == "pre") != (stack.norm is not None):
        return "only pre-norm blocks end with one more norm, and they need it"
    return None


def _describe(block: Block) -> Hashable:
    attention: Any = block.self_attention
    cross: Any = block.cross_attention
    feed: Any = block.feed_forward
    sizes = getattr(attention.input, "sizes", None), None if cross is None else cross.input.sizes
    position = repr(getattr(attention, "position", None))
    return type(attention), type(cross), sizes, position, block.order, feed.activation


def input_of(model: Any) -> TokenInput:
    """Return the module that turns the tokens of the text into vectors."""
    return model.target if isinstance(model, Transformer) else model.input


def why_not_hooked(modules: Iterable[nn.Module]) -> str | None:
    """Return the reason why these modules must be called, or None if no hook waits for that."""
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    return "forward hooks watch its modules" if hooked else None


def all_modules(model: nn.Module) -> list[nn.Module]:
    """Return the model and all modules inside it, each once, faster than model.modules(): every call asks for them."""
    modules, seen = [model], {model}
    for module in modules:  # the list grows meanwhile
        for child in module._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                modules.append(child)
    return modules
