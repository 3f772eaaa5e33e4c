"""The pointer-generator: a Transformer that can copy tokens of the source.

See et al. 2017, with a Transformer (Vaswani et al. 2017) in place of their recurrent encoder-decoder; G3. One more
attention layer after the decoder, with one head, points at the source. Its weights say where a token comes from.

    B batch   n source tokens   m target tokens   p model width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from regard.attention.cache import ProjectedSource, join_padded
from regard.attention.multihead import MultiHeadAttention
from regard.layers.copying import CopyGate
from regard.models.config import PointerGeneratorConfig
from regard.models.decoding_state import Encoded, TransformerState
from regard.models.transformer import Transformer


class CopySource(ProjectedSource):
    """The source of the pointer: keys and values, and the tokens that can be copied."""

    def __init__(self, k: Tensor, v: Tensor, tokens: Tensor) -> None:
        super().__init__(k, v)
        self.tokens = tokens  # (B, n)

    def select(self, rows: Tensor) -> CopySource:
        return CopySource(self.k[rows], self.v[rows], self.tokens[rows])

    @staticmethod
    def join(sources: Sequence[CopySource]) -> CopySource:  # type: ignore[override]  # joins its own kind
        """Join several sources in this order, padded with zeros that a mask must hide."""
        parts = ([getattr(source, name) for source in sources] for name in ("k", "v", "tokens"))
        k, v, tokens = (join_padded(part, dim) for part, dim in zip(parts, (2, 2, 1), strict=True))
        return CopySource(k, v, tokens)


class PointerGenerator(Transformer):
    """A Transformer whose `decode` returns log-probabilities that mix generating and copying.

    `project` has nothing left to do: a softmax of log-probabilities returns the probabilities.
    """

    config: PointerGeneratorConfig

    def __init__(self, config: PointerGeneratorConfig) -> None:
        super().__init__(config)
        self.pointer = MultiHeadAttention(dim=config.dim, heads=1, bias=config.bias)
        self.copy_gate = CopyGate(dim=config.dim)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name and the traits of a Transformer; see regard.traits."""
        return super().traits | {"PointerGenerator"}

    def encode(self, source: Tensor) -> Encoded:
        """(B, n) -> the vectors of the source (B, n, p), with the tokens that can be copied."""
        return super().encode(source)._replace(tokens=source)

    def decode(
        self, target: Tensor, encoded: Encoded | None = None, *, state: TransformerState | None = None
    ) -> Tensor:
        """(B, m) -> log P (B, m, V): a whole target together with its encoded source, or the next tokens of a state."""
        return self.decode_and_point(target, encoded, state=state)[0]

    def decode_and_point(
        self, target: Tensor, encoded: Encoded | None = None, *, state: TransformerState | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return log P as `decode` does, and the pointer's attention to the source, (B, m, n)."""
        hidden = super().decode(target, encoded, state=state)  # (B, m, p)
        mask: Tensor | None  # (B, 1, 1, n)
        if encoded is not None:
            source, mask = self._copy_source(encoded), encoded.keep[:, None, None]
        else:
            assert state is not None
            assert state.memory is not None
            source, mask = state.memory[-1], state.memory_mask
        context, weights = self.pointer(hidden, cache=source, mask=mask, return_weights=True)  # (B, m, p), (B, 1, m, n)
        tokens = source.tokens.repeat_interleave(len(hidden) // len(source.tokens), dim=0)  # rows of a beam share one
        logps = self.copy_gate(
            super().project(hidden + context),
            weights[:, 0],
            tokens,
            context=context,
            state=hidden,
            inputs=self.target.embedding(target),
        )
        return logps, weights[:, 0]

    def project(self, hidden: Tensor) -> Tensor:
        """Return the log-probabilities (…, V) of `decode` unchanged."""
        return hidden

    def start(self, encoded: Encoded, capacity: int, *, static: bool = False) -> TransformerState:
        """Return a state for up to `capacity` target tokens; the source of the pointer follows those of the blocks."""
        state = super().start(encoded, capacity, static=static)
        assert state.memory is not None
        state.memory = [*state.memory, self._copy_source(encoded)]
        return state

    def _copy_source(self, encoded: Encoded) -> CopySource:
        if encoded.tokens is None:
            raise ValueError("a pointer-generator needs the tokens of the source: encode it with this model")
        projected = self.pointer.project_source(encoded.states)
        return CopySource(projected.k, projected.v, encoded.tokens)
