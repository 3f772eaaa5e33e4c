"""Scenes of small items on a dark canvas, with captions of a small grammar: "a bag above two sneakers".

G4. In a scene, one or two items of one kind are left of or above one or two of another kind. In a moving scene, an item
moves in one or two directions: "the bag moves left, then up". The place of each item is known, so one can check whether
a model looks at the bag when it writes "bag".

    N scenes   T frames   S pixels on a side of an item   H = W pixels on a side of the canvas
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.arrays.captions import CaptionedImages, PixelBox, Places, make_captioned
from regard.arrays.images import Images, make_images
from regard.demo.images import SHAPES, inside_shape
from regard.errors import DataError

DEMO_ITEM, DEMO_VARIANTS = 20, 60  # pixels on a side of a demo item, and how many there are of each shape
DEMO_SHAPES = tuple(shape for shape in SHAPES if shape != "stripes")  # which has no singular
VISIBLE = 40  # grey levels from which on a pixel belongs to an item
NOISE = 32  # grey levels of the canvas, at most
IRREGULAR = {"dress": "dresses", "cross": "crosses"}
NUMBERS = ("a", "two")
DIRECTIONS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}  # rows, columns


class Item(NamedTuple):
    """An item at a place of the canvas: the row and the column of its upper left corner."""

    pixels: NDArray[np.uint8]  # (S, S)
    top: int
    left: int


def demo_items(*, seed: int = 1) -> Images:
    """Return grey images of 20 x 20 pixels, each with a shape as a label, as items for scenes."""
    generator = np.random.Generator(np.random.PCG64(seed))
    labels = [shape for shape in DEMO_SHAPES for _ in range(DEMO_VARIANTS)]
    pixels = np.stack([_draw(label, generator) for label in labels])
    return make_images(pixels[:, None], labels, name="demo items")


def _draw(shape: str, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Draw a bright shape in the middle of a black square, (S, S)."""
    grid = np.arange(DEMO_ITEM) + 0.5 - DEMO_ITEM / 2
    radius, ink = generator.uniform(6.5, DEMO_ITEM / 2), generator.uniform(140, 255)
    return np.where(inside_shape(shape, grid[None], grid[:, None], radius), ink, 0).astype(np.uint8)


def make_scenes(
    items: Images, count: int, *, frames: int = 1, noise: int = NOISE, seed: int = 1, name: str = "scenes"
) -> CaptionedImages:
    """Compose scenes from items of at least two kinds; with several frames, each scene has one item that moves.

    The label of an item is its noun. The canvas is 2.4 times as wide as an item, and has up to `noise` grey levels.
    """
    side = items.pixels.shape[-1]
    if items.pixels.shape[1:] != (1, side, side):
        raise DataError(
            f"{items.report.files[0]}: items of scenes must be grey and square, got {items.pixels.shape[1:]}"
        )
    by_noun: dict[str, list[int]] = {}
    for row, label in enumerate(items.labels):
        by_noun.setdefault(label, []).append(row)
    if len(by_noun) < 2:
        raise DataError(f"{items.report.files[0]}: scenes need items of at least two kinds, got {len(by_noun)}")
    generator = np.random.Generator(np.random.PCG64(seed))
    canvas = canvas_side(side)
    pixels = np.empty((count, frames, 1, canvas, canvas), np.uint8)
    captions: list[str] = []
    places: list[Places] = []
    for row in range(count):
        composer = _Composer(items.pixels[:, 0], by_noun, canvas, generator)
        shown, caption, nouns = composer.still() if frames == 1 else composer.moving(frames)
        canvases = generator.integers(noise, size=(frames, canvas, canvas), dtype=np.uint8)
        pixels[row, :, 0] = np.maximum([paint(frame, canvas) for frame in shown], canvases)
        captions.append(caption)
        places.append(
            {
                word: tuple(box_of(frame[i], t) for t, frame in enumerate(shown) for i in of)
                for word, of in nouns.items()
            }
        )
    return make_captioned(pixels, captions, name=name, places=places)


def canvas_side(item: int) -> int:
    """Return the pixels on a side of a canvas for items of that size: a multiple of 8 with room for two items."""
    return round(2.4 * item / 8) * 8


def paint(items: Sequence[Item], canvas: int) -> NDArray[np.uint8]:
    """Paint items on a black canvas, (H, W); where they overlap, the brighter pixel is seen."""
    picture = np.zeros((canvas, canvas), np.uint8)
    for item in items:
        part = picture[item.top : item.top + len(item.pixels), item.left : item.left + len(item.pixels)]
        np.maximum(part, item.pixels, out=part)
    return picture


def box_of(item: Item, frame: int) -> PixelBox:
    """Return the smallest box around the visible pixels of an item."""
    rows, columns = (np.flatnonzero((item.pixels > VISIBLE).any(axis)) for axis in (1, 0))
    if not len(rows):
        rows = columns = np.arange(len(item.pixels))
    top, left = item.top + int(rows[0]), item.left + int(columns[0])
    return PixelBox(frame, top, left, item.top + int(rows[-1]) + 1, item.left + int(columns[-1]) + 1)


class _Composer:
    """Draws the content of a scene: its items in each frame, its caption, and which items its nouns name."""

    def __init__(
        self, pixels: NDArray[np.uint8], by_noun: dict[str, list[int]], canvas: int, generator: np.random.Generator
    ) -> None:
        self.pixels, self.by_noun, self.generator = pixels, by_noun, generator
        self.side, self.slack = pixels.shape[-1], canvas - pixels.shape[-1]

    def still(self) -> tuple[list[list[Item]], str, dict[int, tuple[int, ...]]]:
        """Return the items of the only frame, the caption, and the items of each of its nouns."""
        generator = self.generator
        nouns = generator.choice(sorted(self.by_noun), size=2, replace=False).tolist()
        counts = generator.integers(1, 3, size=2).tolist()
        above = bool(generator.integers(2))
        # The axis of the relation is the first one of `places`: the first group comes before the second one.
        first, second = self._apart()
        shared = int(generator.integers(self.slack + 1))  # where single items are on the other axis, about
        items: list[Item] = []
        for noun, count, along in zip(nouns, counts, (first, second), strict=True):
            for across in self._apart() if count == 2 else [self._near(shared)]:
                top, left = (self._near(along), across) if above else (across, self._near(along))
                items.append(Item(self._image(noun), top, left))
        groups = [
            f"{NUMBERS[count - 1]} {plural(noun) if count > 1 else noun}"
            for noun, count in zip(nouns, counts, strict=True)
        ]
        relation = "above" if above else "left of"
        last = 1 + len(relation.split()) + 2
        named = {1: tuple(range(counts[0])), last: tuple(range(counts[0], sum(counts)))}
        return [items], f"{groups[0]} {relation} {groups[1]}", named

    def moving(self, frames: int) -> tuple[list[list[Item]], str, dict[int, tuple[int, ...]]]:
        """Return the items of each frame, the caption, and the items of its noun; the other item stays."""
        generator = self.generator
        noun, other = generator.choice(sorted(self.by_noun), size=2, replace=False).tolist()
        names = list(DIRECTIONS)
        first = names[generator.integers(4)]
        turns = frames >= 4 and bool(generator.integers(2))
        across = [name for name in names if _dot(name, first) == 0]
        second = across[generator.integers(2)] if turns else None
        path = self._path(first, second, frames)
        image = self._image(noun)
        resting = Item(self._image(other), *generator.integers(self.slack + 1, size=2).tolist())
        shown = [[Item(image, top, left), resting] for top, left in path]
        caption = f"the {noun} moves {first}" + (f", then {second}" if second else "")
        return shown, caption, {1: (0,)}

    def _path(self, first: str, second: str | None, frames: int) -> list[tuple[int, int]]:
        """Return the corner of a moving item in each frame."""
        legs = (
            [first] * (frames - 1)
            if second is None
            else [first] * (frames // 2) + [second] * (frames - 1 - frames // 2)
        )
        step = self.slack / max(legs.count(name) for name in legs) * self.generator.uniform(0.6, 1)
        moves = np.cumsum([(0, 0), *(DIRECTIONS[name] for name in legs)], axis=0) * step  # (T, 2)
        low, high = -moves.min(0), self.slack - moves.max(0)
        start = low + self.generator.uniform(size=2) * np.maximum(high - low, 0)
        corners = np.clip((start + moves).round().astype(int), 0, self.slack)
        return [(int(top), int(left)) for top, left in corners]

    def _apart(self) -> tuple[int, int]:
        """Return two places on an axis at which items do not overlap."""
        before, after = sorted(self.generator.integers(self.slack - self.side + 1, size=2).tolist())
        return before, after + self.side

    def _near(self, place: int) -> int:
        """Return a place close to another one."""
        reach = max(1, self.side // 10)
        return int(np.clip(place + self.generator.integers(-reach, reach + 1), 0, self.slack))

    def _image(self, noun: str) -> NDArray[np.uint8]:
        rows = self.by_noun[noun]
        return self.pixels[rows[self.generator.integers(len(rows))]]


def _dot(name: str, other: str) -> int:
    (a, b), (c, d) = DIRECTIONS[name], DIRECTIONS[other]
    return a * c + b * d


def plural(noun: str) -> str:
    """Return the plural of a noun."""
    return IRREGULAR.get(noun, f"{noun}s")
