"""A position scheme by one word, as a recipe names it."""

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
    """The scheme of that name, with its usual options, for a model of width dim; B2 to B8.

    The arguments describe the model, and each scheme takes what it needs: "learned" the max_length, "rotary" and
    "relative" (Shaw's) the head_dim (dim // heads unless given) and "relative" the value_dim (head_dim unless
    given), "t5" and "alibi" the heads; "t5" looks one way only in a causal model. For other options call the
    class itself.
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
                raise UsageError("position 'learned' needs max_length, the longest sequence it shall know")
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
