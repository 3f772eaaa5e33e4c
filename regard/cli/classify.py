"""`regard classify`: the class of each line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shared.model_options import STDIN, Device, Dtype, Model, Threads, load_as, read_text
from regard.cli.shared.torch_import import import_torch
from regard.errors import UsageError
from regard.machine import set_threads

DEFAULT_CLASSIFIER = "demo-classifier"


def classify_lines(
    file: Annotated[Path, typer.Argument(help="Text file, one text per line; - is stdin.")] = STDIN,
    model: Model = DEFAULT_CLASSIFIER,
    weights: Annotated[
        bool, typer.Option("--weights", help="Also print the pooling weight of each token, in percent.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per line: text, label, probabilities, tokens and weights."),
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Classify text line by line: print the label of each line and its probability, tab-separated.

    Train a classifier on lines with a label, a tab and a text: regard train labelled.tsv --model classifier

    Examples:
      regard classify texts.txt --weights
      regard classify -m runs/mine texts.txt --json
    """
    import_torch()
    set_threads(threads)
    from regard.api.classifier import Classifier

    if weights and as_json:
        raise UsageError("--json has the weights already: leave out --weights")
    lines = read_text(file)
    classifier = load_as(Classifier, model, device, dtype)
    for result in classifier.classify(lines):
        if as_json:
            content = {
                "text": result.text,
                "label": result.label,
                "probabilities": {label: round(p, 6) for label, p in result.probabilities.items()},
                "tokens": result.tokens,
                "weights": [round(weight, 6) for weight in result.weights],
            }
            typer.echo(json.dumps(content, ensure_ascii=False))
            continue
        typer.echo(f"{result.label}\t{result.probability:.4f}")
        if weights:
            pairs = zip(result.tokens, result.weights, strict=True)
            typer.echo("  " + "  ".join(f"{token} {weight:.0%}" for token, weight in pairs))
