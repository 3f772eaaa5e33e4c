"""Scenes: the caption says what is in the picture, checked from the pixels and the boxes."""

from __future__ import annotations

import numpy as np
import pytest

from regard.arrays.captions import PixelBox
from regard.arrays.images import make_images
from regard.demo.scenes import demo_items, make_scenes, plural
from regard.errors import DataError


def middle(boxes: tuple[PixelBox, ...]) -> tuple[float, float]:
    return float(np.mean([(box.top + box.bottom) / 2 for box in boxes])), float(
        np.mean([(box.left + box.right) / 2 for box in boxes])
    )


def test_captions_say_where_the_items_are() -> None:
    scenes = make_scenes(demo_items(), 60, seed=3)
    assert scenes.places is not None and scenes.pixels.shape == (60, 1, 1, 48, 48)
    relations = set()
    for caption, places, pixels in zip(scenes.captions, scenes.places, scenes.pixels[:, 0, 0], strict=True):
        words = caption.split()
        assert len(places) == 2
        for word, boxes in places.items():
            count = {"a": 1, "two": 2}[words[word - 1]]
            assert len(boxes) == count and words[word].endswith("s") == (count == 2 or words[word] == "cross")
            for box in boxes:
                item = pixels[box.top : box.bottom, box.left : box.right]
                assert item[0].max() > 100 and item[-1].max() > 100  # the box is tight
                assert item[:, 0].max() > 100 and item[:, -1].max() > 100
        (top, left), (bottom, right) = map(middle, places.values())
        relation = "above" if "above" in words else "left"
        relations.add(relation)
        assert bottom - top > 10 if relation == "above" else right - left > 10
    assert relations == {"above", "left"}


def test_moving_items_move_as_the_caption_says() -> None:
    videos = make_scenes(demo_items(), 40, frames=5, seed=4)
    assert videos.places is not None
    lengths = set()
    for caption, places in zip(videos.captions, videos.places, strict=True):
        boxes = places[1]
        assert [box.frame for box in boxes] == [0, 1, 2, 3, 4]
        ways = caption.split(" moves ")[1].split(", then ")
        lengths.add(len(ways))
        legs = [(0, 4)] if len(ways) == 1 else [(0, 2), (2, 4)]
        for way, (start, end) in zip(ways, legs, strict=True):
            down, right = boxes[end].top - boxes[start].top, boxes[end].left - boxes[start].left
            moved = {"up": -down, "down": down, "left": -right, "right": right}
            assert moved.pop(way) > 8 and sorted(moved.values())[-1] <= 1
    assert lengths == {1, 2}


def test_scenes_depend_on_the_seed_only() -> None:
    items = demo_items()
    assert make_scenes(items, 3, seed=5).fingerprint == make_scenes(items, 3, seed=5).fingerprint
    assert make_scenes(items, 3, seed=5).fingerprint != make_scenes(items, 3, seed=6).fingerprint
    assert (plural("dress"), plural("bag")) == ("dresses", "bags")
    with pytest.raises(DataError, match="two kinds"):
        make_scenes(make_images(np.zeros((2, 1, 8, 8), np.uint8), ["a", "a"], name="same"), 2)
    with pytest.raises(DataError, match="grey and square"):
        make_scenes(make_images(np.zeros((2, 3, 8, 8), np.uint8), ["a", "b"], name="colour"), 2)
