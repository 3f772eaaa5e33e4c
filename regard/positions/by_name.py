"""Position schemes by name, as in a recipe."""

from __future__ import annotations

from regard.errors import UsageError, unknown_name
from regard.positions.absolute import Fraction, Index, Learned, Sinusoidal
from regard.positions.alibi import Alibi
from regard.positions.interface import Position, check_size
from regard.positions.relative import ShawRelative, T5Buckets
from regard.positions.rotary import Rotary

POSITIONS = ("none", "sinusoidal", "learned", "rotary", "relative", "t5", "alibi", "fraction", "index")


def make_position(
    name: str,
    *,
    dim: int,
    heads: int,
    max_length: int | None = None,
    head_dim: int | None = None,
    value_dim: int | None = None,
    causal: bool = False,
) -> Position:
    """Make the scheme of that name, with its default options, for a model of width dim; B2 to B8.

    The arguments describe the model, and each scheme takes what it needs: "learned" takes max_length, "rotary" and
    "relative" (Shaw's) take head_dim (default dim // heads), "relative" also value_dim (default head_dim), "t5" and
    "alibi" take heads. In a causal model "t5" has buckets for the past only. For other options use the class itself.
    """
    check_size("dim", dim)
    check_size("heads", heads)
    if head_dim is None:
        head_dim = dim // heads
    match name:
        case "none":
            return Position()
        case "sinusoidal":
            return Sinusoidal(dim=dim)
        case "learned":
            if max_length is None:
                raise UsageError("position 'learned' needs max_length, the length of the longest sequence")
            return Learned(max_length=max_length, dim=dim)
        case "rotary":
            return Rotary(head_dim=head_dim)
        case "relative":
            return ShawRelative(head_dim=head_dim, value_dim=value_dim)
        case "t5":
            return T5Buckets(heads=heads, bidirectional=not causal)
        case "alibi":
            return Alibi(heads=heads)
        case "fraction":
            return Fraction(dim=dim)
        case "index":
            return Index(dim=dim)
    raise UsageError(unknown_name("position", name, POSITIONS))


def make_attention_position(
    position: Position | str | None, *, dim: int, heads: int, head_dim: int, value_dim: int
) -> Position | None:
    """Return the scheme of an attention layer, made from its name if necessary; None for no scheme.

    A scheme that acts on the embeddings raises ValueError.
    """
    if position is None or position == "none":
        return None
    if isinstance(position, str):
        position = make_position(position, dim=dim, heads=heads, head_dim=head_dim, value_dim=value_dim)
    if position.acts_on != "attention":
        raise ValueError(
            f"position {type(position).__name__} acts on the embeddings; inside attention: rotary, relative, t5, alibi"
        )
    return position
