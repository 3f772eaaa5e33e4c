"""`regard plot NAME`: draw the pictures of the lectures as PNG, SVG or PDF, and print the path of the file.

`regard plot TRACE.json` and `regard plot --model MODEL TEXT` are short for `regard plot trace …`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from regard.cli.plot.arrays import caption, forecast, image, speech
from regard.cli.plot.attribution import attribution
from regard.cli.plot.concepts import CONCEPTS
from regard.cli.plot.drawing import AnimatedOutput, Output, load_or_trace, write
from regard.cli.plot.random_features import random_features
from regard.cli.plot.stories import answer, summary
from regard.cli.plot.word_map import word_map
from regard.cli.shared.model_options import DEFAULT_MODEL, Threads
from regard.errors import DataError, UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from regard.look.lecture_examples import LabelledWeights
    from regard.look.pictures.animations.animation import Frame
    from regard.look.trace.trace import Trace


class Pictures(TyperGroup):
    """The group of all pictures; a trace file or an option instead of a name selects the picture of a trace."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        option = first.startswith("-") and first not in ctx.help_option_names
        if option or first.endswith((".json", ".json.gz")):
            args = ["trace", *args]
        return super().parse_args(ctx, args)


plots = typer.Typer(
    cls=Pictures,
    no_args_is_help=True,
    help="Draw a picture of the lectures, or of a model's attention on a text, as PNG, SVG or PDF.",
)


class MaskKind(StrEnum):
    causal = "causal"
    padding = "padding"
    window = "window"
    document = "document"


class Kind(StrEnum):
    alignment = "alignment"
    heads = "heads"
    steps = "steps"
    tree = "tree"


class Level(StrEnum):
    word = "word"
    piece = "piece"


@plots.command()
def trace(
    what: Annotated[str, typer.Argument(help="Trace file (.json, .json.gz), or a text.", metavar="WHAT")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", show_default=DEFAULT_MODEL, help="Model for the text: folder or name."),
    ] = None,
    kind: Annotated[Kind, typer.Option(help="Picture to draw.")] = Kind.alignment,
    which: Annotated[str | None, typer.Option("--map", help="Attention: enc_self, dec_self, cross or rnn.")] = None,
    layer: Annotated[int | None, typer.Option(show_default="the best", help="Layer of the alignment, from 0.")] = None,
    head: Annotated[
        int | None, typer.Option(show_default="the best, or all", help="Head of the alignment, from 0.")
    ] = None,
    level: Annotated[Level, typer.Option(help="Units on the axes: words or subwords (piece).")] = Level.word,
    target: Annotated[str | None, typer.Option(help="Force the model to write this text.")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Beam width.")] = None,
    threads: Threads = None,
    output: AnimatedOutput = None,
) -> None:
    """Draw what a model did with a text: alignment, all heads, search steps, or the tree of a beam search (D16, E8).

    A text is given to the model first. The short forms `regard plot TRACE.json` and `regard plot --model MODEL TEXT` do
    the same. The tree can be an animation of the search (-o NAME.gif).

    Examples:
      regard plot trace jane.json --kind heads -o heads.svg
      regard plot trace --model fr-en "Le chat dort." --kind tree --beam 4
    """
    set_threads(threads)
    from regard.look.pictures.traces import plot_trace

    shown = load_or_trace(what, model, target, beam)
    options: dict[str, Any] = {"which": which, "layer": layer, "head": head, "level": level.value}
    animate = partial(search_frames, shown) if kind is Kind.tree else None
    write(lambda: plot_trace(shown, kind.value, **options), output, kind.value, animate=animate)


def search_frames(shown: Trace) -> Iterator[Frame]:
    """Yield the frames of a beam search."""
    from regard.look.pictures.animations.beam_search import beam_search_frames

    return beam_search_frames(shown)


@plots.command()
def alignment(
    file: Annotated[
        Path | None,
        typer.Argument(
            help=r'JSON: {"source": \[words], "target": \[words], "weights": \[\[…], …]}, one row per target word.'
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Title above the matrix.")] = "",
    values: Annotated[bool, typer.Option(help="Write the weights into the cells.")] = True,
    output: Output = None,
) -> None:
    """Draw the alignment matrix of a file, or of the sentence about the marine environment (D16)."""
    from regard.look.lecture_examples import marine_alignment
    from regard.look.pictures.matrices import alignment_plot

    def draw() -> Figure:
        shown = marine_alignment() if file is None else read_alignment(file)
        try:
            return alignment_plot(
                shown.weights, shown.source, shown.target, title=title, made=shown.made, values=values
            )
        except ValueError as error:
            raise DataError(f"{file}: {error}") from error

    write(draw, output, "alignment")


def read_alignment(path: Path) -> LabelledWeights:
    """Read the words and weights of a JSON file; DataError if they do not fit the format."""
    from regard.look.lecture_examples import LabelledWeights

    try:
        data: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not JSON: {error.msg}, line {error.lineno} column {error.colno}") from error
    keys = ("source", "target", "weights")
    if not isinstance(data, dict) or sorted(data) != sorted(keys):
        actual = f"has {', '.join(map(str, data)) or 'nothing'}" if isinstance(data, dict) else "is not an object"
        raise DataError(f"{path} must contain an object with source, target and weights, but {actual}")
    for side in ("source", "target"):
        words = data[side]
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise DataError(f"{path}: {side} must be a list of at least one word")
    return LabelledWeights(data["weights"], data["source"], data["target"], made="")


@plots.command()
def positions(
    length: Annotated[int, typer.Option(min=1, help="Number of positions.")] = 100,
    dim: Annotated[int, typer.Option(min=1, help="Dimension of the encoding.")] = 500,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Draw the learned positions of this model.")
    ] = None,
    output: Output = None,
) -> None:
    """Draw a heat map of the sinusoidal positions (B4), or of the learned positions of a model (B6)."""
    from regard.look.pictures.matrices import positions_plot
    from regard.positions.sinusoids import sinusoidal

    if model is None:
        write(lambda: positions_plot(sinusoidal(length, dim)), output, "positions")
    else:
        table = learned_table(model)[:length]
        write(lambda: positions_plot(table, title=f"Learned positions of {Path(model).name}"), output, "positions")


def learned_table(model: str) -> Tensor:
    """Return the learned position vectors of a model; UsageError if it has none."""
    from regard.positions.learned import Learned
    from regard.tasks.loading import load

    for module in load(model).model.modules():
        if isinstance(module, Learned):
            return module.table.detach()
    raise UsageError(f"{model} has no learned positions; leave out --model to draw the sinusoidal ones")


@plots.command()
def variance(
    dim: Annotated[int, typer.Option(min=2, help="Dimension of the encoding, even.")] = 128,
    distances: Annotated[int, typer.Option(min=2, help="Number of distances, from 0.")] = 50,
    output: Output = None,
) -> None:
    """Draw which dimensions of the sinusoidal positions distinguish distances (B4)."""
    from regard.look.pictures.position_curves import position_variance_plot

    write(lambda: position_variance_plot(dim, distances), output, "variance")


@plots.command()
def products(
    dim: Annotated[int, typer.Option(min=2, help="Dimension of the encoding.")] = 128,
    distances: Annotated[int, typer.Option(min=2, help="Number of distances, from 0.")] = 100,
    output: Output = None,
) -> None:
    """Draw the inner product of two sinusoidal positions against their distance (B3)."""
    from regard.look.pictures.position_curves import position_products_plot

    write(lambda: position_products_plot(dim, distances), output, "products")


@plots.command()
def mask(
    kind: Annotated[MaskKind, typer.Option(help="Mask to draw.")] = MaskKind.causal,
    size: Annotated[int, typer.Option(min=1, max=256, help="Number of queries and keys.")] = 12,
    output: Output = None,
) -> None:
    """Draw a mask: which keys each query may attend to (D10)."""
    from regard.look.lecture_examples import example_mask
    from regard.look.pictures.matrices import mask_plot

    title = f"{kind.value} mask".capitalize()
    write(lambda: mask_plot(example_mask(kind.value, size), title=title), output, "mask")


@plots.command("one-hot")
def one_hot(
    word: Annotated[str, typer.Option(help="Word of the letters A to Z.")] = "SUNNY",
    output: Output = None,
) -> None:
    """Draw one-hot rows and the dense rows that they select from a table (A1)."""
    from regard.look.pictures.matrices import one_hot_plot

    write(lambda: one_hot_plot(word), output, "one-hot")


@plots.command()
def gradients(
    length: Annotated[int, typer.Option(min=2, help="Length of the sequence.")] = 80,
    seeds: Annotated[int, typer.Option(min=1, help="Number of random networks.")] = 8,
    output: Output = None,
) -> None:
    """Draw how far back gradients reach in an RNN, an LSTM and attention (C3)."""
    from regard.look.pictures.gradients import gradient_plot

    write(lambda: gradient_plot(length=length, seeds=seeds), output, "gradients")


@plots.command()
def architecture(
    layers: Annotated[int, typer.Option(min=1, help="Number of encoder and of decoder blocks.")] = 6,
    dim: Annotated[int, typer.Option(min=1, help="Dimension of the model.")] = 512,
    heads: Annotated[int, typer.Option(min=1, help="Heads per attention.")] = 8,
    output: Output = None,
) -> None:
    """Draw the encoder-decoder Transformer (E11)."""
    from regard.look.pictures.architecture import architecture_diagram

    write(lambda: architecture_diagram(layers=layers, dim=dim, heads=heads), output, "architecture")


@plots.command("scaled-dot-product")
def scaled_dot_product(output: Output = None) -> None:
    """Draw scaled dot-product attention, step by step (E11)."""
    from regard.look.pictures.architecture import scaled_dot_product_diagram

    write(scaled_dot_product_diagram, output, "scaled-dot-product")


@plots.command("multi-head")
def multi_head(
    dim: Annotated[int, typer.Option(min=1, help="Dimension of the model.")] = 512,
    heads: Annotated[int, typer.Option(min=1, help="Number of heads.")] = 8,
    output: Output = None,
) -> None:
    """Draw multi-head attention (E11)."""
    from regard.look.pictures.architecture import multi_head_diagram

    write(lambda: multi_head_diagram(dim=dim, heads=heads), output, "multi-head")


@plots.command("qkv-flow")
def qkv_flow(
    word: Annotated[int, typer.Option(min=1, max=5, help="Word of the sentence, from 1.")] = 3,
    output: Output = None,
) -> None:
    """Draw how q, k and v produce the new vector of a word (E9, E11)."""
    from regard.look.pictures.attention_flow import qkv_flow_diagram

    write(lambda: qkv_flow_diagram(word=word - 1), output, "qkv-flow")


plots.command("random-features")(random_features)
plots.command("words")(word_map)
plots.command("image")(image)
plots.command("caption")(caption)
plots.command("answer")(answer)
plots.command("summary")(summary)
plots.command("forecast")(forecast)
plots.command("speech")(speech)
plots.command()(attribution)
for name, concept in CONCEPTS.items():
    plots.command(name)(concept)
