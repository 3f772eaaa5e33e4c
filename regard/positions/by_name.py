"""Position schemes by name, as in a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.errors import UsageError
from regard.positions.alibi import Alibi
from regard.positions.interface import ModelSizes, Position, check_size
from regard.positions.learned import Learned
from regard.positions.rejected_ideas import Fraction, Index
from regard.positions.relative import ShawRelative, T5Buckets
from regard.positions.rotary import Rotary
from regard.positions.sinusoids import Sinusoidal
from regard.registry import Registry

BUILT_IN: dict[str, type[Position]] = {
    "none": Position,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "relative": ShawRelative,
    "t5": T5Buckets,
    "alibi": Alibi,
    "fraction": Fraction,
    "index": Index,
}
POSITIONS = tuple(BUILT_IN)
SCHEMES = Registry("position", "regard.register_position", BUILT_IN)


def register_position(name: str, scheme: type[Position]) -> None:
    """Give a position scheme of your own a name, for configs, recipes and model folders.

    `scheme` is a subclass of Position; a model makes one with `scheme.for_model(sizes)`. Register it before you load a
    model folder with this name.
    """
    if not isinstance(scheme, type) or not issubclass(scheme, Position):
        raise UsageError(f"a position scheme is a subclass of regard.positions.Position, got {scheme!r}")
    SCHEMES.register(name, scheme)


def unregister_position(name: str) -> None:
    """Remove a registered position scheme."""
    SCHEMES.unregister(name)


def make_position(
    name: str,
    *,
    dim: int,
    heads: int,
    max_length: int | None = None,
    head_dim: int | None = None,
    value_dim: int | None = None,
    causal: bool = False,
    start: int = 0,
    first: int = 0,
    base: float = 10000.0,
    layout: str = "interleaved",
    width: int | None = None,
    rotary: Mapping[str, Any] | None = None,
) -> Position:
    """Make the scheme of that name for a model of width dim; B2 to B8.

    The arguments describe the model, and each scheme takes what it needs: "learned" takes max_length, "rotary" and
    "relative" (Shaw's) take head_dim (default dim // heads), "relative" also value_dim (default head_dim), "t5" and
    "alibi" take heads. In a causal model "t5" has buckets for the past only. "sinusoidal" takes start, first, base and
    layout; "learned" takes width, the columns that it appends to token vectors of width dim - width. `rotary` are
    further options of "rotary". For other options use the class itself.
    """
    check_size("dim", dim)
    check_size("heads", heads)
    head_dim = dim // heads if head_dim is None else head_dim
    sizes = ModelSizes(
        dim=dim,
        heads=heads,
        head_dim=head_dim,
        value_dim=head_dim if value_dim is None else value_dim,
        max_length=max_length,
        causal=causal,
        start=start,
        first=first,
        base=base,
        layout=layout,
        width=width,
        rotary=rotary or {},
    )
    return SCHEMES[name].for_model(sizes)


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
