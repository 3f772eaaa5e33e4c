"""Layer normalization against batch normalization: what is averaged, and what happens in a recurrent net.

E1; Ba et al. 2016, Ioffe & Szegedy 2015.

    B sentences   T steps   D features
"""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from regard.layers.recurrent import RNN
from regard.look.pictures.drawing.colours import INK, LINES, PAPER, RULE, TINTS
from regard.look.pictures.drawing.figures import caption, new_figure, quiet

SENTENCES, STEPS, FEATURES = 8, 24, 16
LENGTHS = (24, 24, 18, 15, 12, 9, 6, 4)  # of the sentences of the batch: fewer and fewer reach the later steps


def norms_plot(*, seed: int = 0, redraws: int = 32) -> Figure:
    """Draw over what each norm averages, and how much the other sentences of a batch change a normalized state; E1."""
    if redraws < 2:
        raise ValueError(f"redraws must be at least 2, not {redraws}")
    figure = new_figure(10.2, 4.2)
    layer, batch, curves = figure.subplots(1, 3, width_ratios=(1, 1, 1.7))
    _grid(layer, "Layer norm", rows=(2,), columns=range(6), note="one token, all its features")
    _grid(batch, "Batch norm", rows=range(5), columns=(2,), note="one feature, all tokens of the batch")
    changes = state_changes(seed=seed, redraws=redraws)
    for (name, values), colour in zip(changes.items(), LINES, strict=False):
        curves.plot(range(1, STEPS + 1), values.numpy(), color=colour, linewidth=2.2, label=name)
    curves.set(xlabel="step of the recurrent net", ylabel="change of one sentence's state", xlim=(1, STEPS))
    curves.set_title("When the other sentences change", fontsize=12, weight="bold", color=INK, loc="left")
    curves.legend(frameon=False, labelcolor=INK, loc="upper left")
    curves.grid(color=RULE, linewidth=0.6)
    quiet(curves)
    caption(
        figure,
        f"Right: an untrained RNN on one sentence, normalized in a batch with {SENTENCES - 1} others of {LENGTHS[-1]} "
        f"to {LENGTHS[1]} steps. Standard deviation of its state over {redraws} draws of the others, root mean square "
        f"over {FEATURES} features. Batch norm has its own statistics for each step; few sentences reach the last.",
    )
    return figure


def state_changes(*, seed: int = 0, redraws: int = 32) -> dict[str, Tensor]:
    """Return by how much the state of one sentence varies with the rest of its batch, for both norms, (T,) each."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = RNN(FEATURES, FEATURES, batch_first=True, dtype=torch.float64)
        sentence = torch.randn(1, STEPS, FEATURES, dtype=torch.float64)
        batches = [
            torch.cat((sentence, torch.randn(SENTENCES - 1, STEPS, FEATURES, dtype=torch.float64)))
            for _ in range(redraws)
        ]
    alive = torch.arange(STEPS) < torch.tensor(LENGTHS)[:, None]  # (B, T)
    with torch.no_grad():
        states = [net(batch)[0] for batch in batches]  # (B, T, D)
    normalized = {
        "batch norm": [_batch_norm(h, alive)[0] for h in states],
        "layer norm": [torch.nn.functional.layer_norm(h, (FEATURES,))[0] for h in states],
    }
    return {
        name: torch.stack(rows).std(dim=0, correction=0).square().mean(-1).sqrt() for name, rows in normalized.items()
    }


def _batch_norm(h: Tensor, alive: Tensor) -> Tensor:
    """Normalize each feature (B, T, D) at each step over the sentences that reach it."""
    weight = alive[..., None] / alive.sum(0)[None, :, None]  # (B, T, 1)
    mean = (h * weight).sum(0)  # (T, D)
    variance = ((h - mean).square() * weight).sum(0)
    return (h - mean) / (variance + 1e-5).sqrt()


def _grid(
    axes: Axes, title: str, *, rows: range | tuple[int, ...], columns: range | tuple[int, ...], note: str
) -> None:
    """Draw tokens by features, with the numbers of one mean and one variance filled in."""
    for row in range(5):
        for column in range(6):
            inside = row in rows and column in columns
            face = LINES[0] if inside else TINTS["plain"]
            axes.add_patch(Rectangle((column, 4 - row), 0.92, 0.92, facecolor=face, edgecolor=PAPER))
    axes.set(xlim=(-0.1, 6.1), ylim=(-0.1, 5.1), xticks=[], yticks=[], aspect="equal", ylabel="tokens")
    axes.set_xlabel(f"features\n\n{note}", color=INK, fontsize=10)
    axes.yaxis.label.set_color(INK)
    axes.set_title(title, fontsize=12, weight="bold", color=INK, loc="left")
    for side in axes.spines.values():
        side.set_visible(False)
