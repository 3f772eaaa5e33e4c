"""Pictures of a trace: the alignment, and all heads of a map side by side.

D11, D16. The colours are those of the page. `search_steps.py` draws the decoding steps.

    L layers   H heads   m queries   n keys
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from regard.errors import UsageError, unknown_name
from regard.look.heads.statistics import head_statistics
from regard.look.pictures.drawing.colours import INK, MUTED, WEIGHTS
from regard.look.pictures.drawing.figures import axes_at, new_figure, quiet
from regard.look.pictures.drawing.fonts import families_for, fit_fonts, printable
from regard.look.pictures.matrices import SLOPE, alignment_plot, text_width
from regard.look.pictures.search_steps import steps_plot, tree_plot
from regard.look.trace.trace import Trace
from regard.look.trace.words import merge_words

KINDS = ("alignment", "heads", "steps", "tree")
MAP_TITLES = {
    "enc_self": "encoder",
    "dec_self": "decoder",
    "cross": "target on source",
    "rnn": "target on source",
    "pointer": "target copies source",
}
CAPTIONS = {
    "enc_self": "self-attention of the encoder",
    "dec_self": "self-attention of the decoder",
    "cross": "cross-attention",
    "rnn": "attention to the source",
    "pointer": "pointer to the source",
}
LETTER = 8  # points, of the words beside small maps
LINE = 0.135  # inches that a line of them takes
PANEL = 1.9  # inches of a small map's longer side, unless its words need more
LARGEST = 4.4
GAP, ROOM = 0.22, 0.3  # inches between small maps, and above each for its name

Level = Literal["word", "piece"]


def plot_trace(
    trace: Trace,
    kind: str = "alignment",
    *,
    which: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    level: Level = "word",
) -> Figure:
    """Draw a picture of a trace; its kind is alignment, heads, steps or tree.

    The first two show the map `which` (default: the map to the source, if there is one) between words or subwords. An
    alignment shows one head, or the mean over a layer if no head is given; without a layer, the mean of the heads that
    align best.
    """
    if kind not in KINDS:
        raise UsageError(unknown_name("kind", kind, KINDS))
    if kind in ("steps", "tree"):
        if which is not None or layer is not None or head is not None:
            raise UsageError(f"the picture {kind!r} has no map: leave out map, layer and head")
        return steps_plot(trace) if kind == "steps" else tree_plot(trace)
    if level not in ("word", "piece"):
        raise UsageError(unknown_name("level", level, ("word", "piece")))
    shown = merge_words(trace) if level == "word" else trace
    name = _find_map(trace, which)
    if kind == "alignment":
        return _alignment(shown, name, layer, head)
    if head is not None:
        raise UsageError("the picture 'heads' shows all heads: leave out head")
    return heads_plot(shown, name, layer)


def heads_plot(trace: Trace, which: str, layer: int | None = None) -> Figure:
    """Draw every head of a map, one row per layer, or the heads of one layer; badges name their patterns."""
    attention = trace.maps[which]
    layers, heads, m, n = attention.weights.shape
    rows = range(layers) if layer is None else [_checked("layer", layer, layers)]
    side = max(m, n)
    cell = min(max(PANEL, min(LINE * side, LARGEST)) / side, 0.4)
    every = max(1, math.ceil(LINE / cell))
    words = [
        [printable(token.text) for token in trace.axes[axis].tokens][::every]
        for axis in (attention.query, attention.key)
    ]
    fonts = FontProperties(family=families_for([*words[0], *words[1]])[0])
    widest = [max(text_width(word, fonts, LETTER) for word in side) for side in words]
    aside, above = widest[0] + 0.45, math.sin(math.radians(SLOPE)) * widest[1] + 0.55
    over = math.cos(math.radians(SLOPE)) * widest[1]  # the last words lean out to the right
    width, height = cell * n, cell * m
    statistics = head_statistics(attention)
    names = {(r, h): ", ".join([f"{r}.{h}", *statistics.badges(r, h)]) for r in rows for h in range(heads)}
    # A map of few words is narrower than its name.
    step = max(width, *(text_width(name, fonts, LETTER) for name in names.values())) + GAP
    across = max(aside + heads * step + max(over + width - step, 0) + 0.15, 3.6)
    up = above + len(rows) * (height + ROOM) + 0.15
    figure = new_figure(across, up, layout=None)
    for r, number in enumerate(rows):
        for head in range(heads):
            left, bottom = aside + head * step, up - above - r * (height + ROOM) - ROOM - height
            axes = axes_at(figure, left, bottom, width, height)
            axes.imshow(
                attention.weights[number, head], cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest"
            )
            axes.text(-0.5, -0.5 - 0.06 / cell, names[number, head], fontsize=LETTER, color=INK, ha="left", va="bottom")
            quiet(axes)
            _words(axes, words if head == 0 else [[], words[1]], every, top=r == 0)
    title = MAP_TITLES[which]
    figure.text(
        0.15 / across, 1 - 0.12 / up, f"{trace.model.name}, {title}: layer.head", color=MUTED, fontsize=9, va="top"
    )
    return fit_fonts(figure)


def _words(axes: Axes, words: Sequence[Sequence[str]], every: int, *, top: bool) -> None:
    """Label a small map: words on the left and, in the top row, above its name."""
    rows, columns = words
    axes.set_yticks([every * i for i in range(len(rows))], list(rows))
    axes.set_xticks([every * j for j in range(len(columns))] if top else [])
    if top:
        axes.set_xticklabels(list(columns), rotation=SLOPE, ha="left", va="bottom", rotation_mode="anchor")
    axes.tick_params(top=top, labeltop=top, bottom=False, labelbottom=False, length=0, labelsize=LETTER)
    axes.tick_params(axis="x", pad=17)  # room for the name
    axes.tick_params(axis="y", pad=3)


def _alignment(trace: Trace, which: str, layer: int | None, head: int | None) -> Figure:
    attention = trace.maps[which]
    layers, heads = attention.weights.shape[:2]
    texts = [[token.text for token in trace.axes[axis].tokens] for axis in (attention.key, attention.query)]
    if layer is None and head is None and which in ("cross", "rnn"):
        if trace.alignment is not None:
            weights = trace.alignment.weights[0, 0]
            made = f"{trace.model.name}: {CAPTIONS[which]}, mean of the heads that align best."
            return alignment_plot(weights.tolist(), *texts, made=made, values=weights.size <= 900)
        if trace.best_head is not None:
            layer, head = trace.best_head.layer, trace.best_head.head
    layer = layers - 1 if layer is None else _checked("layer", layer, layers)
    weights = (
        attention.weights[layer].mean(0) if head is None else attention.weights[layer, _checked("head", head, heads)]
    )
    heads_text = f"mean of the {heads} heads" if head is None else f"head {head}"
    made = f"{trace.model.name}: {CAPTIONS[which]}, layer {layer}, {heads_text}."
    return alignment_plot(weights.tolist(), *texts, made=made, values=weights.size <= 900)


def _find_map(trace: Trace, which: str | None) -> str:
    if not trace.maps:
        raise UsageError("this trace has no attention; use the kind 'steps' to draw its steps")
    if which is None:
        return next(name for name in ("cross", "rnn", "dec_self", "enc_self") if name in trace.maps)
    if which not in trace.maps:
        raise UsageError(unknown_name("map", which, tuple(trace.maps)))
    return which


def _checked(name: str, value: int, size: int) -> int:
    if not 0 <= value < size:
        raise UsageError(f"{name} must be from 0 to {size - 1}, got {value}")
    return value
