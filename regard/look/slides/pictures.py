"""The picture of each scene, drawn without a browser and without a model: from recorded traces and from formulas.

m queries   n keys   d width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.look.lecture_examples import jane_flow
from regard.look.pictures.architecture import architecture_diagram, multi_head_diagram
from regard.look.pictures.attention_flow import qkv_flow_diagram
from regard.look.pictures.concepts.diagrams import sequence_tasks_diagram, two_attentions_diagram
from regard.look.pictures.concepts.normalization import norms_plot
from regard.look.pictures.concepts.position_schemes import position_schemes_plot
from regard.look.pictures.concepts.scaling import scaling_plot
from regard.look.pictures.concepts.three_heads import search_plot, three_heads_plot
from regard.look.pictures.drawing.colours import INK, LINES, RULE, WEIGHTS, colour_of, ink_on
from regard.look.pictures.drawing.figures import new_figure, quiet
from regard.look.pictures.drawing.fonts import fit_fonts, printable
from regard.look.pictures.gradients import gradient_plot
from regard.look.pictures.matrices import one_hot_plot, positions_plot
from regard.look.pictures.position_curves import position_products_plot, position_variance_plot
from regard.look.pictures.random_features import random_features_plot
from regard.look.pictures.traces import plot_trace
from regard.look.slides.deck import Slide, read_scene_file
from regard.look.trace.trace import Trace
from regard.positions.sinusoids import sinusoidal

Draw = Callable[[], Figure]
CELL = 0.55  # inches


def picture_of(slide: Slide) -> Draw | None:
    """Return the function that draws the picture of a scene; None if there is none without a browser."""
    scene = slide.scene
    if "curves" in scene:
        return partial(curves_plot, scene["curves"])
    if scene["trace"] is not None:
        return _trace_picture(scene)
    return _pictures().get(slide.id)


def _trace_picture(scene: dict[str, Any]) -> Draw:
    trace = Trace.from_dict(read_scene_file(scene["trace"]))
    state = {name: values[0] for name, values in parse_qs(f"{scene['state']}&{scene['answer_state']}").items()}
    if state["tab"] == "decode":
        return partial(step_plot, trace, int(parse_qs(scene["answer_state"] or scene["state"])["step"][0]))
    if state["tab"] == "alignment":
        return partial(plot_trace, trace, "alignment")
    if state["map"] == "enc_self":
        return partial(plot_trace, trace, "heads", which="enc_self")
    return partial(plot_trace, trace, "alignment", which=state["map"], layer=0, head=0)


def _pictures() -> dict[str, Draw]:
    """Return the pictures of the scenes that show no trace, by the id of the scene."""
    q, k, v = (torch.tensor(rows, dtype=torch.float64) for rows in (
        [[2, -1, 0], [-2, 1, 4]], [[2, 1, -1], [0, 3, -1], [1, 1, 3]], [[2, 3, 1], [2, -1, 0], [0, 5, 1]],
    ))  # fmt: skip
    flow = jane_flow()
    lookup = partial(example_plot, q, k, v)
    words = partial(example_plot, flow.x, flow.x, flow.x, queries=flow.words, keys=flow.words)
    theta = torch.tensor([[0.0, 2, 1, 0]])  # of the example of the Lab
    pictures: dict[str, Draw] = {
        "a1": one_hot_plot, "shapes": sequence_tasks_diagram, "c2": sequence_tasks_diagram, "c3": gradient_plot,
        "d1": lookup, "d4": lookup, "d6": lookup, "d5": partial(lookup, score="additive"), "d15": lookup,
        "d2": partial(example_plot, theta, flow.x, flow.x, queries=["θ"], keys=flow.words), "d7": words, "b1": words,
        "d10": masked_plot, "d9": scaling_plot, "d8-e9": qkv_flow_diagram, "e11": qkv_flow_diagram,
        "search": search_plot, "three-heads": three_heads_plot, "two-attentions": two_attentions_diagram,
        "b2": lambda: positions_plot(sinusoidal(100, 500)), "b3": position_products_plot, "b4": position_variance_plot,
        **dict.fromkeys(("b5", "b6", "b7", "b8"), position_schemes_plot), "d12": multi_head_diagram,
        **dict.fromkeys(("e1", "norms"), norms_plot), **dict.fromkeys(("e2", "e3", "e4"), architecture_diagram),
        **dict.fromkeys(("f1", "f2", "f3"), random_features_plot),
    }  # fmt: skip
    return pictures


def example_plot(
    q: Tensor, k: Tensor, v: Tensor, *, score: str = "dot", queries: Sequence[str] = (), keys: Sequence[str] = ()
) -> Figure:
    """Draw attention on small matrices: queries and keys, their scores, the weights, and the output; D6."""
    queries = queries or [f"q{i + 1}" for i in range(len(q))]
    keys = keys or [f"k{j + 1}" for j in range(len(k))]
    scores = (
        (q[:, None] + k).tanh().sum(-1) if score == "additive" else q @ k.T
    )  # w = 1 and W_q = W_k = I, as in the Lab
    weights = scores.softmax(-1)
    name = "Σ tanh(q + k)" if score == "additive" else "scores QKᵀ"
    numbers = [str(i + 1) for i in range(max(q.shape[1], v.shape[1]))]
    panels = [
        ("Q", q, queries, numbers), ("K", k, keys, numbers), ("V", v, keys, numbers),
        (name, scores, queries, keys), ("weights", weights, queries, keys), ("output", weights @ v, queries, numbers),
    ]  # fmt: skip
    return _tables(panels)


def masked_plot() -> Figure:
    """Draw softmax(2, 2, -inf); D10."""
    scores = torch.tensor([[2.0, 2.0, -torch.inf]])
    keys = ["k1", "k2", "k3"]
    return _tables([("masked scores", scores, ["q"], keys), ("weights", scores.softmax(-1), ["q"], keys)], columns=1)


def _tables(panels: Sequence[tuple[str, Tensor, Sequence[str], Sequence[str]]], columns: int = 3) -> Figure:
    lines = -(-len(panels) // columns)
    high = max(len(values) for _, values, _, _ in panels)
    wide = max(values.shape[1] for _, values, _, _ in panels)
    figure = new_figure(columns * (wide * CELL + 1.5), lines * (high * CELL + 0.9))
    for axes, (title, values, rows, names) in zip(
        figure.subplots(lines, columns, squeeze=False).flat, panels, strict=True
    ):
        _table(axes, title, values.numpy(), rows, names[: values.shape[1]])
    return figure


def _table(axes: Axes, title: str, values: Any, rows: Sequence[str], names: Sequence[str]) -> None:
    is_weights = title == "weights"
    shade = np.where(np.isfinite(values), values, 0) if is_weights else np.zeros_like(values)
    axes.imshow(shade, cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(names)), names, rotation=0 if max(map(len, names)) < 4 else 40)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    quiet(axes)
    axes.set_title(title, fontsize=13, color=INK)
    for (i, j), value in np.ndenumerate(values):
        text = (
            "−∞"
            if np.isneginf(value)
            else f"{value:.3f}"
            if is_weights
            else f"{value:.3g}"
            if abs(value) > 5e-4
            else "0"
        )
        ink = ink_on(colour_of(float(shade[i, j])))
        axes.text(j, i, text.replace("-", "−"), ha="center", va="center", fontsize=11, color=ink)


def step_plot(trace: Trace, number: int) -> Figure:
    """Draw the probabilities of one decoding step: the best tokens, and all others together; E6."""
    step = trace.steps[number]
    names = [candidate.text.replace("▁", " ").replace("\n", "↵") for candidate in step.candidates] + ["all others"]
    values = [math.exp(candidate.logp) for candidate in step.candidates] + [step.rest]
    colours = [LINES[0] if candidate.token == step.chosen else "#a9c4ea" for candidate in step.candidates] + [RULE]
    figure = new_figure(7.0, 5.0)
    axes = figure.subplots()
    axes.barh(range(len(values)), values, color=colours)
    axes.set_yticks(range(len(names)), [printable(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    for i, value in enumerate(values):
        axes.text(min(value, 0.88) + 0.01, i, f"{100 * value:.1f} %", va="center", fontsize=10, color=INK)
    axes.tick_params(length=0)
    quiet(axes)
    axes.set_title(f"Step {number + 1}: the probability of the next token", fontsize=13, color=INK)
    return fit_fonts(figure)


def curves_plot(curves: dict[str, Any]) -> Figure:
    """Draw measured BLEU by the length of the source; D17."""
    figure = new_figure(7.5, 5.0)
    axes = figure.subplots()
    for colour, system in zip(LINES, curves["systems"], strict=False):
        axes.plot(curves["words"], system["bleu"], color=colour, linewidth=2, label=system["name"])
        axes.fill_between(curves["words"], system["low"], system["high"], color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("words of the source")
    axes.set_ylabel("BLEU")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    quiet(axes)
    axes.set_title(curves["title"], fontsize=13, color=INK)
    return figure
