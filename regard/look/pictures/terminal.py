"""An alignment matrix in the terminal, in the colours of the pictures.

D16, H1. Rows are target words, columns source words. If the matrix is wider than the screen, a cell shrinks to one
digit (tenths) and the columns are numbered.

    m rows   n columns
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text
from torch import Tensor

from regard.look.pictures.drawing.colours import colour_of, ink_on


class HeatMap:
    """The weights (m, n) of an alignment, printable with rich."""

    def __init__(
        self, weights: Tensor | Sequence[Sequence[float]], source: Sequence[str], target: Sequence[str]
    ) -> None:
        table = torch.as_tensor(weights, dtype=torch.float32)
        if table.shape != (len(target), len(source)):
            raise ValueError(
                f"weights has shape {tuple(table.shape)}, but {len(target)} target and {len(source)} source words "
                f"need ({len(target)}, {len(source)})"
            )
        self.weights: list[list[float]] = table.clamp(0.0, 1.0).tolist()
        self.source, self.target = list(source), list(target)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        aside = max(map(cell_len, self.target), default=0) + 2
        widths = [max(cell_len(word), 4) + 2 for word in self.source]
        if aside + sum(widths) <= options.max_width:
            yield self._table(self.source, widths, wide=True)
            return
        numbers = [str(number) for number in range(1, len(self.source) + 1)]
        yield self._table(numbers, [len(number) + 1 for number in numbers], wide=False)
        yield Text("  ".join(f"{number} {word}" for number, word in zip(numbers, self.source, strict=True)))

    def _table(self, heads: Sequence[str], widths: Sequence[int], *, wide: bool) -> Table:
        """Return a table with one row per target word and one coloured cell per source word."""
        table = Table(box=None, pad_edge=False, padding=0)
        table.add_column(no_wrap=True)
        for head, width in zip(heads, widths, strict=True):
            table.add_column(Text(head), justify="center", width=width, no_wrap=True)
        for word, row in zip(self.target, self.weights, strict=True):
            cells = [_cell(weight, width, wide=wide) for weight, width in zip(row, widths, strict=True)]
            table.add_row(Text(f"{word}  "), *cells)
        return table


def _cell(weight: float, width: int, *, wide: bool) -> Text:
    """Format a weight on its colour: two decimals, or tenths; a dot if it rounds to zero."""
    if wide:
        shown = f"{weight:.2f}" if weight >= 0.01 else "·"
    else:
        shown = str(min(int(10 * weight + 0.5), 9)) if weight >= 0.05 else "·"
    colour = colour_of(weight)
    return Text(f"{shown:^{width}}", style=Style(color=ink_on(colour), bgcolor=colour))
