"""The colour map: perceptual by measurement in CIELAB, which is not the space it was made in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from regard.look.pictures.drawing import colours


def cielab(hex_colours: tuple[str, ...]) -> np.ndarray:
    """sRGB to CIELAB with the D65 white (CIE 15, IEC 61966-2-1), written out here as an independent measure."""
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in hex_colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = linear @ to_xyz.T / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def test_the_table_is_256_colours_that_the_web_page_can_read() -> None:
    table = json.loads(Path(colours.__file__).with_name("colours.json").read_text("utf-8"))
    assert tuple(table) == colours.TABLE
    assert len(table) == 256 and len(set(table)) == 256
    assert all(len(c) == 7 and c[0] == "#" and int(c[1:], 16) >= 0 for c in table)


def test_dark_means_large_all_the_way() -> None:
    lightness = cielab(colours.TABLE)[:, 0]
    assert lightness[0] > 97 and lightness[-1] < 15
    assert (np.diff(lightness[::4]) < 0).all()


def test_equal_steps_look_equal() -> None:
    steps = np.linalg.norm(np.diff(cielab(colours.TABLE[::15]), axis=0), axis=1)
    assert len(steps) == 17
    assert steps.max() / steps.min() < 2.5


def test_colour_of_a_weight() -> None:
    assert colours.colour_of(0.0) == colours.TABLE[0]
    assert colours.colour_of(1.0) == colours.TABLE[255]
    assert colours.colour_of(0.5) == colours.TABLE[128]


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_colour_of_refuses_what_is_no_weight(value: float) -> None:
    with pytest.raises(ValueError, match="value must lie between 0 and 1"):
        colours.colour_of(value)


def test_values_are_readable_on_every_colour() -> None:
    """WCAG 2 asks for a contrast of 4.5; luminance is Y of CIELAB."""
    for colour in (*colours.TABLE, *colours.TINTS.values()):
        lightness = cielab((colour,))[0, 0]
        luminance = ((lightness + 16) / 116) ** 3
        ink = {"#000000": 0.0, "#ffffff": 1.0}[colours.ink_on(colour)]
        light, dark = max(luminance, ink), min(luminance, ink)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, colour
