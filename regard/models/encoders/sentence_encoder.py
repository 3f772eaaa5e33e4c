"""The sentence encoder: it maps a text to one vector, so that texts can be compared.

Reimers & Gurevych 2019; A3.

    B batch   n tokens   p model width
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.single_head import ContentAttention
from regard.models.config import EncoderConfig
from regard.models.decoding_state import Encoded
from regard.models.stack import make_input, make_stack


class SentenceEncoder(nn.Module):
    """A Transformer encoder and a pooling: mean, max, the first token, or learned by attention; A3."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.input = make_input(config, config.vocabulary)
        self.encoder = make_stack(config, config.layers, causal=False, cross=False)
        self.pool = ContentAttention(outputs=1, dim=config.dim) if config.pooling == "learned" else None

    @property
    def traits(self) -> frozenset[str]:
        """The model's name and its pooling; see regard.traits."""
        return frozenset({"SentenceEncoder", f"pooling {self.config.pooling}"})

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, n) -> one vector per sentence (B, p), of unit length if `config.normalize`."""
        encoded = self.encode(tokens)
        return self.pooled(encoded.states, encoded.keep)

    def encode(self, tokens: Tensor) -> Encoded:
        """(B, n) -> one vector per token (B, n, p); tokens equal to pad_id are padding."""
        keep = tokens != self.config.pad_id
        return Encoded(self.encoder(self.input(tokens), mask=keep[:, None, None]), keep)

    def pooled(self, states: Tensor, keep: Tensor) -> Tensor:
        """states (B, n, p), keep (B, n) -> one vector per sentence (B, p), of unit length if `config.normalize`."""
        x = self._pooled(states, keep)
        return F.normalize(x, dim=-1) if self.config.normalize else x

    def _pooled(self, x: Tensor, keep: Tensor) -> Tensor:
        """x (B, n, p), keep (B, n) -> (B, p). A sentence without tokens gives the zero vector."""
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], x.shape[2])
        if self.pool is not None:
            return self.pool(x, mask=keep[:, None])[:, 0]
        if self.config.pooling == "first":
            return x[:, 0] * keep[:, :1]
        if self.config.pooling == "max":
            highest = x.masked_fill(~keep[..., None], float("-inf")).amax(1)
            return highest.masked_fill(~keep.any(1, keepdim=True), 0.0)
        total = (x * keep[..., None]).sum(1)
        return total / keep.sum(1, keepdim=True).clamp(min=1)
