"""The pictures that explain an idea, drawn whole; tests/lectures/test_pictured_ideas.py has their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.look.pictures.concepts.diagrams import sequence_tasks_diagram, two_attentions_diagram
from regard.look.pictures.concepts.growth import GROWTH, growth_plot
from regard.look.pictures.concepts.normalization import norms_plot
from regard.look.pictures.concepts.position_schemes import (
    position_schemes_plot,
)
from regard.look.pictures.concepts.scaling import scaling_plot
from regard.look.pictures.concepts.three_heads import (
    search_plot,
    three_heads_plot,
)

from ...repeats import some

DRAWN = {
    "norms": norms_plot,
    "scaling": scaling_plot,
    "position schemes": position_schemes_plot,
    "three heads": three_heads_plot,
    "search": search_plot,
    "two attentions": two_attentions_diagram,
    "sequence tasks": sequence_tasks_diagram,
    "growth": growth_plot,
}


@pytest.mark.parametrize("name", some(DRAWN, 3))
def test_every_text_is_inside_the_sheet(name: str, clipped) -> None:
    before = torch.random.get_rng_state()
    assert clipped(DRAWN[name]()) == []
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_page_cites_a_paper_for_every_model() -> None:
    page = (Path(__file__).parents[3] / "docs" / "learn" / "pictures.md").read_text("utf-8")
    rows = [f"| {point.name} | {point.year} | {point.parameters / 1e9:,.4g} | {point.paper} |" for point in GROWTH]
    assert "\n".join(rows) in page


@pytest.mark.parametrize(
    ("draw", "options", "message"),
    [
        (norms_plot, {"redraws": 1}, "redraws must be at least 2"),
        (scaling_plot, {"keys": 1}, "keys must be at least 2"),
    ],
)
def test_wrong_numbers_are_refused(draw, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(**options)
