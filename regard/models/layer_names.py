"""The names of attention layers in recordings and settings: "encoder.0.self", "decoder.2.cross".

A recurrent decoder has one layer, "decoder.cross".
"""

from __future__ import annotations


def is_self_attention(layer: str) -> bool:
    """Whether queries and keys of that layer come from the same text."""
    return layer.split(".")[-1] == "self"


def is_cross_attention(layer: str) -> bool:
    """Whether the queries of that layer attend to another text, the source."""
    return layer.split(".")[-1] == "cross"


def is_causal(layer: str) -> bool:
    """Whether that layer attends to earlier tokens only: the self-attention of a decoder."""
    return layer.split(".")[0] == "decoder" and is_self_attention(layer)
