"""The text classifier: many tokens to one class, by attention pooling.

A3, D2; Lin et al. 2017, with a Transformer encoder (Vaswani et al. 2017) in place of their recurrent one.

    B batch   n tokens   p model width   C classes
"""

from __future__ import annotations

from torch import Tensor, nn

from regard.attention.single_head import ContentAttention
from regard.models.config import ClassifierConfig
from regard.models.decoding_state import Encoded
from regard.models.stack import make_input, make_stack


class TextClassifier(nn.Module):
    """A Transformer encoder, a learned query that attends to its states, and a linear layer; D2.

    The weights of the query say which tokens the decision is taken from.
    """

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.input = make_input(config, config.source_vocabulary)
        self.encoder = make_stack(config, config.layers, causal=False, cross=False)
        self.pool = ContentAttention(outputs=1, dim=config.dim, score="dot")
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.dim, config.classes)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name; see regard.traits."""
        return frozenset({"TextClassifier"})

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, n) -> the logits of the classes (B, C)."""
        return self.classify(tokens)[0]

    def classify(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """tokens (B, n) -> the logits of the classes (B, C), and the pooling weights (B, n)."""
        encoded = self.encode(tokens)
        pooled, weights = self.pool(encoded.states, mask=encoded.keep[:, None], return_weights=True)  # (B, 1, p)
        return self.output(self.dropout(pooled[:, 0])), weights[:, 0]

    def encode(self, tokens: Tensor) -> Encoded:
        """(B, n) -> one vector per token (B, n, p); tokens equal to pad_id are padding."""
        keep = tokens != self.config.pad_id
        return Encoded(self.encoder(self.input(tokens), mask=keep[:, None, None]), keep)
