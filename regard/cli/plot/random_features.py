"""`regard plot random-features`: exact attention, the lecture's formula and a corrected one on a head of a model."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from regard.cli.plot.drawing import Output, read_or_make, write
from regard.errors import UsageError


class Phi(StrEnum):
    trig = "trig"
    positive = "positive"
    hyperbolic = "hyperbolic"
    optimal = "optimal"
    elu = "elu"


class Rows(StrEnum):
    orthogonal = "orthogonal"
    independent = "independent"


def random_features(
    what: Annotated[
        str | None,
        typer.Argument(help="With --model a text, else a trace file with vectors; without one the sentence of E9."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model that reads the text: folder or name.")
    ] = None,
    which: Annotated[str | None, typer.Option("--map", help="enc_self, dec_self, cross or rnn.")] = None,
    layer: Annotated[int | None, typer.Option(help="Layer, from 0.  [default: the best one, or 0]")] = None,
    head: Annotated[int | None, typer.Option(help="Head, from 0.  [default: the best one, or 0]")] = None,
    phi: Annotated[Phi, typer.Option(help="Feature map beside the lecture's.")] = Phi.trig,
    features: Annotated[int, typer.Option(min=2, help="How many features.")] = 128,
    normalize: Annotated[bool, typer.Option(help="Bring queries and keys to length 1 first.")] = False,
    draw: Annotated[Rows, typer.Option(help="Kind of the random rows.")] = Rows.orthogonal,
    seed: Annotated[int, typer.Option(help="Seed of the random rows.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Draws that the error is taken over.")] = 16,
    output: Output = None,
) -> None:
    """Random features beside exact attention; their error by features, their cost by length (F2, F3)."""
    from regard.look.inside.random_features import jane_head, read_head
    from regard.look.pictures.random_features import random_features_plot

    if what is None:
        if any(option is not None for option in (model, which, layer, head)):
            raise UsageError("--model, --map, --layer and --head are about a text or a trace file: name one")
        shown = jane_head()
    else:
        shown = read_head(read_or_make(what, model, None, None, vectors=True), which, layer=layer, head=head)
    options = {"map": phi.value, "features": features, "normalize": normalize, "seed": seed, "seeds": seeds}
    write(lambda: random_features_plot(shown, draw=draw.value, **options), output, "random-features")  # type: ignore[arg-type]
