"""The recurrent translator: without attention (Sutskever), with Bahdanau's, with Luong's.

C4, D14, D15. The encoder reads the source into states h_j. Without attention the decoder gets only the last state; with
attention it attends to all h_j for each word.

    B batch   n source tokens   m target tokens   h_j source states   s_i decoder states   c_i contexts
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.scores import make_score
from regard.attention.single_head import KeyValueAttention
from regard.layers.embedding import Embedding
from regard.models.config import RecurrentTranslatorConfig
from regard.models.decoding_state import Encoded, Hidden, RecurrentState, map_hidden
from regard.models.protocols import TextModel
from regard.models.recurrent.layers import make_recurrent, run_recurrent


class RecurrentEncoder(nn.Module):
    """Read the source in one or both directions: states h_j, and the last state; C4, D14."""

    def __init__(self, config: RecurrentTranslatorConfig) -> None:
        super().__init__()
        self.pad_id = config.pad_id
        self.directions = 2 if config.bidirectional else 1
        hidden = config.encoder_hidden or config.hidden // self.directions
        self.width = hidden * self.directions
        self.embedding = Embedding(vocabulary=config.source_vocabulary, dim=config.embedding)
        self.rnn = make_recurrent(config, config.embedding, hidden, bidirectional=config.bidirectional)
        self.dropout = nn.Dropout(config.dropout)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"RecurrentEncoder"})

    def forward(self, source: Tensor) -> Encoded:
        """(B, n) -> h_j (B, n, width), padding, and the last state of each layer (layers, B, width)."""
        if source.dim() != 2:
            raise ValueError(f"source must be (B, length), got {tuple(source.shape)}")
        keep = source != self.pad_id  # (B, n)
        states, final = run_recurrent(self.rnn, self.dropout(self.embedding(source)), lengths=self._lengths(keep))
        return Encoded(self.dropout(states), keep, map_hidden(self._join_directions, final))

    def _lengths(self, keep: Tensor) -> Tensor:
        """Return the number of tokens of each source (B,) on the CPU, where packing needs it: the only synchronization.

        Training on a GPU does not synchronize: there the steps are written out, so that a CUDA graph can capture them.
        """
        if keep.is_cuda and torch.is_grad_enabled():
            return keep.sum(1)
        places = torch.arange(1, keep.shape[1] + 1, device=keep.device)
        count, total = torch.stack([keep.sum(1), (keep * places).sum(1)]).cpu()
        # The places of the tokens are 1, 2, …, count just when their total is count (count + 1) / 2.
        if not torch.compiler.is_compiling() and not ((count > 0) & (2 * total == count * (count + 1))).all():
            raise ValueError(
                f"each source must hold a token, and its padding (pad_id={self.pad_id}) must be at the end: a "
                "recurrent net reads in order"
            )
        return count

    def _join_directions(self, final: Tensor) -> Tensor:
        """(layers · directions, B, hidden) -> (layers, B, directions · hidden)."""
        return torch.cat([final[d :: self.directions] for d in range(self.directions)], dim=-1)


class RecurrentDecoder(nn.Module):
    """Generate the target word by word from the state s_i and, with attention, the context c_i.

    Bahdanau et al. 2015, eq. 4 to 6 and appendix A.2.2: c_i = sum_j alpha_ij h_j by a(s_{i-1}, h_j);
    s_i = f(s_{i-1}, y_{i-1}, c_i); the readout sees s_i, c_i and y_{i-1} (D14).
    Luong et al. 2015, eq. 5 and section 3.3: s_i = f(s_{i-1}, y_{i-1}); c_i by a(s_i, h_j); the attentional state is
    tanh(W [c_i; s_i]), with input feeding also an input of the next step (D15).
    """

    def __init__(self, config: RecurrentTranslatorConfig, *, source_width: int) -> None:
        super().__init__()
        hidden, embedding = config.hidden, config.embedding
        attends = config.attention != "none"
        self.bahdanau = attends and config.style == "bahdanau"
        self.input_feeding = config.input_feeding
        self.embedding = Embedding(vocabulary=config.target_vocabulary, dim=embedding)
        extra = source_width if self.bahdanau else hidden if config.input_feeding else 0
        self.rnn = make_recurrent(config, embedding + extra, hidden)
        # Sutskever passes the last state on unchanged; if widths or directions differ, a layer adapts it (A.2.2).
        self.bridge = nn.Linear(source_width, hidden) if config.bidirectional or source_width != hidden else None
        self.cross_attention: KeyValueAttention | None = None
        self.readout: nn.Linear | None = None
        if attends:
            score_hidden = config.attention_hidden or hidden
            score = make_score(config.attention, query_dim=hidden, key_dim=source_width, hidden=score_hidden)
            self.cross_attention = KeyValueAttention(score=score)
            self.readout = nn.Linear(hidden + source_width + (embedding if self.bahdanau else 0), hidden)
        self.dropout = nn.Dropout(config.dropout)

    @property
    def traits(self) -> frozenset[str]:
        """What this decoder computes; see regard.traits."""
        options = {
            "bahdanau": self.bahdanau,
            "luong": self.cross_attention is not None and not self.bahdanau,
            "input-feeding": self.input_feeding,
        }
        return frozenset({"RecurrentDecoder", *(name for name, used in options.items() if used)})

    def start(self, encoded: Encoded) -> RecurrentState:
        """Return the state before the first word: s_0 from the encoder's last state, and the keys of the source."""
        final = encoded.final
        if final is None:
            raise ValueError("a recurrent decoder needs the encoder's last state, and this source has none")
        hidden = final if self.bridge is None else map_hidden(self._fit, final)
        if self.cross_attention is None:
            return RecurrentState(hidden)
        feed = None
        if self.input_feeding:
            feed = encoded.states.new_zeros(len(encoded.states), 1, self.rnn.hidden_size)
        keys = self.cross_attention.keys(encoded.states)
        return RecurrentState(hidden, keys, encoded.states, encoded.keep[:, None], feed)

    def _fit(self, final: Tensor) -> Tensor:
        assert self.bridge is not None
        return torch.tanh(self.bridge(final))

    def forward(self, target: Tensor, state: RecurrentState) -> Tensor:
        """(B, m) -> readouts (B, m, hidden); advances the state by m words."""
        batch = top(state.hidden).shape[0]
        if target.dim() != 2 or target.shape[0] != batch or target.shape[1] < 1:
            raise ValueError(f"target must be ({batch}, length) with at least one word, got {tuple(target.shape)}")
        y = self.dropout(self.embedding(target))  # (B, m, embedding)
        if not self.step_by_step:
            return self.step(y, state)
        return torch.cat([self.step(word, state) for word in y.split(1, dim=1)], dim=1)

    @property
    def step_by_step(self) -> bool:
        """Whether a word depends on the output of the previous one; otherwise all words are computed at once."""
        return self.bahdanau or self.input_feeding

    def step(self, y: Tensor, state: RecurrentState) -> Tensor:
        """y_{i-1} (B, 1, embedding) -> readout (B, 1, hidden); without feedback any number of words."""
        if self.cross_attention is None or self.readout is None:
            s, state.hidden = run_recurrent(self.rnn, y, state.hidden)
            return self.dropout(s)
        if self.bahdanau:
            c = self._context(top(state.hidden), state)
            s, state.hidden = run_recurrent(self.rnn, torch.cat([y, c], dim=-1), state.hidden)
            return self.dropout(torch.tanh(self.readout(torch.cat([s, c, y], dim=-1))))
        x = y if state.feed is None else torch.cat([y, state.feed], dim=-1)
        s, state.hidden = run_recurrent(self.rnn, x, state.hidden)
        c = self._context(s, state)
        attentional = torch.tanh(self.readout(torch.cat([c, s], dim=-1)))
        if self.input_feeding:
            state.feed = attentional
        return self.dropout(attentional)

    def _context(self, s: Tensor, state: RecurrentState) -> Tensor:
        """Return the context of the queries s (B, m, hidden): sum_j alpha_ij h_j, (B, m, source width)."""
        assert self.cross_attention is not None
        return self.cross_attention(s, state.keys, state.values, mask=state.mask, prepared=True)


class RecurrentTranslator(TextModel):
    """The recurrent encoder-decoder with the interface of the Transformer: `encode`, `decode`, `project`, `start`.

    Sutskever et al. 2014, Bahdanau et al. 2015, Luong et al. 2015; C4, D14, D15.
    """

    def __init__(self, config: RecurrentTranslatorConfig, encoder: Any = None) -> None:
        """Make the network; an `encoder` of another source replaces that of tokens, and has a `width`."""
        super().__init__()
        self.config = config
        self.encoder = RecurrentEncoder(config) if encoder is None else encoder
        self.decoder = RecurrentDecoder(config, source_width=self.encoder.width)
        self.output = None if config.tie_output else nn.Linear(config.hidden, config.target_vocabulary)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name, and whether the output layer is the embedding table; see regard.traits."""
        return frozenset({"RecurrentTranslator", "tied-output" if self.output is None else "untied-output"})

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, n), target (B, m) -> logits (B, m, V): row i predicts the token after target[:, i]."""
        return self.project(self.decode(target, self.encode(source)))

    def encode(self, source: Tensor) -> Encoded:
        """(B, n) -> states (B, n, width) and the last state of the encoder; tokens equal to pad_id are padding."""
        return self.encoder(source)

    def decode(self, target: Tensor, encoded: Encoded | None = None, *, state: RecurrentState | None = None) -> Tensor:
        """(B, m) -> (B, m, hidden): a whole target together with its encoded source, or the next words of a `state`."""
        if (encoded is None) == (state is None):
            raise ValueError("decode takes either the encoded source or a state made from it by start()")
        if encoded is not None:
            state = self.start(encoded)
        return self.decoder(target, state)

    def project(self, hidden: Tensor) -> Tensor:
        """(…, hidden) -> logits over the vocabulary (…, V); E6."""
        return self.decoder.embedding.logits(hidden) if self.output is None else self.output(hidden)

    @property
    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (V, hidden) and the bias of `project`, for a loss that computes the logits in parts."""
        embedding = self.decoder.embedding
        return (embedding.weight, None) if self.output is None else (self.output.weight, self.output.bias)

    def start(self, encoded: Encoded, capacity: int | None = None, *, static: bool = False) -> RecurrentState:
        """Return the state before the first word; its size is fixed, so capacity and static have no effect."""
        return self.decoder.start(encoded)


def top(hidden: Hidden) -> Tensor:
    """Return the last layer's h as a query, (B, 1, hidden)."""
    h = hidden if isinstance(hidden, Tensor) else hidden[0]
    return h[-1][:, None]
