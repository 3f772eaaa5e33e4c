"""The rejected positions beside the sinusoidal ones, and a table of schemes against criteria.

B3, B5, B6; the criteria are those of L2. Every entry of the table is computed from the scheme itself.
"""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.look.pictures.drawing.colours import INK, LINES, MUTED, RULE
from regard.look.pictures.drawing.figures import caption, new_figure, quiet
from regard.positions.interface import Position
from regard.positions.learned import Learned
from regard.positions.rejected_ideas import Fraction, Index
from regard.positions.sinusoids import Sinusoidal

DIM, TRAINED, LONG = 16, 64, 512
CRITERIA = (
    "one vector per position",
    "bounded",
    "a step is the same in every sentence",
    "any length",
    "no parameters",
)


def schemes() -> dict[str, Position]:
    """Return the schemes of the table; the learned one has 64 positions with random vectors."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        learned = Learned(max_length=TRAINED, dim=DIM)
    return {
        "fraction": Fraction(dim=DIM),
        "index": Index(dim=DIM),
        "learned": learned,
        "sinusoidal": Sinusoidal(dim=DIM),
    }


@torch.no_grad()
def judge_scheme(scheme: Position) -> tuple[bool, ...]:
    """Return whether a scheme meets each of the criteria."""
    any_length = not scheme.limited
    lengths = (12, 24, LONG if any_length else TRAINED)
    short, longer, longest = (_vectors(scheme, length) for length in lengths)
    gaps = torch.cdist(longest, longest) + torch.eye(len(longest)) * 9
    return (
        bool(gaps.min() > 1e-4),
        bool(longest.abs().max() <= 2),
        bool(torch.allclose(short[1] - short[0], longer[1] - longer[0], atol=1e-6)),
        any_length,
        not list(scheme.parameters()),
    )


def position_schemes_plot() -> Figure:
    """Draw one column of each scheme for a short and a long sentence, and the table of schemes against criteria."""
    figure = new_figure(10.2, 5.6)
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 0.9))[:, 0]
    all_schemes = schemes()
    for axes, (name, scheme) in zip(top.subplots(1, 4), all_schemes.items(), strict=True):
        for length, colour in ((8, LINES[1]), (20, LINES[0])):
            values = _vectors(scheme, length)[:, 0].numpy()
            axes.plot(range(1, length + 1), values, "o-", color=colour, markersize=3, label=f"{length} words")
        axes.set_title(name, fontsize=12, weight="bold", color=INK, loc="left")
        axes.set_xlabel("word")
        axes.grid(color=RULE, linewidth=0.6)
        quiet(axes)
        if name == "fraction":
            axes.set_ylabel("first column")
            axes.legend(frameon=False, labelcolor=INK, fontsize=9)
    _table(bottom.subplots(), {name: judge_scheme(scheme) for name, scheme in all_schemes.items()})
    caption(
        figure,
        f"Width {DIM}. Each entry is computed from the scheme: distinct vectors at up to {LONG} positions, values of "
        f"at most 2, the same first step in sentences of 12 and 24 words. The first two ideas are rejected (B5).",
    )
    return figure


def _vectors(scheme: Position, length: int) -> Tensor:
    """Return what a scheme adds to the embeddings of a sentence, (length, D)."""
    return scheme.embed(torch.zeros(1, length, DIM), torch.arange(length))[0].detach()


def _table(axes: Axes, verdicts: dict[str, tuple[bool, ...]]) -> None:
    axes.set(xlim=(0, 10), ylim=(0, len(CRITERIA) + 1))
    axes.axis("off")
    columns = [4.6 + 1.5 * i for i in range(len(verdicts))]
    for x, name in zip(columns, verdicts, strict=True):
        axes.text(x, len(CRITERIA) + 0.45, name, ha="center", va="center", fontsize=11, weight="bold", color=INK)
    for row, criterion in enumerate(CRITERIA):
        y = len(CRITERIA) - row - 0.5
        axes.axhline(y + 0.5, color=RULE, linewidth=0.8)
        axes.text(0.1, y, criterion, va="center", fontsize=11, color=INK)
        for x, verdict in zip(columns, verdicts.values(), strict=True):
            met = verdict[row]
            text = axes.text(x, y, "yes" if met else "no", ha="center", va="center", fontsize=11)
            text.set(color=LINES[2] if met else MUTED, weight="bold" if met else "normal")
