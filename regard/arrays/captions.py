"""Images and videos with captions: a folder with a file `captions.tsv`, or such a file itself.

A line of the file has a path, a tab and a caption; paths start at the folder of the file. A path names an image, an
animated GIF or a folder with the numbered frames of a video. A video with more frames than the model reads is thinned
out evenly; the last frame of a shorter one is repeated.

    N samples   T frames (1: an image)   C channels   H height   W width
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.arrays.images import SUFFIXES, Size, open_image, to_pixels, usual_size
from regard.arrays.samples import ArrayReport, array_fingerprint
from regard.errors import DataError
from regard.text.files.compressed import missing_file
from regard.text.files.lines import read_lines

if TYPE_CHECKING:
    from PIL.Image import Image

CAPTION_FILE = "captions.tsv"
MAX_FRAMES = 10_000  # of a video that is read; a longer one is a mistake
MAX_VIDEO_PIXELS = 2**30  # of all frames of an animated image, which are decoded one after the other
Sample = TypeVar("Sample")


class PixelBox(NamedTuple):
    """Where an item is in a frame, in pixels; bottom and right are not part of it."""

    frame: int
    top: int
    left: int
    bottom: int
    right: int

    def contains(self, frame: int, y: float, x: float) -> bool:
        """Whether a point of a frame lies in the box."""
        return frame == self.frame and self.top <= y < self.bottom and self.left <= x < self.right


Places = dict[int, tuple[PixelBox, ...]]  # the number of a word in its caption -> the items that it names


@dataclass(frozen=True)
class CaptionedImages:
    """Images or videos of one size, with a caption of each and, where it is known, the place of its words."""

    pixels: NDArray[np.uint8] = field(repr=False)  # (N, T, C, H, W)
    captions: list[str] = field(repr=False)
    names: list[str] = field(repr=False)  # where each comes from
    report: ArrayReport
    places: list[Places] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.pixels)

    def location(self, i: int) -> str:
        """Return where sample i comes from."""
        return self.names[i]

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the pixels and the captions."""
        return array_fingerprint(self.pixels, self.captions)

    def select(self, rows: Sequence[int]) -> CaptionedImages:
        """Return some of the samples, in that order."""
        captions, names = ([texts[i] for i in rows] for texts in (self.captions, self.names))
        places = None if self.places is None else [self.places[i] for i in rows]
        return replace(self, pixels=self.pixels[list(rows)], captions=captions, names=names, places=places)


def make_captioned(
    pixels: NDArray[np.uint8], captions: Sequence[str], *, name: str, places: Sequence[Places] | None = None
) -> CaptionedImages:
    """Make captioned images (N, T, C, H, W) in memory; `name` replaces the file name in messages."""
    names = [f"{name}, {'image' if pixels.shape[1] == 1 else 'video'} {i}" for i in range(len(pixels))]
    report = ArrayReport((name,), describe_captioned(pixels))
    return CaptionedImages(pixels, list(captions), names, report, None if places is None else list(places))


def describe_captioned(pixels: NDArray) -> str:
    """Say how many images or videos there are, and their size."""
    count, frames, channels, height, width = pixels.shape
    colour = "grey" if channels == 1 else "colour"
    kind = f"{colour} images" if frames == 1 else f"{colour} videos of {frames} frames,"
    return f"{count:,} {kind} of {width} x {height} pixels with captions"


def read_captioned(
    sources: Sequence[str | Path], *, frames: int, size: Size | None = None, skip: bool = False
) -> CaptionedImages:
    """Read captioned images, or videos as `frames` frames; `size` is the size of all, by default that of most of them.

    With `skip`, samples that cannot be read are left out and counted; otherwise the first one is an error.
    """
    entries = [entry for source in sources for entry in _caption_lines(Path(source))]
    present = [path for path, _ in entries if path.exists()]
    if not present:
        raise DataError(missing_file(entries[0][0]))
    size = size or usual_size([_frame_files(path)[0] for path in present])
    pixels, captions, names, broken, resized = [], [], [], [], 0
    for path, caption in entries:
        try:
            images = read_frames(path, frames)
        except DataError as error:
            if not skip:
                raise DataError(f'{error}; data.faults = "skip" leaves out what cannot be read') from error
            broken.append(str(path))
            continue
        resized += images[0].size != (size[2], size[1])
        pixels.append(np.stack([to_pixels(image, size) for image in images]))
        captions.append(caption)
        names.append(str(path))
    if not pixels:
        raise DataError(f"{sources[0]}: none of {len(entries)} images can be read")
    changes = [f"{resized:,} images were resized to {size[2]} x {size[1]}"] if resized else []
    changes += [f"{len(broken):,} images cannot be read and are left out, first {broken[0]}"] if broken else []
    array = np.stack(pixels)
    report = ArrayReport(tuple(map(str, sources)), describe_captioned(array), tuple(changes))
    return CaptionedImages(array, captions, names, report)


def caption_file(source: Path) -> Path:
    """Return the file with the captions of a folder; DataError if there is none."""
    if not source.exists():
        raise DataError(missing_file(source))
    if not source.is_dir():
        return source
    path = source / CAPTION_FILE
    if not path.is_file():
        raise DataError(
            f"{source}: its captions are missing: the file {CAPTION_FILE}, with a path, a tab and a caption per line"
        )
    return path


def _caption_lines(source: Path) -> list[tuple[Path, str]]:
    """Return the path and the caption of each line of a file; DataError for lines without one of them."""
    file = caption_file(source)
    entries = []
    for number, line in enumerate(read_lines(file), start=1):
        if not line.strip():
            continue
        name, tab, caption = line.partition("\t")
        if not tab or not name.strip() or not caption.strip():
            missing = "a tab between path and caption" if not tab else "the path" if not name.strip() else "the caption"
            raise DataError(f"{file}:{number}: {missing} is missing: write a path, a tab and a caption")
        path = file.parent / name.strip()
        if not path.resolve().is_relative_to(file.parent.resolve()):
            raise DataError(f"{file}:{number}: {name.strip()!r} is outside the folder of the captions: move it there")
        entries.append((path, " ".join(caption.split())))
    if not entries:
        raise DataError(f"{file}: there are no captions: each line has a path, a tab and a caption")
    return entries


def read_frames(path: str | Path, frames: int) -> list[Image]:
    """Read an image, an animated GIF or a folder of numbered frames as so many frames."""
    if frames == 1 and Path(path).is_dir():
        advice = "name an image; for videos, train with model.frames"
        raise DataError(f"{path} is a folder, and this model reads single images: {advice}")
    files = _frame_files(Path(path))
    if len(files) > 1:
        return [open_image(file) for file in evenly(files, frames)]
    image = open_image(files[0])
    count = getattr(image, "n_frames", 1)
    if count > MAX_FRAMES:
        raise DataError(f"{path}: {count:,} frames are more than {MAX_FRAMES:,}: shorten it")
    if count == 1 or frames == 1:
        return [image] * frames
    if count * image.width * image.height > MAX_VIDEO_PIXELS:
        size = f"{count:,} frames of {image.width} x {image.height} pixels"
        raise DataError(f"{path}: {size} are more than {MAX_VIDEO_PIXELS:,} in all: shorten or shrink it")
    images = []
    try:
        for number in evenly(range(count), frames):
            image.seek(number)
            images.append(image.copy())
    except Exception as error:  # decoders raise errors of many types on damaged files
        raise DataError(f"{path}: frame {len(images)} is damaged: {error}") from error
    return images


def evenly(samples: Sequence[Sample], count: int) -> list[Sample]:
    """Return `count` of the samples, evenly spread, with the first and the last; the last of fewer is repeated."""
    if len(samples) <= count:
        return [samples[min(i, len(samples) - 1)] for i in range(count)]
    return [samples[round(i * (len(samples) - 1) / max(1, count - 1))] for i in range(count)]


def _frame_files(path: Path) -> list[Path]:
    """Return the files of a video's frames in the order of their numbers; of an image, the image."""
    if not path.exists():
        raise DataError(missing_file(path))
    if not path.is_dir():
        return [path]
    numbered: dict[int, Path] = {}
    for file in sorted(path.iterdir()):
        if file.suffix.lower() not in SUFFIXES or not file.is_file():
            continue
        digits = re.findall(r"\d+", file.stem)
        if not digits:
            raise DataError(f"{file}: the frames of a video have numbers: name it {file.with_stem('1').name}")
        if int(digits[-1]) in numbered:
            raise DataError(f"{file} and {numbered[int(digits[-1])].name} have the same number: rename one of them")
        numbered[int(digits[-1])] = file
    if not numbered:
        raise DataError(f"{path}: no frames of a video in this folder, such as {path / '1.png'}")
    if len(numbered) > MAX_FRAMES:
        raise DataError(f"{path}: {len(numbered):,} frames are more than {MAX_FRAMES:,}: shorten it")
    return [numbered[number] for number in sorted(numbered)]
