"""`regard lectures`: compute the worked examples of the lectures and compare them with the printed numbers.

A1, B3, D6, D10, E9, F3. If a number differs, the code is broken, and the command ends with exit code 1.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from torch import Tensor

WIDTH = 80
FRAME = 6  # columns of a panel around its content
LABEL = 13  # columns for the name of a matrix
NEXT = (
    ("plot alignment -o align.svg", "the alignment matrix, as a vector graphic"),
    ("plot mask --kind window --size 16", "a mask: which keys a query may attend to"),
    ("plot --help", "all pictures"),
)


def show_lectures(
    out: Annotated[Path, typer.Option("--out", help="Folder for the pictures; created if necessary.")] = Path(
        "pictures"
    ),
) -> None:
    """Compute the worked examples of the lectures and draw their pictures.

    Example: regard lectures --out pictures
    """
    from rich.console import Console

    console = Console(width=min(Console().width, WIDTH), highlight=False)
    for section in (embedding, worked_example, masking, positions, alignment, random_features):
        console.print(section())
    draw_pictures(out, console.print)
    console.print("\n[bold]Next[/bold]")
    for command, meaning in NEXT:
        console.print(f"  [bold cyan]{program()} {command}[/bold cyan]\n      {meaning}")


def program() -> str:
    """Return how to call `regard` here; after `make demo` it is in .venv, which is not on the PATH."""
    if shutil.which("regard"):
        return "regard"
    return os.path.relpath(sys.argv[0]) if Path(sys.argv[0]).is_file() else "regard"


def panel(title: str, *parts: RenderableType) -> RenderableType:
    """Return a titled frame around the parts, stacked vertically."""
    from rich.console import Group
    from rich.panel import Panel

    return Panel(Group(*parts), title=f"[bold]{title}[/bold]", title_align="left", padding=(1, 2), width=WIDTH)


def agree(what: str, computed: Tensor, expected: Tensor, tolerance: float, *, source: str = "the slide") -> str:
    """Return a line that confirms what a source says; RuntimeError if the computed values differ from it."""
    difference = (computed.double() - expected.double()).abs().max().item()
    if not difference <= tolerance:
        raise RuntimeError(f"{what} differs from {source} by {difference:.2g}, more than {tolerance}")
    within = f"within {tolerance:g}" if tolerance else "exactly"
    return f"[green]✓[/green] {what} agrees with {source} ({within})"


def matrix(values: Tensor, digits: int = 3, name: str = "") -> RenderableType:
    """Format a matrix in brackets with aligned columns."""
    from rich.text import Text

    return Text("\n".join(f"{label:<{LABEL}}{row}" for label, row in _named_rows(name, _computed(values, digits))))


def beside(name: str, computed: Tensor, printed: str, *, digits: int = 3, tolerance: float) -> RenderableType:
    """Show a computed matrix beside the one on the slide, with a tick; RuntimeError if they differ.

    `printed` are the characters of the slide, one line per row. A wide matrix stands above the printed one.
    """
    import torch
    from rich.console import Group
    from rich.text import Text

    slide = [line.split() for line in printed.strip().splitlines()]
    expected = torch.tensor([[float(Fraction(cell)) for cell in row] for row in slide], dtype=torch.float64)
    tick = agree(name, computed, expected, tolerance)
    left, right = _named_rows(name, _computed(computed, digits)), _named_rows("slide", slide)
    lines = [f"{a:<{LABEL}}{row} {b:<6}{other}" for (a, row), (b, other) in zip(left, right, strict=True)]
    if len(lines[0]) > WIDTH - FRAME:
        lines = [f"{label:<{LABEL}}{row}" for label, row in [*left, *right]]
    return Group(Text("\n".join(lines)), tick)


def _computed(values: Tensor, digits: int) -> list[list[str]]:
    return [[f"{value:.{digits}f}" for value in row] for row in values.tolist()]


def _named_rows(name: str, cells: list[list[str]]) -> list[tuple[str, str]]:
    """Return the rows of a matrix in brackets, and the name beside the middle one."""
    width = max(len(cell) for row in cells for cell in row)
    corners = {0: ("⎡", "⎤"), len(cells) - 1: ("⎣", "⎦")} if len(cells) > 1 else {0: ("[", "]")}
    rows = []
    for i, row in enumerate(cells):
        left, right = corners.get(i, ("⎢", "⎥"))
        text = f"{left} {'  '.join(cell.rjust(width) for cell in row)} {right}"
        rows.append((name if i == (len(cells) - 1) // 2 else "", text))
    return rows


def embedding() -> RenderableType:
    """A1: multiplying a one-hot row by the table selects a row of the table."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        table = torch.nn.Embedding(4, 5).weight.detach()
    ids = torch.tensor([2, 3, 1])
    rows = table[ids]
    product = torch.nn.functional.one_hot(ids, 4).float() @ table
    printed = """
        0.6957 -1.8061 -1.1589  0.3255 -0.6315
       -2.8400 -0.7849 -1.4096 -0.4076  0.7953
        1.3010  1.2753 -0.2010 -0.1606 -0.4015
    """
    return panel(
        "A1  Embedding: a look-up is a product with one-hot rows",
        beside("rows 2, 3, 1", rows, printed, digits=4, tolerance=1e-4),
        agree("one-hot × table", product, rows, 0, source="the look-up"),
    )


def worked_example() -> RenderableType:
    """D6: attention with the unscaled dot product, step by step, and the effect of the scale of D9."""
    import torch

    from regard.attention.dispatch import attend

    V = torch.tensor([[2.0, 3, 1], [2, -1, 0], [0, 5, 1]])
    K = torch.tensor([[2.0, 1, -1], [0, 3, -1], [1, 1, 3]])
    Q = torch.tensor([[2.0, -1, 0], [-2, 1, 4]])
    Y, A = attend(Q, K, V, score="dot", return_weights=True)
    _, scaled = attend(Q, K, V, score="scaled", return_weights=True)
    return panel(
        "D6  Attention by hand: queries, keys, values",
        beside("QKᵀ", Q @ K.T, "3 -3 1\n-7 -1 11", digits=0, tolerance=0),
        "",
        beside("A = softmax", A, "0.879 0.002 0.119\n0 0 1", tolerance=6e-4),
        "",
        beside("Y = AV", Y, "1.762 3.23 0.998\n0 5 1", tolerance=1e-3),
        f"\n3.23 is {Y[0, 1]:.4f}: the slide multiplies V by the rounded A. It does not scale\n"
        "the scores. Divided by √3, they give softer weights:\n",
        matrix(scaled, 3, "A scaled"),
    )


def masking() -> RenderableType:
    """D10: masked scores become -inf before the softmax."""
    import torch
    from rich.columns import Columns
    from rich.text import Text

    from regard.attention import masks
    from regard.attention.dispatch import attend

    def softmax(scores: list[float], visible: int) -> Tensor:
        """Return the weights of one query that may attend to its first `visible` keys."""
        k = torch.tensor(scores, dtype=torch.float32)[:, None]  # the query is 1, so the keys are the scores
        allowed = (torch.arange(len(scores)) < visible)[None]
        return attend(torch.ones(1, 1), k, k, mask=allowed, score="dot", return_weights=True)[1]

    two, three = softmax([2, 2, 9], 2), softmax([1, 1, 1, 9], 3)
    pictures = {
        "causal": masks.causal(),
        "window(2)": masks.window(2),
        "causal & document": masks.causal() & masks.document([0, 0, 0, 1, 1, 1, 1, 1]),
    }
    return panel(
        "D10  Masks: which keys a query may attend to",
        beside("of 2 2 −∞", two, "1/2 1/2 0", tolerance=1e-6),
        beside("of 1 1 1 −∞", three, "1/3 1/3 1/3 0", tolerance=1e-6),
        "",
        Columns([Text(f"{name}\n{mask.picture(8, 8)}") for name, mask in pictures.items()], padding=(0, 6)),
        "\nRows are queries, columns are keys; ■ may attend, · is masked.",
    )


def positions() -> RenderableType:
    """B3: the inner product of two positions depends only on their distance."""
    import torch
    from rich.table import Table

    from regard.positions.sinusoids import sinusoidal

    dim, starts, distances = 128, (0, 7, 100), (0, 1, 2, 5, 10, 50)
    p = sinusoidal(starts[-1] + distances[-1] + 1, dim, dtype=torch.float64)
    products = torch.stack([torch.stack([p[t] @ p[t + k] for k in distances]) for t in starts])
    waves = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    formula = torch.cos(torch.tensor(distances)[:, None] * waves).sum(-1).expand(len(starts), -1)
    table = Table("distance", *map(str, distances), box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for t, row in zip(starts, products.tolist(), strict=True):
        table.add_row(f"from t = {t}", *(f"{value:.4f}" for value in row))
    line = agree("pₜ · pₜ₊ₖ", products, formula, 1e-9, source="the sum of cosines of k")
    return panel("B3  Positions: inner products depend on the distance, not on the position", table, "", line)


def alignment() -> RenderableType:
    """E9 as an alignment matrix in the terminal, in the colours of the pictures."""
    from rich.table import Table
    from rich.text import Text

    from regard.look.lecture_examples import jane_alignment
    from regard.look.pictures.drawing.colours import colour_of, ink_on

    shown = jane_alignment()
    table = Table("", *(f"{word:^9}" for word in shown.source), box=None, pad_edge=False, padding=0)
    for word, row in zip(shown.target, shown.weights.tolist(), strict=True):
        cells = []
        for weight in row:
            colour = colour_of(min(weight, 1.0))
            text = f"{weight:.2f}" if weight >= 0.01 else "·"
            cells.append(Text(f"{text:^9}", style=f"{ink_on(colour)} on {colour}"))
        table.add_row(f"{word}  ", *cells)
    return panel("E9  Jane visite l'Afrique en septembre", table, f"\n{shown.made}")


def random_features() -> RenderableType:
    """F2, F3: the formula of the slide and the factor that it lacks, without which the error does not vanish."""
    import torch
    from rich.table import Table

    from regard.attention.linear.feature_maps import Plain
    from regard.look.inside.random_features import (
        exact_weights,
        feature_errors,
        jane_head,
        limit_weights,
        relative_error,
    )

    head, counts = jane_head(), (16, 64, 256, 1024)
    x, y = head.q * head.scale**0.5, head.k * head.scale**0.5
    phi, _ = Plain()(x, torch.randn(64, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    exact = exact_weights(head, normalize=False)
    gaussian = torch.exp(-(x[:, None] - y).square().sum(-1) / 2)  # what φ(q)·φ(k) estimates
    corrected = gaussian * torch.exp(y.square().sum(-1) / 2)  # times the factor of the key
    table = Table("features", *map(str, counts), "limit", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    bias = relative_error(limit_weights(head, normalize=False), exact)
    for name, title, limit in (("plain", "as printed on the slide", bias), ("trig", "with exp(|k|²/2√d)", 0.0)):
        errors = feature_errors(head, name, counts=counts, seeds=16).median(dim=0).values
        table.add_row(title, *(f"{error:.3f}" for error in [*errors.tolist(), limit]))
    return panel(
        "F3  Random features: the missing factor of the formula",
        "Jane's sentence, sines and cosines; relative error of the weights:\n",
        table,
        "\nφ(q)·φ(k) estimates exp(−|x−y|²/2), with x = q/d^¼ and y = k/d^¼. The slide "
        f"lacks the factor exp(|y|²/2) of each key, so an error of {bias:.3f} remains.\n",
        agree("|φ(x)|", phi.norm(dim=-1), torch.ones(len(x)), 1e-12, source="sin² + cos² = 1"),
        agree(
            "with the factor, the limit", corrected / corrected.sum(-1, keepdim=True), exact, 1e-12, source="softmax"
        ),
    )


def draw_pictures(folder: Path, say: Callable[[str], None]) -> None:
    """Draw all pictures of `regard plot` as PNG files in a folder."""
    from rich.markup import escape

    from regard.cli.plot.lecture_pictures import lecture_pictures
    from regard.look.pictures.drawing import figures

    pictures = lecture_pictures()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the folder {folder}: {error.strerror or error}") from error
    for name, draw in pictures.items():
        figures.save(draw(), folder / f"{name}.png")
    say(f"[green]✓[/green] {len(pictures)} pictures in {escape(str(folder))}: {', '.join(pictures)}")
