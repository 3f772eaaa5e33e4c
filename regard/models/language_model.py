"""Language models: predict the next token from those before it, by attention or by recurrence.

E10, C2. Training is many-to-many, with the true next token as the next input (teacher forcing); generation feeds each
sampled token back in.

    B batch   m tokens   p model width   V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.embedding import Embedding
from regard.models.config import RecurrentLMConfig, TransformerLMConfig
from regard.models.decoding_state import RecurrentState, TransformerState
from regard.models.protocols import TextModel
from regard.models.recurrent.layers import make_recurrent, run_recurrent
from regard.models.stack import make_input, make_stack


class TransformerLM(TextModel):
    """The Transformer language model: decoder blocks without cross-attention.

    Radford et al. 2018; E10.
    """

    def __init__(self, config: TransformerLMConfig) -> None:
        super().__init__()
        self.config = config
        self.input = make_input(config, config.vocabulary)
        self.decoder = make_stack(config, config.layers, causal=True, cross=False)
        self.output = None if config.tie_output else nn.Linear(config.dim, config.vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.vocabulary)) if config.output_bias else None

    @property
    def traits(self) -> frozenset[str]:
        """The model's name, and whether the output layer is the embedding table; see regard.traits."""
        bias = {"output-bias"} if self.output_bias is not None else set()
        return frozenset({"TransformerLM", "tied-output" if self.output is None else "untied-output", *bias})

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, m) -> logits (B, m, V): row i predicts the token after tokens[:, i]."""
        return self.project(self.decode(tokens))

    def decode(self, tokens: Tensor, *, state: TransformerState | None = None) -> Tensor:
        """(B, m) -> (B, m, p) for a whole text, or for the next tokens of a `state`."""
        if state is None:
            return self.decoder(self.input(tokens), causal=True)
        return self.decoder(self.input(tokens, state.positions(tokens.shape[1])), causal=True, caches=state.caches)

    def project(self, hidden: Tensor) -> Tensor:
        """(…, p) -> logits over the vocabulary (…, V)."""
        logits = self.input.embedding.logits(hidden) if self.output is None else self.output(hidden)
        return logits if self.output_bias is None else logits + self.output_bias

    @property
    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (V, p) and the bias of `project`, for a loss that computes the logits in parts."""
        return self.input.embedding.weight if self.output is None else self.output.weight, self.output_bias

    def start(self, batch: int, capacity: int, *, static: bool = False) -> TransformerState:
        """Return a state for `batch` texts of up to `capacity` tokens; for `static` see StaticCache."""
        return TransformerState(self.decoder.new_caches(batch, capacity, static=static))


class RecurrentLM(TextModel):
    """The recurrent language model: a state of fixed size summarizes the text so far.

    Mikolov et al. 2010, Graves 2013; C2.
    """

    def __init__(self, config: RecurrentLMConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(vocabulary=config.vocabulary, dim=config.embedding)
        self.rnn = make_recurrent(config, config.embedding, config.hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.output = None if config.tie_output else nn.Linear(config.hidden, config.vocabulary)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name, and whether the output layer is the embedding table; see regard.traits."""
        return frozenset({"RecurrentLM", "tied-output" if self.output is None else "untied-output"})

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, m) -> logits (B, m, V): row i predicts the token after tokens[:, i]."""
        return self.project(self.decode(tokens))

    def decode(self, tokens: Tensor, *, state: RecurrentState | None = None) -> Tensor:
        """(B, m) -> (B, m, hidden) for a whole text, or for the next tokens of a `state`."""
        if tokens.dim() != 2:
            raise ValueError(f"tokens must be (B, length), got {tuple(tokens.shape)}")
        hidden = None if state is None else state.hidden
        x, hidden = run_recurrent(self.rnn, self.dropout(self.embedding(tokens)), hidden)
        if state is not None:
            state.hidden = hidden
        return self.dropout(x)

    def project(self, hidden: Tensor) -> Tensor:
        """(…, hidden) -> logits over the vocabulary (…, V)."""
        return self.embedding.logits(hidden) if self.output is None else self.output(hidden)

    @property
    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (V, hidden) and the bias of `project`, for a loss that computes the logits in parts."""
        return (self.embedding.weight, None) if self.output is None else (self.output.weight, self.output.bias)

    def start(self, batch: int, capacity: int | None = None, *, static: bool = False) -> RecurrentState:
        """Return a state for `batch` texts. Its size is fixed, so capacity and static have no effect."""
        h = self.embedding.weight.new_zeros(self.config.layers, batch, self.config.hidden)
        # c is a separate tensor: if it were h itself, a compiled step would need a graph for this case.
        return RecurrentState((h, torch.zeros_like(h)) if self.config.cell == "lstm" else h)
