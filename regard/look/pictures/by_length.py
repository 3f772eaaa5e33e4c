"""Comparison of systems: quality by sentence length, and learning curves.

Bahdanau et al. 2015, figure 2; D17.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.evaluation.by_length import Bucket
from regard.look.pictures.drawing.colours import INK, LINES, RULE
from regard.look.pictures.drawing.figures import caption, new_figure, quiet

COLOURS = (*LINES, INK, "#8a5a2b")
LEGEND = 1.9  # inches beside the axes
MARKERS = "os^DvPX"  # six colours and seven markers distinguish 42 systems


def length_plot(curves: Mapping[str, Sequence[Bucket]], *, trained: Mapping[str, int] | None = None) -> Figure:
    """Plot BLEU against the length of the source, with a 95% confidence band for each system; D17.

    The systems must have been scored on the same sentences, so that their buckets are the same. `trained` has the
    longest sentences that a system was trained on: beyond them its line is dashed.
    """
    buckets = _shared_buckets(curves)
    figure = new_figure(max(7.2, 0.6 * len(buckets) + 1.5) + LEGEND, 4.8)
    axes = figure.add_subplot()
    x = [bucket.middle for bucket in buckets]
    for i, (name, curve) in enumerate(curves.items()):
        scores = [bucket.bleu for bucket in curve]
        y = [score.value for score in scores]
        limit = (trained or {}).get(name, buckets[-1].high)
        inside = sum(bucket.low <= limit for bucket in buckets)
        _line(axes, i, name, x[:inside], y[:inside])
        if inside < len(x):
            start = max(inside - 1, 0)
            _line(axes, i, "_beyond", x[start:], y[start:], linestyle="--")  # the legend leaves such names out
        low, high = zip(*(score.interval or (score.value, score.value) for score in scores), strict=True)
        axes.fill_between(x, low, high, color=COLOURS[i % len(COLOURS)], alpha=0.15, linewidth=0)
    # Two lines under each tick: the lengths and the number of sentences.
    axes.set_xticks(x, [f"{_lengths(bucket)}\n{bucket.count}" for bucket in buckets])
    axes.set(xlabel="source length in words, and number of sentences", ylabel="BLEU")
    axes.set_ylim(bottom=0)
    _finish(axes, "BLEU by sentence length")
    caption(figure, _about(buckets, beyond="Dashed: longer than in training." if trained else ""))
    return figure


def learning_plot(curves: Mapping[str, Sequence[tuple[int, float]]], *, measure: str = "BLEU") -> Figure:
    """Plot learning curves: `measure` (BLEU, loss) against the target tokens seen, one line per system."""
    if not curves or not all(curves.values()):
        raise ValueError("curves needs at least one system, and each at least one (tokens, value)")
    figure = new_figure(7.2 + LEGEND, 4.6)
    axes = figure.add_subplot()
    for i, (name, curve) in enumerate(curves.items()):
        tokens, values = zip(*curve, strict=True)
        _line(axes, i, name, tokens, values)
    axes.set(xlabel="target tokens seen", ylabel=measure)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: short_count(value))
    _finish(axes, f"{measure} during training")
    return figure


def short_count(value: float) -> str:
    """Format a count for an axis: 250000 is 250k."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _shared_buckets(curves: Mapping[str, Sequence[Bucket]]) -> Sequence[Bucket]:
    if not curves or not all(curves.values()):
        raise ValueError("curves needs at least one system, and each at least one bucket")
    first, *others = curves.items()
    for name, curve in others:
        if [(b.low, b.high, b.count) for b in curve] != [(b.low, b.high, b.count) for b in first[1]]:
            raise ValueError(f"{name!r} and {first[0]!r} have different buckets: score both on the same sentences")
    return first[1]


def _line(axes: Axes, i: int, name: str, x: Sequence[float], y: Sequence[float], linestyle: str = "-") -> None:
    colour, mark = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
    axes.plot(x, y, color=colour, marker=mark, markersize=5.5, linewidth=2.0, linestyle=linestyle, label=name)


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=13, weight="bold", color=INK, loc="left")
    axes.grid(color=RULE, linewidth=0.6)
    # Beside the axes, for the lines may run anywhere inside them.
    axes.legend(frameon=False, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    quiet(axes)


def _lengths(bucket: Bucket) -> str:
    return str(bucket.low) if bucket.low == bucket.high else f"{bucket.low}–{bucket.high}"


def _about(buckets: Sequence[Bucket], beyond: str) -> str:
    """Return the caption: how the numbers were computed, and which buckets were merged."""
    score = buckets[0].bleu
    parts = [beyond] if beyond else []
    if score.interval is not None:
        parts.append("Bands: 95% confidence intervals by bootstrap resampling.")
    joined = [_lengths(bucket) for bucket in buckets if bucket.merged > 1]
    if joined:
        parts.append(f"Merged from smaller buckets with few sentences: {', '.join(joined)}.")
    return " ".join([*parts, f"sacreBLEU {score.signature}."])
