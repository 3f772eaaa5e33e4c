"""The input of the first block with look-up, scale, positions and dropout in one kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.kernels.fused_class import FusedClass
from regard.kernels.training.fused_dropout import draw_seed, is_plain, why_not_train
from regard.layers.embedding import Embedding, check_integers
from regard.models.stack import TokenInput, residual_dtype
from regard.positions import Sinusoidal

EMBEDDING = frozenset({"embedding", "scaled-embedding", "padding-row"})
POSITION = frozenset({"position Sinusoidal"})


class FusedTokenInput(FusedClass, TokenInput):
    """TokenInput in training on NVIDIA GPUs."""

    traits = TokenInput.traits

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        if positions is not None or self.why_not() is not None:
            return super().forward(tokens, positions)
        from regard.kernels.training.embedding_triton import embed_dropped

        self._check_tokens(tokens)
        check_integers(tokens)
        table, factor, pad_id = self.embedding.weight, self.embedding.factor, self.embedding.pad_id
        vectors = None
        if self.position is not None:
            assert isinstance(self.position, Sinusoidal)
            vectors = self.position.rows(torch.arange(tokens.shape[1], device=tokens.device), torch.float32)
        seed, dropout = draw_seed(table), self.dropout.p
        return embed_dropped(
            tokens, table, vectors, seed, factor, dropout, -1 if pad_id is None else pad_id, residual_dtype(table)
        )

    def why_not(self) -> str | None:
        """Return the reason why the kernel cannot make the input, or None if it can."""
        if not is_plain(self.dropout, nn.Dropout) or not (self.dropout.training and self.dropout.p):
            return "without dropout there is little to fuse, or the dropout was replaced or hooked"
        if not is_plain(self.embedding, Embedding, known=EMBEDDING):
            return "the kernel does not implement this embedding, or it has hooks"
        if self.position is not None and not is_plain(self.position, Sinusoidal, known=POSITION):
            return "the kernel implements sinusoidal positions only, without hooks"
        return why_not_train(self, frozenset({"token-input"}), self.embedding.weight, self.dropout.p)
