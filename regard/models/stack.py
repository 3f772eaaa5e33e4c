"""The parts that all Transformers share: tokens to vectors, and a stack of N blocks.

Vaswani et al. 2017, sections 3.1, 3.4, 3.5; A1, B2, E5.

    B batch   m tokens   n source tokens   p model width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from regard.attention.masks.algebra import Mask
from regard.attention.types import Source
from regard.layers.block import Block, BlockCache, StackBlock
from regard.layers.embedding import Embedding
from regard.layers.feedforward import FeedForward
from regard.layers.normalization import LayerNorm, RMSNorm
from regard.layers.ssru import SSRU
from regard.models.attention_layers import make_attention
from regard.models.config import StackConfig
from regard.positions import Position, make_position


class TokenInput(nn.Module):
    """The input of the first block: token vectors with their positions, normalized in some models, and dropout."""

    def __init__(
        self, *, embedding: Embedding, position: Position | None, dropout: float, norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.position = position
        self.norm = norm
        self.dropout = nn.Dropout(dropout)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"token-input", *(["input-norm"] if self.norm is not None else [])})

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """tokens (B, m) -> (B, m, p); `positions` (m,) or (B, m) if they do not start at 0."""
        self._check_tokens(tokens)
        x = self.embedding(tokens)
        if self.position is not None:
            if positions is None:
                positions = torch.arange(tokens.shape[1], device=tokens.device)
            x = self.position.embed(x, positions)
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x.to(residual_dtype(x)))

    def _check_tokens(self, tokens: Tensor) -> None:
        """Raise ValueError unless tokens are (B, length)."""
        if tokens.dim() != 2:
            raise ValueError(f"tokens must be (B, length), got {tuple(tokens.shape)}")


def residual_dtype(x: Tensor) -> torch.dtype:
    """Return autocast's dtype where it is on, so that the residuals take half the bytes; else the dtype of x."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class Stack(nn.Module):
    """N blocks of the same shape, each with its own weights; E5. Pre-norm blocks leave the last norm to the stack.

    A block is a Block, or a module of your own with the methods of StackBlock.
    """

    def __init__(self, *, blocks: Sequence[StackBlock], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment, arg-type]  # it is a sequence
        self.norm = norm

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"stack"})

    def forward(
        self,
        x: Tensor,  # (B, m, p)
        *,
        mask: Mask | Tensor | None = None,
        causal: bool = False,
        caches: Sequence[BlockCache] | None = None,  # one for each block
        memory: Tensor | Sequence[Source] | None = None,  # (B, n, p), or one for each block
        memory_mask: Mask | Tensor | None = None,
    ) -> Tensor:
        """(B, m, p) -> (B, m, p)."""
        for number, block in enumerate(self.blocks):
            x = block(
                x,
                mask=mask,
                causal=causal,
                cache=None if caches is None else caches[number],
                memory=memory if memory is None or isinstance(memory, Tensor) else memory[number],
                memory_mask=memory_mask,
            )
        return x if self.norm is None else self.norm(x)

    def new_caches(self, batch: int, capacity: int, *, static: bool = False) -> list[BlockCache]:
        """Return an empty self-attention cache for each block."""
        self._check_methods("new_cache")
        return [block.new_cache(batch, capacity, static=static) for block in self.blocks]

    def project_source(self, states: Tensor, mask: Tensor | None = None) -> list[Source]:
        """Prepare the source (B, n, p) once for the cross-attention of each block.

        Random features sum the source up, so they need the padding mask (B, 1, 1, n) already here.
        """
        self._check_methods("project_source")
        return [block.project_source(states, mask) for block in self.blocks]

    def _check_methods(self, method: str) -> None:
        """Raise TypeError if a block of the user's own cannot decode."""
        for number, block in enumerate(self.blocks):
            if not hasattr(block, method):
                raise TypeError(
                    f"block {number} ({type(block).__name__}) has no method {method}, which decoding needs: "
                    "regard.layers.block.StackBlock lists the methods of a block"
                )


def make_vector_position(config: StackConfig) -> Position | None:
    """Make the position scheme for inputs that are vectors already; None if it acts inside attention."""
    position = _make_position(config, causal=False)
    return position if position.acts_on == "embedding" else None


def make_input(config: StackConfig, vocabulary: int) -> TokenInput:
    """Make the input of these settings, with the position scheme if it acts on embeddings."""
    position = make_vector_position(config)
    return TokenInput(
        embedding=Embedding(
            vocabulary=vocabulary, dim=config.dim - (config.position_width or 0), scale=config.scale_embedding
        ),
        position=position,
        dropout=config.dropout,
        norm=_norm(config)() if config.input_norm else None,
    )


def make_stack(config: StackConfig, layers: int, *, causal: bool, cross: bool) -> Stack:
    """Make the blocks of these settings. They share a position scheme inside attention, except Shaw's."""
    shared = _make_position(config, causal=causal)
    stack = "decoder" if causal else "encoder"

    def block(number: int) -> Block:
        position = None
        if shared.acts_on == "attention":
            position = shared if shared.shared else _make_position(config, causal=causal)
        recurrent = causal and getattr(config, "decoder_self", "attention") == "ssru"
        return Block(
            self_attention=SSRU(dim=config.dim)
            if recurrent
            else make_attention(config, f"{stack}.{number}.self", position),
            cross_attention=make_attention(config, f"{stack}.{number}.cross", None) if cross else None,
            feed_forward=FeedForward(
                dim=config.dim,
                hidden=config.hidden,
                activation=config.activation,  # type: ignore[arg-type]
                bias=config.bias,
                dropout=config.hidden_dropout,
            ),
            norm=_norm(config),
            order=config.order,  # type: ignore[arg-type]
            dropout=config.dropout,
        )

    return Stack(
        blocks=[block(number) for number in range(layers)],
        norm=_norm(config)() if config.order == "pre" else None,
    )


def _make_position(config: StackConfig, *, causal: bool) -> Position:
    return make_position(
        config.position,
        dim=config.dim,
        heads=config.heads,
        max_length=config.max_length,
        head_dim=config.key_width,
        value_dim=config.value_width,
        causal=causal,
        start=config.position_start,
        first=config.frequency_start,
        base=config.position_base,
        layout=config.position_layout,
        width=config.position_width,
        rotary=config.rotary_options() if config.position == "rotary" else None,
    )


def _norm(config: StackConfig) -> Callable[[], nn.Module]:
    eps = {} if config.norm_eps is None else {"eps": config.norm_eps}
    if config.norm == "rms":
        return lambda: RMSNorm(config.dim, **eps)
    return lambda: LayerNorm(config.dim, bias=config.bias, **eps)
