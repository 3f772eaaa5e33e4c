"""What RandomFeatureAttention accepts: its sizes, its inputs, and its position scheme."""

from __future__ import annotations

from torch import Tensor

from regard.attention.projections import HeadSizes
from regard.positions import Position, make_position


def check_sizes(dim: int, heads: int, kv_heads: int, d_k: int | None, d_v: int | None, dropout: float) -> None:
    """Raise ValueError unless the sizes of a layer fit together."""
    for name, size in (("dim", dim), ("heads", heads), ("kv_heads", kv_heads), ("d_k", d_k), ("d_v", d_v)):
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if dim % heads and (d_k is None or d_v is None):
        raise ValueError(f"dim={dim} does not split into heads={heads} equal parts; give d_k and d_v")
    if heads % kv_heads:
        raise ValueError(f"heads={heads} is not a multiple of kv_heads={kv_heads}: each group of heads shares one")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and less than 1, got {dropout}")


def check_width(name: str, x: Tensor, width: int) -> None:
    """Raise ValueError unless x is (B, length, width)."""
    if x.dim() != 3 or x.shape[2] != width:
        raise ValueError(f"{name} must be (B, length, {width}), got {tuple(x.shape)}")


def rotating_position(position: Position | str | None, dim: int, sizes: HeadSizes) -> Position | None:
    """Return the position scheme as a module; raise ValueError if it does more than rotate queries and keys."""
    if position is None or position == "none":
        return None
    if isinstance(position, str):
        position = make_position(position, dim=dim, heads=sizes.heads, head_dim=sizes.d_k, value_dim=sizes.d_v)
    kind = type(position)
    if kind.rotate is Position.rotate or kind.adds_to_scores():
        raise ValueError(
            f"position {kind.__name__} does not rotate queries and keys, which is all that random features allow "
            "inside attention: use rotary, or a scheme that acts on the embeddings, outside of this layer"
        )
    return position
