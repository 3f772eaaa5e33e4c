"""`regard classify`: the class of each line of text, or of each image."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.shared.model_options import STDIN, Device, Dtype, Model, Threads, load_as, read_text
from regard.cli.shared.torch_import import import_torch
from regard.errors import DataError, UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.api.arrays.image_classifier import ImageClassifier
    from regard.api.classifier import Classifier

DEFAULT_CLASSIFIER = "demo-classifier"


def classify_inputs(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Text files, one text per line, or images; - is stdin.", show_default="stdin"),
    ] = None,
    model: Model = DEFAULT_CLASSIFIER,
    weights: Annotated[
        bool, typer.Option("--weights", help="Also print the pooling weight of each token, in percent.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per line: label, probabilities, and for a text its tokens."),
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Classify text line by line, or images: print the label and its probability, tab-separated.

    Train a classifier on lines with a label, a tab and a text: regard train labelled.tsv --model classifier
    Train one on images, in one folder per class: regard train FOLDER --model image-classifier

    Examples:
      regard classify texts.txt --weights
      regard classify -m runs/mine texts.txt --json
      regard classify -m runs/pictures picture.png
    """
    import_torch()
    set_threads(threads)
    from regard.api.arrays.image_classifier import ImageClassifier
    from regard.api.classifier import Classifier
    from regard.api.model_names import find_model
    from regard.tasks.folder_face import face_of

    if weights and as_json:
        raise UsageError("--json has the weights already: leave out --weights")
    if face_of(find_model(model)) == "image classifier":
        if weights:
            raise UsageError("--weights is for texts: `regard plot image` shows the attention to an image")
        classify_images(load_as(ImageClassifier, model, device, dtype), files or [], as_json=as_json)
        return
    classifier = load_as(Classifier, model, device, dtype)
    lines = [line for file in files or [STDIN] for line in read_text(file)]
    classify_texts(classifier, lines, weights=weights, as_json=as_json)


def classify_texts(classifier: Classifier, lines: list[str], *, weights: bool, as_json: bool) -> None:
    """Print the label of each text."""
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


def classify_images(classifier: ImageClassifier, files: Sequence[Path], *, as_json: bool) -> None:
    """Print the label of each image; one that cannot be read gets a message, and the exit code 3 at the end."""
    if not files or STDIN in files:
        raise UsageError("this model classifies images: give image files")
    failed = 0
    for file in files:
        try:
            result = classifier.classify(file)
        except DataError as error:
            failed += 1
            typer.echo(f"regard: {error}", err=True)
            continue
        if as_json:
            probabilities = {label: round(p, 6) for label, p in result.probabilities.items()}
            content = {"image": result.name, "label": result.label, "probabilities": probabilities}
            typer.echo(json.dumps(content, ensure_ascii=False))
        else:
            typer.echo(f"{result.label}\t{result.probability:.4f}" + (f"\t{file}" if len(files) > 1 else ""))
    if failed:
        raise typer.Exit(DataError.exit_code)
