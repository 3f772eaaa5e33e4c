"""The Transformer: an encoder reads the source, a decoder writes the target, both by attention alone.

Vaswani et al. 2017; E3 to E8, D13.

    B batch   n source tokens   m target tokens   p model width   V target vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.models.config import TransformerConfig
from regard.models.decoding_state import Encoded, TransformerState
from regard.models.protocols import TextModel
from regard.models.stack import Stack, TokenInput, make_input, make_stack


class TransformerTarget(TextModel):
    """The target side of an encoder-decoder, whatever its source is: `decode`, `project` and `start`.

    A subclass has the modules `target`, `decoder` and `output` (None: the table of token vectors).
    """

    target: TokenInput
    decoder: Stack
    output: nn.Linear | None

    def __init__(self) -> None:
        super().__init__()
        self.output_bias: nn.Parameter | None = None

    @property
    def traits(self) -> frozenset[str]:
        """Whether the output layer is the embedding table, and whether it has a bias; see regard.traits."""
        bias = {"output-bias"} if self.output_bias is not None else set()
        return frozenset({"tied-output" if self.output is None else "untied-output", *bias})

    def decode(
        self, target: Tensor, encoded: Encoded | None = None, *, state: TransformerState | None = None
    ) -> Tensor:
        """(B, m) -> (B, m, p): a whole target together with its encoded source, or the next tokens of a `state`.

        Padding is at the end of a target, where the causal mask hides it.
        """
        if (encoded is None) == (state is None):
            raise ValueError("decode takes either the encoded source or a state made from it by start()")
        if encoded is not None:
            memory_mask = encoded.keep[:, None, None]  # (B, 1, 1, n)
            return self.decoder(self.target(target), causal=True, memory=encoded.states, memory_mask=memory_mask)
        assert state is not None
        x = self.target(target, state.positions(target.shape[1]))
        return self.decoder(x, causal=True, caches=state.caches, memory=state.memory, memory_mask=state.memory_mask)

    def project(self, hidden: Tensor) -> Tensor:
        """(…, p) -> logits over the vocabulary (…, V); E6."""
        logits = self.target.embedding.logits(hidden) if self.output is None else self.output(hidden)
        return logits if self.output_bias is None else logits + self.output_bias

    @property
    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (V, p) and the bias of `project`, for a loss that computes the logits in parts."""
        return self.target.embedding.weight if self.output is None else self.output.weight, self.output_bias

    def start(self, encoded: Encoded, capacity: int, *, static: bool = False) -> TransformerState:
        """Return a state for up to `capacity` target tokens, with the source projected once for each block.

        `static` fixes all shapes and gives each row its own length; see StaticCache.
        """
        caches = self.decoder.new_caches(len(encoded.states), capacity, static=static)
        # Attention without a mask is faster. On a CPU the test is free; elsewhere it would synchronize.
        full = encoded.keep.device.type == "cpu" and not static and bool(encoded.keep.all())
        mask = None if full else encoded.keep[:, None, None]
        return TransformerState(caches, self.decoder.project_source(encoded.states, mask), mask)


class Transformer(TransformerTarget):
    """The encoder-decoder in three steps: `encode` the source, `decode` the target, `project` to the vocabulary.

    Training (E7) is `model(source, target)`, the target shifted right by one after the start token. Translating (E8) is
    `state = model.start(model.encode(source), capacity)` and then `model.project(model.decode(tokens, state=state))`
    for each new token.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.source = make_input(config, config.source_vocabulary)
        self.encoder = make_stack(config, config.layers, causal=False, cross=False)
        self.target = make_input(config, config.target_vocabulary)
        self.decoder = make_stack(config, config.decoder_layers or config.layers, causal=True, cross=True)
        if config.share_embeddings:
            self.target.embedding = self.source.embedding
        self.output = None if config.tie_output else nn.Linear(config.dim, config.target_vocabulary, bias=False)
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(config.target_vocabulary))

    @property
    def traits(self) -> frozenset[str]:
        """The model's name, and what its output layer is; see regard.traits."""
        return super().traits | {"Transformer"}

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, n), target (B, m) -> logits (B, m, V): row i predicts the token after target[:, i]."""
        return self.project(self.decode(target, self.encode(source)))

    def encode(self, source: Tensor) -> Encoded:
        """(B, n) -> the vectors of the source (B, n, p); tokens equal to pad_id are padding."""
        keep = source != self.config.pad_id  # (B, n)
        return Encoded(self.encoder(self.source(source), mask=keep[:, None, None]), keep)
