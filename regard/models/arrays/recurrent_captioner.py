"""Show, attend and tell: a convolutional network sees an image, and an LSTM with soft attention describes it.

Xu et al. 2015, sections 3.1 and 4.2; G4. The annotation vectors a_i are the features of the cells of an image, or of
all frames of a video. The paper's network was trained on ImageNet and stays fixed; this one is small, and is trained
with the decoder. Its cells are marked with their place, because its receptive field is small.

    B batch   T frames   C channels   n cells of all frames   m words   D width of the features   V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.scores import AdditiveScore
from regard.attention.single_head import KeyValueAttention
from regard.layers.embedding import Embedding
from regard.layers.normalization import LayerNorm
from regard.models.arrays.frame_grid import CellPositions, scaled_frames
from regard.models.config import RecurrentCaptionerConfig
from regard.models.decoding_state import Encoded, RecurrentState
from regard.models.protocols import TextModel
from regard.models.recurrent.layers import make_recurrent, run_recurrent
from regard.models.recurrent.translator import top


class Convolution(nn.Module):
    """A 3 x 3 convolution, layer norm over the channels of each pixel, and ReLU.

    Group norm would tell each cell about the whole image, so that attention to an empty cell can replace attention to
    an item.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, 3, padding=1)
        self.norm = LayerNorm(after)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"Convolution"})

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H, W)."""
        return torch.relu(self.norm(self.convolution(x).movedim(1, -1))).movedim(-1, 1)


class ConvolutionalEncoder(nn.Module):
    """Two convolutions before each pooling, which halves the sides, and one after the last: a_i for each cell."""

    def __init__(self, config: RecurrentCaptionerConfig) -> None:
        super().__init__()
        self.config = config
        layers: list[nn.Module] = []
        before, after = config.channels, config.convolution
        for _ in range(config.poolings):
            layers += [Convolution(before, after), Convolution(after, after), nn.MaxPool2d(2)]
            before, after = after, 2 * after
        layers.append(Convolution(before, before))
        self.width = before
        self.layers = nn.Sequential(*layers)
        frames, rows, columns = config.grid
        self.places = CellPositions(frames=frames, rows=rows, columns=columns, dim=before)
        self.norm = LayerNorm(before)  # without it, attention stays almost uniform for long
        self.dropout = nn.Dropout(config.dropout)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"ConvolutionalEncoder"})

    def forward(self, frames: Tensor) -> Tensor:
        """(B, T, C, H, W) -> a_i (B, n, D)."""
        scaled = scaled_frames(frames, self.config, next(self.layers.parameters()).dtype)
        light = (
            scaled + 1
        ) / 2  # black is 0, as is the padding of a convolution: the borders of a dark image do not show
        features = self.layers(light.flatten(0, 1)).unflatten(0, scaled.shape[:2])  # (B, T, D, rows, columns)
        return self.dropout(self.norm(self.places(features.movedim(2, -1))))


class SoftAttentionDecoder(nn.Module):
    """Write word by word: the context is the mean of the features, weighted by the attention of the last state.

    Xu et al. 2015: alpha_ti by f_att(a_i, h_{t-1}) (eq. 4, 5); z_t = beta_t sum_i alpha_ti a_i with the gate
    beta_t = sigma(f_beta(h_{t-1})) (section 4.2.1); h_t by an LSTM of E y_{t-1} and z_t (eq. 1 to 3); the output layer
    sees E y_{t-1} + L_h h_t + L_z z_t (eq. 7).
    """

    def __init__(self, config: RecurrentCaptionerConfig, *, feature_width: int) -> None:
        super().__init__()
        hidden, embedding = config.hidden, config.embedding
        self.layer_count, self.has_cell = config.layers, config.cell == "lstm"
        self.embedding = Embedding(vocabulary=config.target_vocabulary, dim=embedding)
        self.first_h = nn.Linear(feature_width, config.layers * hidden)
        self.first_c = nn.Linear(feature_width, config.layers * hidden) if self.has_cell else None
        score = AdditiveScore(query_dim=hidden, key_dim=feature_width, hidden=config.attention_hidden or hidden)
        self.cross_attention = KeyValueAttention(score=score)
        self.gate = nn.Linear(hidden, 1)
        self.rnn = make_recurrent(config, embedding + feature_width, hidden)
        self.from_hidden = nn.Linear(hidden, embedding)
        self.from_context = nn.Linear(feature_width, embedding, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"SoftAttentionDecoder"})

    def start(self, encoded: Encoded) -> RecurrentState:
        """Return the state before the first word: h_0 and c_0 from the mean of the features, and their keys."""
        mean = encoded.states.mean(1)  # (B, D)
        hidden = self._first(self.first_h, mean)
        keys = self.cross_attention.keys(encoded.states)
        if self.first_c is None:
            return RecurrentState(hidden, keys, encoded.states, encoded.keep[:, None])
        return RecurrentState((hidden, self._first(self.first_c, mean)), keys, encoded.states, encoded.keep[:, None])

    def _first(self, layer: nn.Linear, mean: Tensor) -> Tensor:
        """(B, D) -> (layers, B, hidden)."""
        return torch.tanh(layer(mean)).unflatten(-1, (self.layer_count, -1)).transpose(0, 1).contiguous()

    def forward(self, target: Tensor, state: RecurrentState) -> Tensor:
        """(B, m) -> the input of the output layer (B, m, embedding); advances the state by m words."""
        y = self.dropout(self.embedding(target))  # (B, m, embedding)
        return torch.cat([self.step(word, state) for word in y.split(1, dim=1)], dim=1)

    def step(self, y: Tensor, state: RecurrentState) -> Tensor:
        """y_{t-1} (B, 1, embedding) -> (B, 1, embedding)."""
        h = top(state.hidden)  # (B, 1, hidden)
        z = self.cross_attention(h, state.keys, state.values, mask=state.mask, prepared=True)  # (B, 1, D)
        z = torch.sigmoid(self.gate(h)) * z
        h, state.hidden = run_recurrent(self.rnn, torch.cat([y, z.to(y.dtype)], dim=-1), state.hidden)
        return self.dropout(torch.tanh(y + self.from_hidden(h) + self.from_context(z)))


class RecurrentCaptioner(TextModel):
    """The network of Xu et al. with the interface of the Transformer: `encode`, `decode`, `project`, `start`."""

    def __init__(self, config: RecurrentCaptionerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ConvolutionalEncoder(config)
        self.decoder = SoftAttentionDecoder(config, feature_width=self.encoder.width)
        self.output = None if config.tie_output else nn.Linear(config.embedding, config.target_vocabulary)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name, and whether the output layer is the embedding table; see regard.traits."""
        return frozenset({"RecurrentCaptioner", "tied-output" if self.output is None else "untied-output"})

    def forward(self, frames: Tensor, target: Tensor) -> Tensor:
        """frames (B, T, C, H, W), target (B, m) -> logits (B, m, V): row i predicts the token after target[:, i]."""
        return self.project(self.decode(target, self.encode(frames)))

    def encode(self, frames: Tensor) -> Encoded:
        """(B, T, C, H, W), or images (B, C, H, W) -> the features of the cells, (B, n, D)."""
        features = self.encoder(frames)
        return Encoded(features, torch.ones(features.shape[:2], dtype=torch.bool, device=features.device))

    def decode(self, target: Tensor, encoded: Encoded | None = None, *, state: RecurrentState | None = None) -> Tensor:
        """(B, m) -> (B, m, ·): a whole caption together with its encoded image, or the next words of a `state`."""
        if (encoded is None) == (state is None):
            raise ValueError("decode takes either the encoded image or a state made from it by start()")
        if encoded is not None:
            state = self.start(encoded)
        return self.decoder(target, state)

    def project(self, hidden: Tensor) -> Tensor:
        """(…, embedding) -> logits over the vocabulary (…, V)."""
        return self.decoder.embedding.logits(hidden) if self.output is None else self.output(hidden)

    @property
    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (V, embedding) and the bias of `project`, for a loss that computes the logits in parts."""
        embedding = self.decoder.embedding
        return (embedding.weight, None) if self.output is None else (self.output.weight, self.output.bias)

    def start(self, encoded: Encoded, capacity: int | None = None, *, static: bool = False) -> RecurrentState:
        """Return the state before the first word; its size is fixed, so capacity and static have no effect."""
        return self.decoder.start(encoded)
