"""Read images: folders with one folder per class, or IDX files with their labels.

Every image becomes an array of bytes with the same size and number of channels. Images of another size are scaled and
cut to the centre; transparency is laid on white; 16 bits per channel become 8.

    N images   C channels (1: grey, 3: red, green, blue)   H height   W width
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.arrays.idx import is_idx_name, read_labelled_idx
from regard.arrays.samples import ArrayReport, array_fingerprint
from regard.errors import DataError
from regard.text.files.compressed import missing_file

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
# What Pillow may try: other formats have decoders that start programs (EPS) or have been attacked often.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
MAX_PIXELS = 2**26  # of one image file; a larger one is a mistake or an attack
SIZES_TO_SAMPLE = 1000  # images of a folder whose size is looked at
COLOUR_MODES = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV")

Size = tuple[int, int, int]  # C, H, W


@dataclass(frozen=True)
class Images:
    """Images of one size, with the label of each."""

    pixels: NDArray[np.uint8] = field(repr=False)  # (N, C, H, W)
    labels: list[str] = field(repr=False)
    names: list[str] = field(repr=False)  # where each comes from
    report: ArrayReport

    def __len__(self) -> int:
        return len(self.pixels)

    def location(self, i: int) -> str:
        """Return where image i comes from."""
        return self.names[i]

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the pixels and the labels."""
        return array_fingerprint(self.pixels, self.labels)

    def select(self, rows: Sequence[int]) -> Images:
        """Return some of the images, in that order."""
        labels, names = ([texts[i] for i in rows] for texts in (self.labels, self.names))
        return replace(self, pixels=self.pixels[list(rows)], labels=labels, names=names)


def make_images(pixels: NDArray, labels: Sequence[str], *, name: str, changes: tuple[str, ...] = ()) -> Images:
    """Make a set of images (N, C, H, W) in memory; `name` replaces the file name in messages."""
    names = [f"{name}, image {i}" for i in range(len(pixels))]
    return Images(pixels, list(labels), names, ArrayReport((name,), describe_images(pixels, labels), changes))


def describe_images(pixels: NDArray, labels: Sequence[str]) -> str:
    """Say how many images there are, and their size."""
    count, channels, height, width = pixels.shape
    colour = "grey" if channels == 1 else "colour"
    return f"{count:,} {colour} images of {width} x {height} pixels in {len(set(labels))} classes"


def read_images(sources: Sequence[str | Path], size: Size | None = None, *, skip: bool = False) -> Images:
    """Read labelled images from folders or IDX files; `size` is the size of all, by default that of most of them.

    A folder has one folder per class. With `skip`, images that cannot be read are left out and counted; otherwise the
    first one is an error.
    """
    paths = [Path(source) for source in sources]
    for path in paths:
        if not path.exists():
            raise DataError(missing_file(path))
    parts = [_read_idx(path, size) if is_idx_name(path) else _read_folder(path, size, skip) for path in paths]
    sizes = {part.pixels.shape[1:] for part in parts}
    if len(sizes) > 1:
        return read_images(sources, parts[0].pixels.shape[1:], skip=skip)
    pixels = np.concatenate([part.pixels for part in parts])
    labels = [label for part in parts for label in part.labels]
    report = ArrayReport(
        tuple(map(str, paths)),
        describe_images(pixels, labels),
        tuple(change for part in parts for change in part.report.changes),
    )
    return Images(pixels, labels, [name for part in parts for name in part.names], report)


def _read_idx(path: Path, size: Size | None) -> Images:
    pixels, labels = read_labelled_idx(path)
    images = make_images(pixels, list(map(str, labels.tolist())), name=str(path))
    if size is None or pixels.shape[1:] == size:
        return images
    resized = np.stack([to_pixels(_image_of(image), size) for image in pixels])
    return make_images(resized, images.labels, name=str(path), changes=(f"{len(pixels):,} images were resized",))


def _image_of(pixels: NDArray[np.uint8]) -> Image:
    """Return pixels (C, H, W) as an image."""
    from PIL import Image

    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1))


def _read_folder(folder: Path, size: Size | None, skip: bool) -> Images:
    if not folder.is_dir():
        raise DataError(f"{folder} is neither a folder of images nor an IDX file (…-idx3-ubyte): give one of these")
    files = _class_files(folder)
    size = size or usual_size([path for path, _ in files])
    pixels, labels, names, broken, resized = [], [], [], [], 0
    for path, label in files:
        try:
            image = open_image(path)
        except DataError as error:
            if not skip:
                raise DataError(f'{error}; data.faults = "skip" leaves out what cannot be read') from error
            broken.append(str(path))
            continue
        resized += image.size != (size[2], size[1])
        pixels.append(to_pixels(image, size))
        labels.append(label)
        names.append(str(path))
    if not pixels:
        raise DataError(f"{folder}: none of {len(files)} images can be read")
    changes = [f"{resized:,} images were resized to {size[2]} x {size[1]}"] if resized else []
    changes += [f"{len(broken):,} images cannot be read and are left out, first {broken[0]}"] if broken else []
    array = np.stack(pixels)
    report = ArrayReport((str(folder),), describe_images(array, labels), tuple(changes))
    return Images(array, labels, names, report)


def _class_files(folder: Path) -> list[tuple[Path, str]]:
    """Return the image files below a folder of classes, with the name of the class of each."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    files = [
        (path, directory.name)
        for directory in classes
        for path in sorted(directory.rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.is_file()
    ]
    if not files:
        raise DataError(
            f"{folder}: no images in folders of classes, such as {folder / 'cat' / '1.png'}; known formats: "
            f"{', '.join(SUFFIXES)}"
        )
    return files


def usual_size(paths: Sequence[Path]) -> Size:
    """Return the most frequent size of the images, and colour if any of them has colours; unreadable ones are left out.

    Only some of many images are looked at, spread over all classes.
    """
    shapes: Counter[tuple[int, int]] = Counter()
    channels = 1
    for path in paths[:: max(1, len(paths) // SIZES_TO_SAMPLE)]:
        try:
            image = open_image(path)
        except DataError:
            continue
        shapes[image.height, image.width] += 1
        channels = 3 if image.mode in COLOUR_MODES and _has_colour(image) else channels
    if not shapes:
        raise DataError(f"{paths[0]} and the other images cannot be read")
    return channels, *shapes.most_common(1)[0][0]


def _has_colour(image: Image) -> bool:
    """Whether some pixel of an image is not grey."""
    array = np.asarray(image.convert("RGB"))
    return bool((array != array[..., :1]).any())


def open_image(path: str | Path) -> Image:
    """Read an image file; DataError if it is no image, damaged or far too large."""
    from PIL import Image, UnidentifiedImageError

    path = Path(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about sizes, which are checked here, and about unknown metadata
            image = Image.open(path, formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise DataError(
                    f"{path}: {image.width} x {image.height} pixels are more than {MAX_PIXELS:,}: shrink it"
                )
            image.load()
    except FileNotFoundError:
        raise DataError(missing_file(path)) from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder: give an image file") from None
    except UnidentifiedImageError:
        if not path.stat().st_size:
            raise DataError(f"{path}: the file is empty") from None
        raise DataError(f"{path}: not an image, or one of an unknown format (known: {', '.join(SUFFIXES)})") from None
    except DataError:
        raise
    except Exception as error:  # decoders raise errors of many types on damaged files
        raise DataError(f"{path}: the image is damaged: {error}") from error
    return image


def to_pixels(image: Any, size: Size) -> NDArray[np.uint8]:
    """Return an image as pixels of that size (C, H, W): converted, scaled and cut to the centre where it differs."""
    from PIL import Image, ImageOps

    channels, height, width = size
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        image = Image.fromarray(_eight_bits(np.asarray(image, dtype=np.float64), image.mode))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    image = image.convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
    array = np.asarray(image, dtype=np.uint8)
    return array[None].copy() if channels == 1 else np.moveaxis(array, -1, 0).copy()


def _eight_bits(values: NDArray[np.float64], mode: str) -> NDArray[np.uint8]:
    """Return the numbers of a 16-bit, 32-bit or floating-point image as bytes.

    Floating-point images are in [0, 1] unless a value is larger; then the largest one is white.
    """
    largest = float(values.max(initial=0))
    if mode.startswith("I") and largest <= 2**16 - 1:
        white = 2.0**16 - 1
    else:
        white = max(largest, 1.0)
    return np.clip(values / white * 255, 0, 255).round().astype(np.uint8)
