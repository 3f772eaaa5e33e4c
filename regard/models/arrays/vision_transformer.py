"""The Vision Transformer: an image is a sequence of patches, and a Transformer encoder reads it like a sentence.

Dosovitskiy et al. 2021, equations 1 to 4; G5.

    B batch   C channels   H height   W width   P pixels of a patch's side   n patches   p model width   K classes
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.models.arrays.convolutional_stem import make_stem
from regard.models.config import ImageClassifierConfig
from regard.models.decoding_state import Encoded
from regard.models.stack import make_stack, make_vector_position, residual_dtype
from regard.positions import SinusoidalGrid


class VisionTransformer(nn.Module):
    """Patches, a Transformer encoder and a linear layer on the class token, or on the mean of the patches; G5."""

    def __init__(self, config: ImageClassifierConfig) -> None:
        super().__init__()
        self.config = config
        width = config.dim - (config.position_width or 0)
        self.patches = make_stem(config.stem, channels=config.channels, patch=config.patch, dim=width)
        self.class_token = nn.Parameter(0.02 * torch.randn(width)) if config.pooling == "class" else None
        self.grid = SinusoidalGrid(columns=config.grid[1], dim=config.dim) if config.two_axes else None
        self.position = None if config.two_axes else make_vector_position(config)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = make_stack(config, config.layers, causal=False, cross=False)
        self.output = nn.Linear(config.dim, config.classes)

    @property
    def traits(self) -> frozenset[str]:
        """The model's name and its pooling; see regard.traits."""
        return frozenset({"VisionTransformer", f"pooling {self.config.pooling}"})

    def forward(self, images: Tensor) -> Tensor:
        """images (B, C, H, W), bytes or numbers from 0 to 1 -> the logits of the classes (B, K)."""
        states = self.encode(images).states
        pooled = states.mean(1) if self.class_token is None else states[:, 0]  # (B, p); equation 4
        return self.output(pooled)

    def encode(self, images: Tensor) -> Encoded:
        """(B, C, H, W) -> one vector per patch, after that of the class token if there is one; (B, n, p)."""
        pixels = self.cut(images) if self.config.stem == "patches" else self.scale(images)
        x = self.patches(pixels)  # (B, n, p); equation 1
        if self.grid is not None:
            x = self.grid.embed(x, torch.arange(x.shape[1], device=x.device))
        if self.class_token is not None:
            x = torch.cat([self.class_token.to(x.dtype).expand(len(x), 1, -1), x], dim=1)  # (B, 1 + n, p)
        if self.position is not None:
            x = self.position.embed(x, torch.arange(x.shape[1], device=x.device))
        x = self.encoder(self.dropout(x.to(residual_dtype(x))))
        return Encoded(x, torch.ones(x.shape[:2], dtype=torch.bool, device=x.device))

    def cut(self, images: Tensor) -> Tensor:
        """Scale images to -1 … 1, and cut them into patches, (B, n, C · P · P), row by row."""
        P, (rows, columns) = self.config.patch, self.config.grid
        parts = self.scale(images).view(-1, self.config.channels, rows, P, columns, P)
        return parts.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

    def scale(self, images: Tensor) -> Tensor:
        """Scale images to -1 … 1, (B, C, H, W)."""
        config = self.config
        expected = (config.channels, config.height, config.width)
        if images.dim() != 4 or images.shape[1:] != expected:
            raise ValueError(f"images must be (B, {', '.join(map(str, expected))}), got {tuple(images.shape)}")
        if images.dtype == torch.uint8:
            return images.to(self.output.weight.dtype) / 127.5 - 1
        return 2 * images - 1
