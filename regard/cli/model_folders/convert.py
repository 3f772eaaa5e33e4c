"""`regard convert`: replace heads of a trained model by random features, or predict the effect for each head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.measure.evaluate import tracked
from regard.cli.shared.model_options import Device, Threads, plain_warnings, read_text
from regard.errors import UsageError
from regard.machine import set_threads


def convert_heads(
    model: Annotated[str, typer.Argument(help="Model folder, or the name of a shipped model.")],
    out: Annotated[
        Path | None,
        typer.Argument(show_default="report only", help="New folder; without it, only the report is printed."),
    ] = None,
    *,
    text: Annotated[
        Path, typer.Option(help="Text like that of the model's later use, to measure the heads and to distil.")
    ],
    heads: Annotated[
        list[str] | None,
        typer.Option(
            show_default="auto",
            help="auto (heads within the target error), all, or names: decoder, decoder.2.cross, encoder.0.self:0,3.",
        ),
    ] = None,
    target_error: Annotated[
        float, typer.Option(help="Largest relative error of the output of a head, compared with exact attention.")
    ] = 0.1,
    features: Annotated[
        int, typer.Option(min=1, help="Number of random features; more are more accurate and slower.")
    ] = 128,
    feature_map: Annotated[
        str, typer.Option("--map", help="Feature map: hyperbolic, positive, optimal or trig.")
    ] = "hyperbolic",
    distil: Annotated[
        int,
        typer.Option(
            min=0, metavar="STEPS", help="Distil the exact model into the replaced heads for this many steps."
        ),
    ] = 300,
    fine_tune: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="STEPS",
            help="Then fine-tune for this many steps with the recipe of the run, into OUT-tuned.",
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random features and of the order of the text.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Replace heads of a trained Transformer by random features, and report on every head.

    The report has, for each head, the relative error of its output with random features, the predicted variance of one
    estimated weight, and the number of features needed for the target error. A head that needs thousands has sharp
    attention and should stay exact.

    Replaced heads keep their weights. Their scores are scaled by the factor with the smallest error, and they are then
    distilled from the exact model on the text.

    Examples:
      regard convert runs/mine --text some.fr
      regard convert runs/mine mine-linear --text some.fr --heads decoder.*.cross
    """
    set_threads(threads)
    if out is not None and out.exists():
        raise UsageError(f"{out} already exists: choose another name")
    if out is None and fine_tune:
        raise UsageError(
            "--fine-tune needs a folder for the converted model: `regard convert MODEL OUT --fine-tune STEPS`"
        )
    from regard.api.model_names import find_model
    from regard.convert.conversion import convert_model, tuning_recipe
    from regard.training.run.training_run import train

    tuned = None if out is None else out.with_name(f"{out.name}-tuned")
    recipe = tuning_recipe(find_model(model), name=tuned.name, steps=fine_tune) if fine_tune and tuned else None
    with plain_warnings():
        conversion = convert_model(
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
    typer.echo(json.dumps(conversion.to_dict()) if as_json else conversion.text())
    if out is None:
        return
    typer.echo(f"wrote {conversion.save(out)}", err=True)
    if recipe is not None:
        train(recipe, out=tuned, init=out, say=lambda line: typer.echo(line, err=True))
