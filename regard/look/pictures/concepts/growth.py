"""How Transformers grew since 2018 (L3): parameters of published models against time.

Sizes and dates are those of the papers, which docs/learn/pictures.md lists.
"""

from __future__ import annotations

from typing import NamedTuple

from matplotlib.figure import Figure

from regard.look.pictures.drawing.colours import INK, LINES, RULE
from regard.look.pictures.drawing.figures import caption, new_figure, quiet


class GrowthPoint(NamedTuple):
    """A published model. `active` is how many parameters a token uses, for mixtures of experts."""

    name: str
    year: int
    month: int  # of the first publication
    parameters: float
    paper: str
    active: float | None = None

    @property
    def time(self) -> float:
        return self.year + (self.month - 0.5) / 12


GROWTH = (
    GrowthPoint("Transformer (big)", 2017, 6, 213e6, "Vaswani et al. 2017, arXiv:1706.03762"),
    GrowthPoint("GPT", 2018, 6, 117e6, "Radford et al. 2018; size: Radford et al. 2019"),
    GrowthPoint("BERT (large)", 2018, 10, 340e6, "Devlin et al. 2018, arXiv:1810.04805"),
    GrowthPoint("GPT-2", 2019, 2, 1.542e9, "Radford et al. 2019"),
    GrowthPoint("Megatron-LM", 2019, 9, 8.3e9, "Shoeybi et al. 2019, arXiv:1909.08053"),
    GrowthPoint("T5", 2019, 10, 11e9, "Raffel et al. 2019, arXiv:1910.10683"),
    GrowthPoint("GPT-3", 2020, 5, 175e9, "Brown et al. 2020, arXiv:2005.14165"),
    GrowthPoint("Switch-C", 2021, 1, 1571e9, "Fedus et al. 2021, arXiv:2101.03961"),
    GrowthPoint("Gopher", 2021, 12, 280e9, "Rae et al. 2021, arXiv:2112.11446"),
    GrowthPoint("MT-NLG", 2022, 1, 530e9, "Smith et al. 2022, arXiv:2201.11990"),
    GrowthPoint("Chinchilla", 2022, 3, 70e9, "Hoffmann et al. 2022, arXiv:2203.15556"),
    GrowthPoint("PaLM", 2022, 4, 540e9, "Chowdhery et al. 2022, arXiv:2204.02311"),
    GrowthPoint("LLaMA", 2023, 2, 65.2e9, "Touvron et al. 2023, arXiv:2302.13971"),
    GrowthPoint("Mixtral", 2024, 1, 46.7e9, "Jiang et al. 2024, arXiv:2401.04088", active=12.9e9),
    GrowthPoint("Llama 3.1", 2024, 7, 405e9, "Grattafiori et al. 2024, arXiv:2407.21783"),
    GrowthPoint("DeepSeek-V3", 2024, 12, 671e9, "DeepSeek-AI 2024, arXiv:2412.19437", active=37e9),
)
EXPERTS = ("Switch-C", "Mixtral", "DeepSeek-V3")  # mixtures of experts: a token uses a part of the parameters
PLACES = {  # of a name: offset in points, and the side of the text that is there; above where none is given
    "beside": ((9, 0), "left", "center"),
    "before": ((-9, 0), "right", "center"),
    "below": ((0, -9), "center", "top"),
    "above": ((0, 8), "center", "bottom"),
}
PLACED = {
    "GPT": "below",
    "GPT-3": "before",
    "T5": "before",
    "Megatron-LM": "beside",
    "Gopher": "before",
    "MT-NLG": "before",
    "PaLM": "beside",
    "Chinchilla": "below",
    "Llama 3.1": "before",
}


def growth_plot() -> Figure:
    """Plot the parameters of published Transformers against the time of publication, on a logarithmic axis."""
    figure = new_figure(9.2, 5.2)
    axes = figure.add_subplot()
    for is_mixture, label in ((False, "every token uses all parameters"), (True, "mixture of experts")):
        points = [point for point in GROWTH if (point.name in EXPERTS) == is_mixture]
        axes.plot(
            [point.time for point in points],
            [point.parameters for point in points],
            "D" if is_mixture else "o",
            color=LINES[is_mixture],
            markersize=7,
            label=label,
        )
    for point in GROWTH:
        if point.active is not None:
            axes.plot([point.time] * 2, [point.active, point.parameters], color=LINES[1], linewidth=1.2)
            axes.plot(point.time, point.active, "_", color=LINES[1], markersize=9)
        offset, across, up = PLACES[PLACED.get(point.name, "above")]
        label = f"{point.name}, {short_size(point.parameters)}"
        axes.annotate(
            label,
            (point.time, point.parameters),
            offset,
            textcoords="offset points",
            ha=across,
            va=up,
            fontsize=8.5,
            color=INK,
        )
    axes.set_yscale("log")
    axes.set(ylabel="parameters", xlim=(2016.5, 2025.7), ylim=(4e7, 6e12))
    axes.set_title("Growth of Transformers", fontsize=13, weight="bold", color=INK, loc="left")
    axes.grid(color=RULE, linewidth=0.6)
    axes.legend(frameon=False, labelcolor=INK, loc="lower right")
    quiet(axes)
    first, largest = GROWTH[1], max((p for p in GROWTH if p.name not in EXPERTS), key=lambda p: p.parameters)
    times, years = largest.parameters / first.parameters, largest.time - first.time
    caption(
        figure,
        f"Sizes and dates of the papers (docs/learn/pictures.md). {largest.name} has {times:,.0f} times the parameters "
        f"of {first.name}, {years:.1f} years later. A token uses only some parameters of a mixture of experts (dash, "
        "where the paper has their number).",
    )
    return figure


def short_size(parameters: float) -> str:
    """Return a number of parameters as 117 M, 1.5 B or 1.6 T."""
    unit, letter = next((unit, letter) for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if parameters >= unit)
    value = parameters / unit
    return f"{value:.1f} {letter}" if value < 10 and value != round(value) else f"{value:.0f} {letter}"
