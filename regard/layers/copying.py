"""Copying: the next token is generated from the vocabulary or copied from the source.

See, Liu & Manning 2017, "Get To The Point: Summarization with Pointer-Generator Networks", eq. 8 and 9; G3.

    B batch   n source tokens   m target tokens   p model width   V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class CopyGate(nn.Module):
    """Mix the distribution over the vocabulary with the attention over the source tokens.

        P(w) = p_gen P_vocab(w) + (1 - p_gen) sum_{j: w_j = w} a_j        (eq. 9)
        p_gen = sigmoid(w_c c + w_s s + w_x x + b)                        (eq. 8)

    c is the context that the attention a found, s the decoder's state, x its input. Source and target have one
    vocabulary. A token that training rarely or never showed as a target can still be copied.
    """

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(3 * dim, 1)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"copy-gate"})

    def forward(
        self,
        logits: Tensor,  # (B, m, V)
        weights: Tensor,  # (B, m, n): a, attention over the source
        tokens: Tensor,  # (B, n): w_j, the source
        *,
        context: Tensor,  # (B, m, p)
        state: Tensor,  # (B, m, p)
        inputs: Tensor,  # (B, m, p)
    ) -> Tensor:
        """Return log P, (B, m, V), at least in float32."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        gate = self._gate_logit(context, state, inputs).to(dtype)  # (B, m, 1)
        generated = torch.sigmoid(gate) * logits.softmax(-1, dtype=dtype)
        positions = tokens[:, None].expand_as(weights)  # (B, m, n)
        # 1 - p_gen would be 0, without a gradient, wherever p_gen is rounded to 1.
        mixed = generated.scatter_add(-1, positions, torch.sigmoid(-gate) * weights.to(dtype))
        return mixed.clamp_min(torch.finfo(dtype).tiny).log()

    def generation_probability(self, context: Tensor, state: Tensor, inputs: Tensor) -> Tensor:
        """Return p_gen, (B, m, 1)."""
        return torch.sigmoid(self._gate_logit(context, state, inputs))

    def _gate_logit(self, context: Tensor, state: Tensor, inputs: Tensor) -> Tensor:
        return self.gate(torch.cat([context, state, inputs], dim=-1))
