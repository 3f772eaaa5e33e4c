"""Blocks and stacks in training on NVIDIA GPUs: residual, dropout and the next norm in one kernel.

Vaswani et al. 2017, sections 3.1 and 5.4; E3, E4. The kernel of residual_triton.py also sums up the gradient of the
sublayer's last bias. A block draws the seeds of all its dropout masks with one launch.

    B batch   m tokens   p model width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.attention.masks.algebra import Mask
from regard.attention.types import Cache, Source
from regard.kernels.fp8.linear import Fp8Linear
from regard.kernels.fused_class import FusedClass
from regard.kernels.training.fused_attention import KNOWN as ATTENTION, FusedMultiHeadAttention
from regard.kernels.training.fused_dropout import draw_seed, has_hooks, has_known_traits, is_plain, why_not_train
from regard.kernels.training.fused_feed_forward import KNOWN as FEED_FORWARD, FusedFeedForward
from regard.layers.block import Block, BlockCache
from regard.layers.normalization import LayerNorm, RMSNorm
from regard.models.stack import Stack

MAX_WIDTH = 4096  # p
KNOWN = frozenset({"block", "post-norm", "pre-norm", "cross-attention"})
NORMS = frozenset({"LayerNorm", "RMSNorm"})


class Carried(NamedTuple):
    """The input of a block inside a FusedStack, which passes it in place of x.

    A post-norm block reads its input twice, in the sublayer and in the residual. With the residual as a second tensor,
    `past`, each gradient arrives on its own, and the kernel adds them: see add_norm.

    A pre-norm block ends with a sum, and the next one begins with a norm. They are one kernel if this block knows the
    `next_norm`; its result is `past` of the next block.
    """

    x: Tensor
    past: Tensor
    next_norm: nn.Module | None


class Sublayer(NamedTuple):
    """Attention or feed-forward with its norm, and the arguments of its call after x."""

    norm: nn.Module
    module: nn.Module
    arguments: tuple[Tensor, ...]
    options: dict[str, Any]


class FusedBlock(FusedClass, Block):
    """Block in training on NVIDIA GPUs."""

    traits = Block.traits

    def forward(  # type: ignore[override]  # inside a FusedStack it returns a pair
        self,
        x: Tensor | Carried,
        *,
        mask: Mask | Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        memory: Tensor | Source | None = None,
        memory_mask: Mask | Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, m, p) -> (B, m, p); for a Carried also `past` of the next block."""
        if not isinstance(x, Carried):
            if self.why_not(x) is not None:
                return super().forward(x, mask=mask, causal=causal, cache=cache, memory=memory, memory_mask=memory_mask)
            x, past, next_norm = x, None, None
        else:
            x, past, next_norm = x
        self._check_memory(memory)
        options: dict[str, Any] = {"mask": mask, "causal": causal, **({} if cache is None else {"cache": cache})}
        sublayers = [Sublayer(self.self_norm, self.self_attention, (), options)]
        if self.cross_attention is not None and self.cross_norm is not None:
            source = (memory,) if isinstance(memory, Tensor) else ()
            options = {"mask": memory_mask, **({} if source else {"cache": memory})}
            sublayers.append(Sublayer(self.cross_norm, self.cross_attention, source, options))
        sublayers.append(Sublayer(self.feed_norm, self.feed_forward, (), {}))
        return self._run(sublayers, x, past, next_norm)

    def why_not(self, x: Tensor) -> str | None:
        """Return the reason why the kernels cannot add the sublayers' outputs to x, or None if they can."""
        if x.shape[-1] > MAX_WIDTH:
            return "the model is wider than 4096"
        if not is_plain(self.dropout, nn.Dropout) or not self.dropout.training:
            return "the dropout was replaced, switched off or hooked"
        return why_not_train(self, KNOWN, x, self.dropout.p)

    def _run(
        self, sublayers: Sequence[Sublayer], x: Tensor, past: Tensor | None, next_norm: nn.Module | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        count, dropout = len(sublayers), self.dropout.p
        seeds = draw_seed(x, 2 * count).split(1) if dropout else [None] * 2 * count
        pairs = zip(seeds[::2], seeds[1::2], strict=True)  # of each sublayer: inside, and on its output
        if self.order == "post":
            residual = x if past is None else past
            for sublayer, (inside, outside) in zip(sublayers, pairs, strict=True):
                x, residual = _add_norm(x, x, sublayer, sublayer.norm, residual, inside, outside, dropout, post=True)
            return x if past is None else (x, residual)
        normed = sublayers[0].norm(x) if past is None else past
        norms = [*(sublayer.norm for sublayer in sublayers[1:]), next_norm]
        for sublayer, norm, (inside, outside) in zip(sublayers, norms, pairs, strict=True):
            normed, x = _add_norm(x, normed, sublayer, norm, x, inside, outside, dropout, post=False)
        return x if past is None else (x, normed)


class FusedStack(FusedClass, Stack):
    """Stack whose fused blocks pass on what the next one needs; see Carried."""

    traits = Stack.traits

    def forward(
        self,
        x: Tensor,
        *,
        mask: Mask | Tensor | None = None,
        causal: bool = False,
        caches: Sequence[BlockCache] | None = None,
        memory: Tensor | Sequence[Source] | None = None,
        memory_mask: Mask | Tensor | None = None,
    ) -> Tensor:
        orders = {self._order(block, x) for block in self.blocks}
        if not has_known_traits(self, frozenset({"stack"})) or len(orders) != 1 or None in orders:
            return super().forward(x, mask=mask, causal=causal, caches=caches, memory=memory, memory_mask=memory_mask)
        next_norms: list[nn.Module | None] = [None] * len(self.blocks)
        past = x
        if orders == {"pre"}:
            past = self.blocks[0].self_norm(x)
            next_norms = [*(block.self_norm for block in self.blocks[1:]), self.norm]
        for number, block in enumerate(self.blocks):
            x, past = block(
                Carried(x, past, next_norms[number]),
                mask=mask,
                causal=causal,
                cache=None if caches is None else caches[number],
                memory=memory if memory is None or isinstance(memory, Tensor) else memory[number],
                memory_mask=memory_mask,
            )
        if orders == {"pre"}:
            return past  # the last block has applied the norm of the stack
        return x if self.norm is None else self.norm(x)

    def _order(self, block: Block, x: Tensor) -> str | None:
        """Return the order of a block that may be given a Carried, or None: a hook would see it in place of x.

        A compiled block may be given one: it is called like any other.
        """
        if not self.training or has_hooks(block) or type(block) is not FusedBlock or block.why_not(x) is not None:
            return None
        return block.order


def _add_norm(
    x: Tensor,
    sublayer_input: Tensor,
    sublayer: Sublayer,
    norm: nn.Module | None,
    past: Tensor,
    inside: Tensor | None,
    outside: Tensor | None,
    dropout: float,
    *,
    post: bool,
) -> tuple[Tensor, Tensor]:
    """Return norm(s) of s = x + dropout(sublayer(…)), and `past` of the next sum: s, or the next x itself."""
    from regard.kernels.training.residual_triton import add_dropped, add_norm

    fused = isinstance(norm, LayerNorm | RMSNorm) and is_plain(norm, LayerNorm, RMSNorm, known=NORMS)
    last_bias = None
    if _runs_in_block(sublayer):
        last_bias = _last_bias(sublayer.module) if fused else None
        h = sublayer.module._in_block(  # type: ignore[operator]
            sublayer_input, *sublayer.arguments, **sublayer.options, seed=inside, detach_bias=last_bias is not None
        )
    else:
        h = sublayer.module(sublayer_input, *sublayer.arguments, **sublayer.options)
    if x.dtype != h.dtype or not (norm is None or fused):  # the kernels take one dtype, and the norms that they know
        h = h if last_bias is None else h + (last_bias - last_bias.detach())  # adds zero, but passes on the gradient
        s = x + nn.functional.dropout(h, dropout)
        y = s if norm is None else norm(s)
        return y, y if post else s
    if norm is None:
        s = x + h if outside is None else add_dropped(x, h, outside, dropout)
        return s, s
    bias, centred = (norm.bias, True) if isinstance(norm, LayerNorm) else (None, False)
    return add_norm(x, past, h, last_bias, norm.weight, bias, outside, dropout, norm.eps, centred, post)


def _runs_in_block(sublayer: Sublayer) -> bool:
    """Whether a sublayer takes its seed from the block, which computes the gradient of its last bias."""
    module = sublayer.module
    if "cache" in sublayer.options:
        return False
    return is_plain(module, FusedMultiHeadAttention, known=ATTENTION) or is_plain(
        module, FusedFeedForward, known=FEED_FORWARD
    )


def _last_bias(module: nn.Module) -> Tensor | None:
    last = module.output if isinstance(module, FusedMultiHeadAttention) else module.down
    return last.bias if isinstance(last, nn.Linear) and is_plain(last, nn.Linear, Fp8Linear) else None
