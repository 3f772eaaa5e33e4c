"""Frames of a picture or a video as cells in time and space, each marked with its place.

G4. An image is a video of one frame.

    B batch   T frames   C channels   H height   W width   R rows and K columns of cells   n = T R K cells   p width
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.models.config import FrameConfig


class CellPositions(nn.Module):
    """Learned vectors of the frame, the row and the column of a cell, added to it.

    They start about as large as the vectors of the cells. Much smaller ones hardly show beside them, so that attention
    by place, such as to the same cell in the frame before, is learned late.
    """

    def __init__(self, *, frames: int, rows: int, columns: int, dim: int) -> None:
        super().__init__()
        self.frame, self.row, self.column = (
            nn.Parameter(0.5 * torch.randn(count, dim)) for count in (frames, rows, columns)
        )

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"cell-positions"})

    def forward(self, cells: Tensor) -> Tensor:
        """(B, T, R, K, p) -> (B, n, p), frame by frame and row by row."""
        marked = cells + self.frame[:, None, None] + self.row[:, None] + self.column
        return marked.flatten(1, 3)


def scaled_frames(frames: Tensor, sizes: FrameConfig, dtype: torch.dtype) -> Tensor:
    """Return frames (B, T, C, H, W), bytes or numbers from 0 to 1, as numbers from -1 to 1; images are (B, C, H, W)."""
    frames = frames[:, None] if frames.dim() == 4 else frames
    expected = (sizes.frames, sizes.channels, sizes.height, sizes.width)
    if frames.dim() != 5 or frames.shape[1:] != expected:
        raise ValueError(f"frames must be (B, {', '.join(map(str, expected))}), got {tuple(frames.shape)}")
    return frames.to(dtype) / 127.5 - 1 if frames.dtype == torch.uint8 else 2 * frames - 1
