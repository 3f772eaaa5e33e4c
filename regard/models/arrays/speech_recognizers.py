"""Speech recognizers: a Transformer with an attention decoder, Listen, Attend and Spell, and CTC.

G6. All read log-mel frames; those equal to PADDING (-inf) are after the end of a recording.

    B recordings   T frames   M bands   n vectors of the encoder   m tokens   p width   V vocabulary
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.arrays.speech.mel import pad_frames
from regard.models.arrays.speech_input import SpeechInput, scale_frames
from regard.models.config.speech import ListenAttendSpellConfig, SpeechCTCConfig, SpeechRecognizerConfig
from regard.models.decoding_state import Encoded, map_hidden
from regard.models.recurrent.layers import make_recurrent, run_recurrent
from regard.models.recurrent.translator import RecurrentTranslator
from regard.models.stack import make_input, make_stack
from regard.models.transformer import TransformerTarget


class SpeechTransformer(TransformerTarget):
    """A Transformer whose source is sound: `encode` the frames, `decode` the text, `project` to the vocabulary.

    Dong et al. 2018. It decodes as a Transformer that translates does. With `ctc`, training also labels the vectors of
    the encoder, which teaches it early in which order things are said (Watanabe et al. 2017).
    """

    def __init__(self, config: SpeechRecognizerConfig) -> None:
        super().__init__()
        self.config = config
        self.source = SpeechInput(config)
        self.encoder = make_stack(config, config.layers, causal=False, cross=False)
        self.target = make_input(config, config.vocabulary)
        self.decoder = make_stack(config, config.decoder_layers or config.layers, causal=True, cross=True)
        self.output = None if config.tie_output else nn.Linear(config.dim, config.vocabulary, bias=False)
        self.labels = nn.Linear(config.dim, config.vocabulary) if config.ctc else None

    @property
    def traits(self) -> frozenset[str]:
        """The model's name, and whether the output layer is the embedding table; see regard.traits."""
        return super().traits | {"SpeechTransformer"}

    def forward(self, frames: Tensor, target: Tensor) -> Tensor:
        """frames (B, T, M), target (B, m) -> logits (B, m, V): row i predicts the token after target[:, i]."""
        return self.project(self.decode(target, self.encode(frames)))

    def encode(self, frames: Tensor) -> Encoded:
        """(B, T, M) -> the vectors of the sound (B, n, p)."""
        x, keep = self.source(frames)
        return Encoded(self.encoder(x, mask=keep[:, None, None]), keep)

    def label(self, encoded: Encoded) -> Tensor:
        """Return the logits of CTC's labels for each vector (B, n, V), of a model that has them."""
        if self.labels is None:
            raise ValueError("this model was made without labels: set ctc above 0")
        return self.labels(encoded.states)

    def pad_sources(self, recordings: Sequence[Tensor]) -> Tensor:
        """Return frames (T, M) of several recordings as one tensor (B, T, M)."""
        return pad_frames(list(recordings))


class PyramidEncoder(nn.Module):
    """Recurrent layers of which each after the first reads two states of the layer below at a time.

    Chan et al. 2016, section 3.1: h_i of a layer is f(h_{i-1}, [h_{2i}; h_{2i+1}] of the layer below).
    """

    def __init__(self, config: ListenAttendSpellConfig) -> None:
        super().__init__()
        self.config = config
        self.directions = 2 if config.bidirectional else 1
        hidden = config.encoder_hidden or config.hidden // self.directions
        self.width = hidden * self.directions
        single = dataclasses.replace(config, layers=1)
        inputs = [config.mels, *[2 * self.width] * config.halvings]
        self.layers = nn.ModuleList(
            make_recurrent(single, size, hidden, bidirectional=config.bidirectional) for size in inputs
        )
        self.dropout = nn.Dropout(config.dropout)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"PyramidEncoder"})

    def forward(self, frames: Tensor) -> Encoded:
        """(B, T, M) -> states (B, n, width), and the last state of the top layer for each layer of the decoder."""
        x, keep = scale_frames(frames, self.config)
        x = x.to(next(self.parameters()).dtype)
        lengths = keep.sum(1).cpu()
        for i, layer in enumerate(self.layers):
            if i:
                x = F.pad(x, (0, 0, 0, x.shape[1] % 2)).unflatten(1, (-1, 2)).flatten(2)  # pairs
                keep, lengths = keep[:, ::2], (lengths + 1) // 2
            x, final = run_recurrent(layer, x, lengths=lengths)  # type: ignore[arg-type]  # one of our layers
            x = self.dropout(x)
        return Encoded(x, keep, map_hidden(self._join_directions, final))

    def _join_directions(self, final: Tensor) -> Tensor:
        """(directions, B, hidden) -> (decoder layers, B, directions · hidden)."""
        return torch.cat(final.unbind(0), dim=-1).expand(self.config.layers, -1, -1).contiguous()


class ListenAttendSpell(RecurrentTranslator):
    """A pyramid of recurrent layers that listens, and the decoder of a recurrent translator that attends and spells."""

    def __init__(self, config: ListenAttendSpellConfig) -> None:
        super().__init__(config, PyramidEncoder(config))

    @property
    def traits(self) -> frozenset[str]:
        """The model's name and the traits of a recurrent translator; see regard.traits."""
        return super().traits | {"ListenAttendSpell"}

    def pad_sources(self, recordings: Sequence[Tensor]) -> Tensor:
        """Return frames (T, M) of several recordings as one tensor (B, T, M)."""
        return pad_frames(list(recordings))


class SpeechCTC(nn.Module):
    """A Transformer encoder that labels each of its vectors with a token or the blank, whose number is pad_id.

    Graves et al. 2006: equal labels in a row are one token, and blanks are left out (regard.decoding.ctc).
    """

    def __init__(self, config: SpeechCTCConfig) -> None:
        super().__init__()
        self.config = config
        self.source = SpeechInput(config)
        self.encoder = make_stack(config, config.layers, causal=False, cross=False)
        self.output = nn.Linear(config.dim, config.vocabulary)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name; see regard.traits."""
        return frozenset({"SpeechCTC"})

    def forward(self, frames: Tensor) -> Tensor:
        """frames (B, T, M) -> logits of the labels (B, n, V)."""
        return self.label(self.encode(frames))

    def label(self, encoded: Encoded) -> Tensor:
        """Return the logits of the labels for each vector (B, n, V)."""
        return self.output(encoded.states)

    def encode(self, frames: Tensor) -> Encoded:
        """(B, T, M) -> the vectors of the sound (B, n, p)."""
        x, keep = self.source(frames)
        return Encoded(self.encoder(x, mask=keep[:, None, None]), keep)

    def pad_sources(self, recordings: Sequence[Tensor]) -> Tensor:
        """Return frames (T, M) of several recordings as one tensor (B, T, M)."""
        return pad_frames(list(recordings))
