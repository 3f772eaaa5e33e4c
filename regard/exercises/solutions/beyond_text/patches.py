"""Solution of patches."""

from torch import Tensor


def patches(images: Tensor, size: int) -> Tensor:
    """Images (B, C, height, width); return their patches as rows (B, number of patches, C · size · size)."""
    B, C, height, width = images.shape
    blocks = images.reshape(B, C, height // size, size, width // size, size)  # (B, C, row, y, column, x)
    blocks = blocks.permute(0, 2, 4, 1, 3, 5)  # (B, row, column, C, y, x)
    return blocks.reshape(B, -1, C * size * size)
