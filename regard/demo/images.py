"""Demo images: simple shapes of different sizes, places and brightness on a noisy ground. Free of rights.

N images   S pixels on a side
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.arrays.images import Images, make_images

SIDE = 28  # pixels, as in MNIST
SHAPES = ("circle", "cross", "disc", "frame", "square", "stripes", "triangle")
NOISE = 25  # grey levels


def demo_images(count: int, *, seed: int = 1, name: str = "demo images") -> Images:
    """Return `count` grey images of 28 x 28 pixels, with the name of the shape as label; shapes take turns."""
    generator = np.random.Generator(np.random.PCG64(seed))
    labels = [SHAPES[i % len(SHAPES)] for i in range(count)]
    pixels = np.stack([draw_shape(label, generator) for label in labels])
    return make_images(pixels[:, None], labels, name=name)


def draw_shape(shape: str, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Draw a shape at a random place, (S, S)."""
    radius = generator.uniform(5, 10)
    centre = generator.uniform(radius, SIDE - radius, size=2)
    ground, ink = generator.uniform(0, 80), generator.uniform(150, 255)
    grid = np.arange(SIDE) + 0.5
    y, x = grid[:, None] - centre[0], grid[None] - centre[1]
    picture = np.where(inside_shape(shape, x, y, radius), ink, ground) + generator.normal(0, NOISE, size=(SIDE, SIDE))
    return np.clip(picture, 0, 255).astype(np.uint8)


def inside_shape(shape: str, x: NDArray, y: NDArray, radius: float) -> NDArray[np.bool_]:
    """Return for each pixel whether it belongs to a shape of that radius around the origin."""
    distance, reach = np.hypot(x, y), np.maximum(abs(x), abs(y))
    line = max(1.5, radius / 4)  # width
    match shape:
        case "circle":
            return (distance <= radius) & (distance > radius - line)
        case "cross":
            return (reach <= radius) & (np.minimum(abs(x), abs(y)) <= line / 2)
        case "disc":
            return distance <= radius
        case "frame":
            return (reach <= radius) & (reach > radius - line)
        case "square":
            return np.broadcast_to(reach <= radius, reach.shape)
        case "stripes":
            return (reach <= radius) & (np.floor((y + radius) / line) % 2 == 0)
        case _:
            return (abs(y) <= radius) & (abs(x) <= (y + radius) / 2)  # a triangle
