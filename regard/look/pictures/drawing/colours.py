"""The colours of every picture: one map for numbers and a few flat tints for boxes and lines.

The map is data (colours.json, 256 colours) so that the web page paints the same weight the same way. It runs
in OKLab (Ottosson 2020) from near white to a dark indigo with lightness falling all the way, resampled so that
equal steps of weight are equal steps for the eye; it reads the same in print and for the colour blind.
"""

from __future__ import annotations

import json
from importlib.resources import files

from matplotlib.colors import ListedColormap, to_rgb

TABLE: tuple[str, ...] = tuple(
    json.loads(files("regard.look.pictures.drawing").joinpath("colours.json").read_text("utf-8"))
)
WEIGHTS = ListedColormap(list(TABLE), name="regard")

INK = "#1f2430"
MUTED = "#667085"
RULE = "#d0d5dd"
PAPER = "#ffffff"

# What a box of a diagram does decides its tint.
TINTS = {
    "attention": "#cfe3fa",
    "linear": "#e7e3f8",
    "norm": "#fcf1cd",
    "feedforward": "#cdeee3",
    "embedding": "#fadfe0",
    "softmax": "#d8efc9",
    "plain": "#eef1f5",
    "frame": "#f8f9fb",
}

# Curves of one picture, far apart for the colour blind too (dark blue, orange, green, pink).
LINES = ("#266abc", "#d9730d", "#0b8a6a", "#b83280")


def colour_of(value: float) -> str:
    """The colour of a weight between 0 and 1, as #rrggbb."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"value must lie between 0 and 1, not {value}")
    return TABLE[round(value * (len(TABLE) - 1))]


def ink_on(colour: str) -> str:
    """Black or white, whichever has more contrast on colour (WCAG 2 relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # Contrast with white is 1.05 / (Y + 0.05), with black (Y + 0.05) / 0.05: equal at Y = 0.179.
    return "#000000" if luminance > 0.179 else "#ffffff"
