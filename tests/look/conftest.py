"""What tests of looking share: where the texts of a picture stand, small models, boxes computed again."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text


def texts_of(figure: Figure) -> list[Text]:
    """All texts that are drawn; ticks outside the limits are laid out but not drawn."""
    figure.canvas.draw()
    beyond = set()
    for axis in figure.findobj(Axis):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                beyond |= {tick.label1, tick.label2}
    texts = figure.findobj(lambda artist: isinstance(artist, Text) and artist not in beyond)
    return [text for text in texts if text.get_text().strip() and text.get_visible()]


@pytest.fixture(scope="session")
def clipped() -> Callable[[Figure], list[str]]:
    """Gives the texts of a figure that do not lie wholly inside it."""

    def measure(figure: Figure) -> list[str]:
        sheet = figure.bbox
        out = []
        texts = texts_of(figure)
        assert texts
        for text in texts:
            box = text.get_window_extent()
            inside = (
                sheet.x0 <= box.x0 + 0.5 and sheet.y0 <= box.y0 + 0.5
                and box.x1 - 0.5 <= sheet.x1 and box.y1 - 0.5 <= sheet.y1
            )  # fmt: skip
            if not inside:
                out.append(text.get_text())
        return out

    return measure


def _neighbour(name: str) -> Any:
    """A module that lies beside this one: test folders are no packages."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def small() -> Any:
    """small_models.py: `small.small_face("transformer", position="rotary")`, `small.TEXT`."""
    return _neighbour("small_models")


@pytest.fixture(scope="session")
def small_inputs() -> Any:
    """small_inputs.py: `small_inputs.small_classifier()`, `small_inputs.small_series()`."""
    return _neighbour("small_inputs")


@pytest.fixture(scope="session")
def recomputing() -> Any:
    """recomputing.py: boxes of `inside_block` computed again."""
    return _neighbour("recomputing")
