"""`regard convert`: a trained model with some of its heads by random features, or what that would do to each head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.evaluate import tracked
from regard.cli.shared.model_options import Device, plain_warnings, read_text
from regard.errors import UsageError


def convert_heads(
    model: Annotated[str, typer.Argument(help="Model folder, or the name of a model that regard ships.")],
    out: Annotated[
        Path | None, typer.Argument(show_default="only look", help="The new folder; without it nothing is changed.")
    ] = None,
    *,
    text: Annotated[Path, typer.Option(help="Lines such as the model will see, to measure and to learn by.")],
    heads: Annotated[
        list[str] | None,
        typer.Option(
            show_default="auto",
            help="auto (within the target error), all, or heads by name: decoder, decoder.2.cross, encoder.0.self:0,3.",
        ),
    ] = None,
    target_error: Annotated[float, typer.Option(help="Of a head's output, relative to that of exact attention.")] = 0.1,
    features: Annotated[int, typer.Option(min=1, help="More are exacter and slower.")] = 128,
    feature_map: Annotated[str, typer.Option("--map", help="hyperbolic, positive, optimal or trig.")] = "hyperbolic",
    distil: Annotated[int, typer.Option(min=0, metavar="STEPS", help="Teach swapped heads to say the same.")] = 300,
    fine_tune: Annotated[
        int, typer.Option(min=0, metavar="STEPS", help="Then train on by the run's own recipe, into OUT-tuned.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the features, and of the order of the text.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON object.")] = False,
    device: Device = "auto",
) -> None:
    """Swap heads of a trained Transformer to random features, and report on every head.

    Error: of a head's output with random features. Variance: of one estimated weight, as predicted. Features needed:
    for the target error. A head that needs thousands looks too sharply and should stay exact.

    Swapped heads keep their weights, begin with scores multiplied by the factor that errs least, and learn from what
    the exact model says on the text.

    Example: regard convert runs/mine mine-linear --text some.fr --heads decoder.*.cross
    """
    if out is not None and out.exists():
        raise UsageError(f"{out} is there already: choose another name")
    if out is None and fine_tune:
        raise UsageError("--fine-tune trains the converted model on: say where that goes, `regard convert MODEL OUT`")
    from regard.api.model_names import find_model
    from regard.convert.conversion import convert_model, tuning_recipe
    from regard.training.run.training_run import train

    tuned = None if out is None else out.with_name(f"{out.name}-tuned")
    recipe = tuning_recipe(find_model(model), name=tuned.name, steps=fine_tune) if fine_tune and tuned else None
    with plain_warnings():
        found = convert_model(
            model,
            read_text(text),
            heads=heads or ["auto"],
            target=target_error,
            features=features,
            map=feature_map,
            steps=distil,
            swap=out is not None,
            seed=seed,
            device=device,
            watch=tracked,
        )
    typer.echo(json.dumps(found.to_dict()) if as_json else found.text())
    if out is None:
        return
    typer.echo(f"wrote {found.save(out)}", err=True)
    if recipe is not None:
        train(recipe, out=tuned, init=out, say=lambda line: typer.echo(line, err=True))
