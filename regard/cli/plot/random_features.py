"""`regard plot random-features`: exact attention, the formula of the lecture and a corrected one for one head."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from regard.cli.plot.drawing import AnimatedOutput, load_or_trace, write
from regard.cli.shared.model_options import DEFAULT_MODEL
from regard.errors import UsageError


class Phi(StrEnum):
    trig = "trig"
    positive = "positive"
    hyperbolic = "hyperbolic"
    optimal = "optimal"
    elu = "elu"


class RowKind(StrEnum):
    orthogonal = "orthogonal"
    independent = "independent"


def random_features(
    what: Annotated[
        str | None,
        typer.Argument(help="Text, or trace file with vectors; default: the sentence of E9."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", show_default=DEFAULT_MODEL, help="Model for the text: folder or name."),
    ] = None,
    which: Annotated[str | None, typer.Option("--map", help="Attention: enc_self, dec_self, cross or rnn.")] = None,
    layer: Annotated[int | None, typer.Option(show_default="the best, or 0", help="Layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option(show_default="the best, or 0", help="Head, from 0.")] = None,
    phi: Annotated[Phi, typer.Option(help="Feature map to compare with that of the lecture.")] = Phi.trig,
    features: Annotated[int, typer.Option(min=2, help="Number of random features.")] = 128,
    normalize: Annotated[bool, typer.Option(help="Normalize queries and keys to length 1 first.")] = False,
    draw: Annotated[
        RowKind, typer.Option(help="How the projection matrix is drawn: rows orthogonal or independent.")
    ] = RowKind.orthogonal,
    seed: Annotated[int, typer.Option(help="Seed of the projection matrix.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Number of projection matrices for the error curve.")] = 16,
    output: AnimatedOutput = None,
) -> None:
    """Draw random features beside exact attention, their error by features and cost by length (F2, F3).

    As an animation (-o NAME.gif), draw how the estimate converges while the number of features grows.
    """
    from regard.look.inside.random_features import jane_head, read_head
    from regard.look.pictures.animations.converging_features import converging_features_frames
    from regard.look.pictures.random_features import random_features_plot

    if what is None:
        if any(option is not None for option in (model, which, layer, head)):
            raise UsageError("--model, --map, --layer and --head need a text or a trace file: pass one")
        attention_head = jane_head()
    else:
        attention_head = read_head(load_or_trace(what, model, None, None, vectors=True), which, layer=layer, head=head)
    rows = draw.value
    write(
        lambda: random_features_plot(
            attention_head, map=phi.value, features=features, normalize=normalize, draw=rows, seed=seed, seeds=seeds
        ),
        output,
        "random-features",
        animate=lambda: converging_features_frames(
            attention_head, map=phi.value, normalize=normalize, draw=rows, seed=seed
        ),
    )
