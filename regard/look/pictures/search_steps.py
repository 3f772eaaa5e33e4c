"""Pictures of decoding: the candidates of each step, and the tree of a beam search.

E6, E8, E10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from regard.errors import UsageError
from regard.look.pictures.drawing.colours import INK, LINES, MUTED, PAPER, RULE, TABLE, TINTS
from regard.look.pictures.drawing.figures import axes_at, caption, new_figure, quiet
from regard.look.pictures.drawing.fonts import families_for, fit_fonts, printable
from regard.look.pictures.matrices import text_width
from regard.look.trace.search_steps import Step, Tree
from regard.look.trace.trace import Trace

SHOWN = 6  # candidates of a step
BAR = 0.2  # inches
COLUMNS = 4
LETTER = 9
OTHERS = "all others"
NODE_COLOURS = {  # of a box and its text
    "kept": (TINTS["attention"], INK),
    "done": (TABLE[200], PAPER),
    "pruned": (PAPER, MUTED),
    "proposed": (TINTS["norm"], INK),
}


def steps_plot(trace: Trace) -> Figure:
    """Draw the most probable candidates of each step as bars, the chosen one dark, and the rest; E8."""
    if not trace.steps:
        raise UsageError("this trace has no steps: the model generated no text")
    panels = [_bars(step) for step in trace.steps]
    fonts = FontProperties(family=families_for(text for texts, _, _ in panels for text in texts)[0])
    aside = max(text_width(text, fonts, LETTER) for texts, _, _ in panels for text in texts) + 0.25
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    tall = BAR * (SHOWN + 2)
    width, height = 1.7, tall + 0.55
    figure = new_figure(columns * (aside + width + 0.35) + 0.2, rows * height + 0.55, layout=None)
    for number, (texts, shares, chosen) in enumerate(panels):
        row, column = divmod(number, columns)
        left = aside + 0.1 + column * (aside + width + 0.35)
        axes = axes_at(figure, left, 0.5 + (rows - 1 - row) * height, width, tall)
        _draw_bars(axes, texts, shares, chosen)
        step = trace.steps[number]
        note = "forced" if step.given else f"entropy {step.entropy:.2f}"
        axes.set_title(f"{number + 1}  ({note})", fontsize=LETTER, color=INK if not step.given else MUTED, loc="left")
    caption(figure, "Probability of the next token; dark: the chosen one.")
    return fit_fonts(figure)


def _bars(step: Step) -> tuple[list[str], list[float], int]:
    """Return the texts and probabilities of the candidates, the rest last, and the index of the chosen one."""
    ranked = sorted(step.candidates, key=lambda candidate: -candidate.logp)
    shown = ranked[:SHOWN]
    if step.chosen not in [candidate.token for candidate in shown]:
        shown = [*shown[:-1], next(candidate for candidate in ranked if candidate.token == step.chosen)]
    rest = step.rest + math.fsum(math.exp(candidate.logp) for candidate in ranked if candidate not in shown)
    chosen = [candidate.token for candidate in shown].index(step.chosen)
    texts = [*(printable(candidate.text) for candidate in shown), OTHERS]
    return texts, [*(math.exp(candidate.logp) for candidate in shown), rest], chosen


def _draw_bars(axes: Axes, texts: Sequence[str], shares: Sequence[float], chosen: int) -> None:
    colours = [TABLE[200] if i == chosen else TABLE[80] for i in range(len(texts) - 1)]
    axes.barh(range(len(texts)), shares, color=[*colours, RULE], height=0.78)
    axes.set_yticks(range(len(texts)), list(texts))
    axes.set(xlim=(0, 1.2), ylim=(SHOWN + 0.6, -0.6))
    axes.set_xticks([0, 0.5, 1.0], ["0", ".5", "1"])
    for i, share in enumerate(shares):
        shown = f"{share:.2f}".removeprefix("0") if share >= 0.005 else "< .01"
        axes.text(share + 0.02, i, shown, fontsize=7.5, va="center", color=INK)
    quiet(axes)
    axes.tick_params(labelsize=LETTER, length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def tree_plot(trace: Trace, *, steps: int | None = None, decided: int | None = None) -> Figure:
    """Draw all hypotheses of a beam search: kept blue, finished dark, pruned white, best path bold; E8.

    With `steps`, draw the first steps only, without the best path; hypotheses of steps after `decided` have no colour
    yet. The figure has the same size for any number of steps.
    """
    tree = trace.tree
    if tree is None:
        raise UsageError("this trace has no tree: trace a beam search (search=Beam(5), or --beam 5)")
    places = tree_places(tree)
    depth, lines = max(x for x, _ in places) + 1, max(y for _, y in places) + 1
    labels = [f"{printable(node.text)}  {node.score:.2f}" for node in tree.nodes]
    fonts = FontProperties(family=families_for(labels)[0])
    wide = max(text_width(label, fonts, LETTER) for label in labels) + 0.75
    across, up = 0.4 + depth * wide, 0.9 + 0.27 * lines
    figure = new_figure(max(across, 3.4), up, layout=None)
    axes = axes_at(figure, 0, 0.45, across, up - 0.6)
    axes.set(xlim=(0, across), ylim=(lines - 0.4, -0.6))
    axes.axis("off")
    best = set(tree.path(tree.best)) if steps is None else set()
    for i, (node, (x, y)) in enumerate(zip(tree.nodes, places, strict=True)):
        if steps is not None and x >= steps:
            continue
        left = 0.2 + x * wide
        if node.parent is not None:
            above = places[node.parent]
            start = 0.2 + above[0] * wide + text_width(labels[node.parent], fonts, LETTER) / 2  # behind its box
            bend = left - 0.3
            chosen = i in best
            axes.plot(
                [start, bend, bend, left - 0.06], [above[1], above[1], y, y],
                color=LINES[0] if chosen else RULE, linewidth=2.0 if chosen else 1.0, zorder=2 if chosen else 1,
            )  # fmt: skip
        state = node.state if decided is None or x < decided else "proposed"
        fill, ink = NODE_COLOURS[state]
        frame = {"boxstyle": "round,pad=0.25", "facecolor": fill, "edgecolor": LINES[0] if i in best else RULE}
        axes.text(
            left, y, labels[i], fontsize=LETTER, color=ink, va="center", zorder=3, bbox=frame,
            weight="bold" if i in best else "normal",
        )  # fmt: skip
    proposed = "Yellow: proposed. " if decided is not None else ""
    meaning = "Blue: kept. Dark: finished. White: pruned. Numbers: log-probability / length^penalty."
    caption(figure, proposed + meaning)
    return fit_fonts(figure)


def tree_depth(tree: Tree) -> int:
    """Return the number of steps of a beam search."""
    return max(x for x, _ in tree_places(tree)) + 1


def tree_places(tree: Tree) -> list[tuple[int, float]]:
    """Return the step and the line of each node: one line per leaf, parents centred on their children."""
    children: dict[int | None, list[int]] = {}
    for i, node in enumerate(tree.nodes):
        children.setdefault(node.parent, []).append(i)
    steps = [0] * len(tree.nodes)
    lines = [0.0] * len(tree.nodes)
    leaves = 0
    waiting = children.get(None, [])[::-1]
    while waiting:
        i = waiting.pop()
        waiting += children.get(i, [])[::-1]
        if i not in children:
            lines[i] = leaves
            leaves += 1
    for i, node in enumerate(tree.nodes):
        steps[i] = 0 if node.parent is None else steps[node.parent] + 1
    for i in reversed(range(len(tree.nodes))):  # children come after their parents
        if i in children:
            lines[i] = (lines[children[i][0]] + lines[children[i][-1]]) / 2
    return list(zip(steps, lines, strict=True))
