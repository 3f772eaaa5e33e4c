"""What all Transformers are built from: tokens to vectors, and N blocks one upon the other.

Vaswani et al. 2017, sections 3.1, 3.4, 3.5; A1, B2, E5.

    B batch   m tokens   n source tokens   p model width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from regard.attention.mask_rules import Mask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.types import Cache, Source
from regard.kernels.training.fused_dropout import draw_seed, draws
from regard.layers.block import Block
from regard.layers.embedding import Embedding, check_integers
from regard.layers.feedforward import FeedForward
from regard.layers.normalization import LayerNorm, RMSNorm
from regard.models.attention_layers import make_attention
from regard.models.config import StackConfig
from regard.positions import Position, Sinusoidal, make_position


class TokenInput(nn.Module):
    """Token vectors with their positions put in, and dropout: what the first block sees."""

    def __init__(self, *, embedding: Embedding, position: Position | None, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.position = position
        self.dropout = nn.Dropout(dropout)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"token-input"})

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """tokens (B, m) -> (B, m, p); `positions` (m,) or (B, m) where they do not start at 0."""
        if tokens.dim() != 2:
            raise ValueError(f"tokens must be (B, length), got {tuple(tokens.shape)}")
        if positions is None:
            p = self.dropout.p if self.dropout.training else 0.0
            if p and isinstance(self.position, Sinusoidal | None) and draws("input", self.embedding.weight, p):
                return self._drawn(tokens, p)
        x = self.embedding(tokens)
        if self.position is not None:
            if positions is None:
                positions = torch.arange(tokens.shape[1], device=tokens.device)
            x = self.position.embed(x, positions)
        return self.dropout(x.to(_half_or(x.dtype, x.device)))

    def _drawn(self, tokens: Tensor, dropout: float) -> Tensor:
        """The same by a kernel, in training."""
        from regard.kernels.training.embedding_triton import embed_dropped

        check_integers(tokens)
        table, factor, pad_id = self.embedding.weight, self.embedding.factor, self.embedding.pad_id
        places = None
        if isinstance(self.position, Sinusoidal):
            places = self.position.rows(torch.arange(tokens.shape[1], device=tokens.device), torch.float32)
        dtype = _half_or(table.dtype, table.device)
        return embed_dropped(
            tokens, table, places, draw_seed(table), factor, dropout, -1 if pad_id is None else pad_id, dtype
        )


def _half_or(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """That of autocast where it is on, so that the residuals are in half precision too: half the bytes."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else dtype


class Stack(nn.Module):
    """N blocks, alike and with weights of their own; E5. Pre-norm blocks leave the last norm to the stack."""

    def __init__(self, *, blocks: Sequence[Block], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]  # it is a sequence
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
        caches: Sequence[Cache] | None = None,  # one for each block
        memory: Tensor | Sequence[Source] | None = None,  # (B, n, p), or one for each block
        memory_mask: Mask | Tensor | None = None,
    ) -> Tensor:
        """(B, m, p) -> (B, m, p)."""
        # Where kernels do the sums and norms, blocks hand on what the next one needs: see run_drawn.
        past: Tensor | None = None
        then: list[nn.Module | None] = [None] * len(self.blocks)
        drawn = {block.order if block.draws(x) else None for block in self.blocks if self.training}
        if drawn == {"post"}:
            past = x
        elif drawn == {"pre"}:
            past = self.blocks[0].self_norm(x)
            then = [*(block.self_norm for block in self.blocks[1:]), self.norm]
        for number, block in enumerate(self.blocks):
            found = block(
                x,
                mask=mask,
                causal=causal,
                cache=None if caches is None else caches[number],
                memory=memory if memory is None or isinstance(memory, Tensor) else memory[number],
                memory_mask=memory_mask,
                past=past,
                then=then[number],
            )
            x, past = (found, None) if past is None else found
        if past is not None and drawn == {"pre"}:
            return past
        return x if self.norm is None else self.norm(x)

    def new_caches(self, batch: int, capacity: int, *, static: bool = False) -> list[Cache]:
        """An empty self-attention cache for each block."""
        return [block.self_attention.new_cache(batch, capacity, static=static) for block in self.blocks]

    def project_source(self, states: Tensor, mask: Tensor | None = None) -> list[Source]:
        """The source (B, n, p), prepared once for each block's cross-attention: projected, or summed up.

        Sums cannot leave padding out later, so the mask (B, 1, 1, n) is asked here.
        """
        looks = [block.cross_attention for block in self.blocks if block.cross_attention is not None]
        return [
            look.project_source(states)
            if isinstance(look, MultiHeadAttention)
            else look.project_source(states, mask=mask)
            for look in looks
        ]


def make_input(config: StackConfig, vocabulary: int) -> TokenInput:
    """The embedding of these settings, with the position scheme if it is one that acts on embeddings."""
    position = _make_position(config, causal=False)
    return TokenInput(
        embedding=Embedding(vocabulary=vocabulary, dim=config.dim, scale=config.scale_embedding),
        position=position if position.acts_on == "embedding" else None,
        dropout=config.dropout,
    )


def make_stack(config: StackConfig, layers: int, *, causal: bool, cross: bool) -> Stack:
    """The blocks of these settings. A position scheme inside attention is one for the whole stack, but for Shaw's."""
    shared = _make_position(config, causal=causal)
    stack = "decoder" if causal else "encoder"

    def block(number: int) -> Block:
        position = None
        if shared.acts_on == "attention":
            # Shaw et al. 2018, section 3.3: the tables are shared by the heads, not by the layers.
            position = _make_position(config, causal=causal) if config.position == "relative" else shared
        return Block(
            self_attention=make_attention(config, f"{stack}.{number}.self", position),
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
        config.position, dim=config.dim, heads=config.heads, max_length=config.max_length, causal=causal
    )


def _norm(config: StackConfig) -> Callable[[], nn.Module]:
    if config.norm == "rms":
        return lambda: RMSNorm(config.dim)
    return lambda: LayerNorm(config.dim, bias=config.bias)
