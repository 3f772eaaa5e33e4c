"""`regard plot image`, `caption`, `forecast` and `speech`: pictures of models for images, series and recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.plot.drawing import Output, write
from regard.cli.shared.model_options import Model, load_as
from regard.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.api.arrays.forecaster import Forecaster
    from regard.arrays.series import Series


def image(
    file: Annotated[Path, typer.Argument(help="Image file.")],
    model: Model,
    layer: Annotated[
        int | None,
        typer.Option(min=0, show_default="the mean of the heads, for all layers", help="Layer whose heads are drawn."),
    ] = None,
    output: Output = None,
) -> None:
    """Draw the attention of an image classifier over the patches of an image (G5).

    Example: regard plot image -m runs/pictures picture.png -o attention.png
    """
    from regard.api.arrays.image_classifier import ImageClassifier
    from regard.look.pictures.arrays.image_attention import image_attention_plot

    classifier = load_as(ImageClassifier, model, "cpu", "auto")
    result = classifier.classify(file)
    weights = classifier.attention(file)  # (layers, heads, rows, columns)
    if layer is None:
        names, maps = [f"layer {i}" for i in range(len(weights))], weights.mean(1)
    else:
        maps = chosen_layer(weights, layer)
        names = [f"layer {layer}, head {i}" for i in range(len(maps))]
    who = "the class token" if classifier.model.config.pooling == "class" else "all patches, on average,"
    about = f"How much {who} attended to each patch" + (" (mean of the heads)." if layer is None else ".")
    title = f"{result.label}, {result.probability:.0%}"
    pixels = classifier.pixels(file)
    write(lambda: image_attention_plot(pixels, maps, names, title=title, about=about), output, "image")


def caption(
    file: Annotated[Path, typer.Argument(help="Image, animated GIF, or folder with the numbered frames of a video.")],
    model: Model,
    output: Output = None,
) -> None:
    """Draw where a captioner looked for each word of its caption (G4).

    Example: regard plot caption -m runs/pictures picture.png -o caption.png
    """
    from regard.api.arrays.captioner import Captioner
    from regard.look.pictures.arrays.caption_attention import caption_attention_plot

    captioner = load_as(Captioner, model, "cpu", "auto")
    result = captioner.caption(file, attention=True)
    if not result.words:
        raise UsageError(f"{file}: the caption of this model is empty, so there is nothing to draw")
    about = "The attention to each cell of the image, at the step that writes the word."
    pixels, words = captioner.pixels(file), [text for text, *_ in result.words]
    maps = result.word_attention()
    write(lambda: caption_attention_plot(pixels, maps, words, title=result.text, about=about), output, "caption")


def forecast(
    file: Annotated[Path, typer.Argument(help="CSV file: names of columns in the first line, then rows of numbers.")],
    model: Model,
    at: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="so that the last rows are forecast",
            help="First row to forecast, from 0; the number of rows forecasts those after the end.",
        ),
    ] = None,
    column: Annotated[list[str] | None, typer.Option(show_default="all", help="Column to draw; repeat it.")] = None,
    layer: Annotated[
        int | None, typer.Option(min=0, show_default="the mean of all", help="Layer whose attention is drawn.")
    ] = None,
    output: Output = None,
) -> None:
    """Draw a forecast beside what really came, and the attention to the past (G6).

    Example: regard plot forecast -m runs/series series.csv --at 500 -o forecast.png
    """
    from regard.api.arrays.forecaster import Forecaster
    from regard.look.pictures.arrays.series_forecast import forecast_plot

    forecaster = load_as(Forecaster, model, "cpu", "auto")
    series = forecaster.read(file)
    first = len(series) - forecaster.horizon if at is None else at
    if not forecaster.lookback <= first <= len(series):
        raise UsageError(
            f"row {first} of {len(series)} cannot be forecast: the model reads {forecaster.lookback} rows before it"
        )
    past = series.rows(first - forecaster.lookback, first)
    truth = series.values[first : first + forecaster.horizon]
    values, weights = forecaster.forecast(past).values, past_weights(forecaster, past, layer)
    chosen = column_numbers(series.columns, column)
    about = "Area: mean attention weight of the patches that contain a point." if weights is not None else ""

    write(
        lambda: forecast_plot(
            past.values[:, chosen],
            values[:, chosen],
            [series.columns[i] for i in chosen],
            truth=truth[:, chosen],
            weights=None if weights is None else weights[chosen],
            title=f"{forecaster.horizon} rows from row {first:,}",
            about=about,
        ),
        output,
        "forecast",
    )


def speech(
    file: Annotated[Path, typer.Argument(help="WAV file.")],
    model: Model,
    layer: Annotated[
        int | None, typer.Option(min=0, show_default="the mean of all", help="Layer of the decoder that is drawn.")
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=0, show_default="the mean of all", help="Head of that layer that is drawn.")
    ] = None,
    output: Output = None,
) -> None:
    """Draw a recording as a spectrogram, and the attention of each written token over time (G6).

    Example: regard plot speech -m runs/speech recording.wav -o attention.png
    """
    from regard.api.arrays.transcriber import Transcriber
    from regard.look.pictures.arrays.speech_attention import speech_attention_plot

    transcriber = load_as(Transcriber, model, "cpu", "auto")
    weights = transcriber.attention(file)  # (layers, heads, m, n)
    transcript = transcriber.transcribe(file)
    of_layer = weights.mean(0) if layer is None else chosen_layer(weights, layer)
    if head is not None and head >= len(of_layer):
        raise UsageError(f"--head {head}: a layer has the heads 0 to {len(of_layer) - 1}")
    drawn = of_layer.mean(0) if head is None else of_layer[head]  # (m, n)
    whose = "the mean of all layers" if layer is None else f"layer {layer}"
    heads = ", mean of the heads" if head is None else f", head {head}"
    write(
        lambda: speech_attention_plot(
            transcriber.frames(file),
            drawn,
            [*transcript.tokens, "end"],
            seconds=transcript.seconds,
            step=transcript.step,
            title=transcript.text,
            about=f"Attention of the decoder to the sound: {whose}{heads}.",
        ),
        output,
        "speech",
    )


def past_weights(forecaster: Forecaster, past: Series, layer: int | None) -> Tensor | None:
    """Return the mean weight on each point of a window, (C, L); None for a linear model."""
    from regard.look.pictures.arrays.series_forecast import point_weights
    from regard.models.config import ForecasterConfig

    config = forecaster.model.config
    if not isinstance(config, ForecasterConfig):
        if layer is not None:
            raise UsageError("--layer: DLinear is linear and has no attention")
        return None
    weights = forecaster.attention(past)  # (layers, heads, C, n, n)
    on_patches = (weights.mean(0) if layer is None else chosen_layer(weights, layer)).mean((0, 2))  # (C, n)
    return point_weights(on_patches, points=config.lookback, patch=config.patch, stride=config.stride)


def chosen_layer(weights: Tensor, layer: int) -> Tensor:
    """Return the weights of a layer; UsageError if there is no such layer."""
    if layer >= len(weights):
        raise UsageError(f"--layer {layer}: the model has the layers 0 to {len(weights) - 1}")
    return weights[layer]


def column_numbers(columns: tuple[str, ...], names: list[str] | None) -> list[int]:
    """Return the numbers of columns, all of them without names; UsageError if a name is unknown."""
    for name in names or []:
        if name not in columns:
            raise UsageError(f"--column {name}: the columns are {', '.join(columns)}")
    return [columns.index(name) for name in names or columns]
