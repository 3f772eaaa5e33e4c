"""A Transformer that writes captions: its encoder reads the patches of an image or a video, its decoder writes words.

G4; Dosovitskiy et al. 2021 (patches), Vaswani et al. 2017 (encoder and decoder).

    B batch   T frames   C channels   n patches of all frames   m words   p model width   V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.models.arrays.convolutional_stem import make_stem
from regard.models.arrays.frame_grid import CellPositions, scaled_frames
from regard.models.config import CaptionerConfig
from regard.models.decoding_state import Encoded, TransformerState
from regard.models.protocols import TextModel
from regard.models.stack import make_input, make_stack, residual_dtype


class TransformerCaptioner(TextModel):
    """Patches of all frames in place of source words, with the steps of the Transformer: encode, decode, project."""

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        frames, rows, columns = config.grid
        self.patches = make_stem(config.stem, channels=config.channels, patch=config.patch, dim=config.dim)
        self.places = CellPositions(frames=frames, rows=rows, columns=columns, dim=config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = make_stack(config, config.layers, causal=False, cross=False)
        self.target = make_input(config, config.target_vocabulary)
        self.decoder = make_stack(config, config.decoder_layers or config.layers, causal=True, cross=True)
        self.output = None if config.tie_output else nn.Linear(config.dim, config.target_vocabulary, bias=False)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name, and whether the output layer is the embedding table; see regard.traits."""
        return frozenset({"TransformerCaptioner", "tied-output" if self.output is None else "untied-output"})

    def forward(self, frames: Tensor, target: Tensor) -> Tensor:
        """frames (B, T, C, H, W), target (B, m) -> logits (B, m, V): row i predicts the token after target[:, i]."""
        return self.project(self.decode(target, self.encode(frames)))

    def encode(self, frames: Tensor) -> Encoded:
        """(B, T, C, H, W), or images (B, C, H, W) -> one vector per patch, (B, n, p)."""
        x = self.places(self.cells(frames))  # (B, n, p)
        x = self.encoder(self.dropout(x.to(residual_dtype(x))))
        return Encoded(x, torch.ones(x.shape[:2], dtype=torch.bool, device=x.device))

    def cells(self, frames: Tensor) -> Tensor:
        """Turn the patches of each frame into vectors, (B, T, rows, columns, p)."""
        config = self.config
        scaled = scaled_frames(frames, config, next(self.patches.parameters()).dtype)
        if config.stem != "patches":
            vectors = self.patches(scaled.flatten(0, 1))  # (B T, rows · columns, p)
            return vectors.view(len(scaled), *config.grid, -1)
        parts = scaled.unfold(3, config.patch, config.patch).unfold(4, config.patch, config.patch)
        return self.patches(parts.permute(0, 1, 3, 4, 2, 5, 6).flatten(4))

    def decode(
        self, target: Tensor, encoded: Encoded | None = None, *, state: TransformerState | None = None
    ) -> Tensor:
        """(B, m) -> (B, m, p): a whole caption together with its encoded image, or the next words of a `state`."""
        if (encoded is None) == (state is None):
            raise ValueError("decode takes either the encoded image or a state made from it by start()")
        if encoded is not None:
            return self.decoder(self.target(target), causal=True, memory=encoded.states)
        assert state is not None
        x = self.target(target, state.positions(target.shape[1]))
        return self.decoder(x, causal=True, caches=state.caches, memory=state.memory)

    def project(self, hidden: Tensor) -> Tensor:
        """(…, p) -> logits over the vocabulary (…, V)."""
        return self.target.embedding.logits(hidden) if self.output is None else self.output(hidden)

    @property
    def output_table(self) -> tuple[Tensor, Tensor | None]:
        """The matrix (V, p) and the bias of `project`, for a loss that computes the logits in parts."""
        return self.target.embedding.weight if self.output is None else self.output.weight, None

    def start(self, encoded: Encoded, capacity: int, *, static: bool = False) -> TransformerState:
        """Return a state for up to `capacity` words, with the patches projected once for each block."""
        caches = self.decoder.new_caches(len(encoded.states), capacity, static=static)
        return TransformerState(caches, self.decoder.project_source(encoded.states))
