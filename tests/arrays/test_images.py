"""Reading images: folders of classes and IDX files, converted to one size; broken ones get clear errors."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.arrays.images import open_image, read_images, to_pixels
from regard.errors import DataError

GREY = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4


def save(path: Path, array: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def test_a_folder_has_one_folder_per_class(tmp_path: Path) -> None:
    save(tmp_path / "cat/1.png", GREY)
    save(tmp_path / "cat/deep/2.PNG", GREY)
    save(tmp_path / "dog/1.bmp", GREY.T)
    (tmp_path / "dog/notes.txt").write_text("no image")
    images = read_images([tmp_path])
    assert images.labels == ["cat", "cat", "dog"] and images.pixels.shape == (3, 1, 8, 8)
    np.testing.assert_array_equal(images.pixels[2, 0], GREY.T)
    assert images.location(0).endswith("1.png") and "3 grey images of 8 x 8 pixels in 2 classes" in str(images.report)


def test_other_sizes_are_fitted_and_counted(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"a/{i}.png", GREY)
    save(tmp_path / "b/0.png", np.full((16, 32), 200, np.uint8))
    images = read_images([tmp_path])
    assert images.pixels.shape == (4, 1, 8, 8) and (images.pixels[3] == 200).all()
    assert images.report.changes == ("1 images were resized to 8 x 8",)


def test_one_coloured_image_makes_all_of_them_coloured(tmp_path: Path) -> None:
    save(tmp_path / "a/0.png", GREY)
    colour = np.zeros((8, 8, 3), np.uint8)
    colour[..., 0] = 255
    save(tmp_path / "b/0.png", colour)
    images = read_images([tmp_path])
    assert images.pixels.shape == (2, 3, 8, 8)
    np.testing.assert_array_equal(images.pixels[1], np.moveaxis(colour, -1, 0))
    np.testing.assert_array_equal(images.pixels[0], np.stack([GREY] * 3))


def test_modes_are_converted(tmp_path: Path) -> None:
    """Transparent pixels are white, 16 bits become 8, palettes and floats become grey levels."""
    transparent = np.zeros((8, 8, 4), np.uint8)
    transparent[:4, :, 3] = 255  # black above, transparent below
    image = open_image(save(tmp_path / "rgba.png", transparent))
    np.testing.assert_array_equal(to_pixels(image, (1, 8, 8))[0], np.repeat([0, 255], 4)[:, None].repeat(8, 1))
    image = open_image(save(tmp_path / "deep.png", (GREY.astype(np.uint16) * 257)))
    np.testing.assert_array_equal(to_pixels(image, (1, 8, 8))[0], GREY)
    Image.fromarray(GREY).convert("P").save(tmp_path / "palette.png")
    np.testing.assert_array_equal(to_pixels(open_image(tmp_path / "palette.png"), (1, 8, 8))[0], GREY)
    image = open_image(save(tmp_path / "float.tif", (GREY / 255).astype(np.float32)))
    np.testing.assert_array_equal(to_pixels(image, (1, 8, 8))[0], GREY)
    Image.fromarray(GREY > 100).save(tmp_path / "bits.png")
    np.testing.assert_array_equal(to_pixels(open_image(tmp_path / "bits.png"), (1, 8, 8))[0], 255 * (GREY > 100))


def test_broken_images_stop_or_are_left_out(tmp_path: Path) -> None:
    whole = save(tmp_path / "a/0.png", np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8))
    (tmp_path / "a/1.png").write_bytes(whole.read_bytes()[:1000])
    (tmp_path / "b").mkdir()
    (tmp_path / "b/2.png").write_text("no image")
    save(tmp_path / "b/3.png", np.zeros((64, 64), np.uint8))
    with pytest.raises(DataError, match=r"1\.png: the image is damaged: .*data.faults = \"skip\""):
        read_images([tmp_path])
    images = read_images([tmp_path], skip=True)
    assert len(images) == 2 and "2 images cannot be read and are left out" in images.report.changes[0]
    with pytest.raises(DataError, match="not an image"):
        open_image(tmp_path / "b/2.png")
    (tmp_path / "b/4.png").touch()
    with pytest.raises(DataError, match="the file is empty"):
        open_image(tmp_path / "b/4.png")
    with pytest.raises(DataError, match="no such file"):
        open_image(tmp_path / "b/9.png")
    with pytest.raises(DataError, match="is a folder"):
        open_image(tmp_path / "b")


def test_a_huge_image_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    Image.new("1", (10_000, 10_000)).save(tmp_path / "huge.png")
    with pytest.raises(DataError, match="10000 x 10000 pixels are more than"):
        open_image(tmp_path / "huge.png")


def test_idx_files(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (5, 6, 7), dtype=np.uint8)
    for suffix in ("", ".gz"):
        write = gzip.compress if suffix else bytes
        (tmp_path / f"t-images-idx3-ubyte{suffix}").write_bytes(write(idx(pixels)))
        (tmp_path / f"t-labels-idx1-ubyte{suffix}").write_bytes(write(idx(np.array([3, 1, 4, 1, 5]))))
        images = read_images([tmp_path / f"t-images-idx3-ubyte{suffix}"])
        np.testing.assert_array_equal(images.pixels[:, 0], pixels)
        assert images.labels == ["3", "1", "4", "1", "5"]
    resized = read_images([tmp_path / "t-images-idx3-ubyte"], (1, 12, 14))
    assert resized.pixels.shape == (5, 1, 12, 14)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (idx(np.zeros((2, 4, 4))), None, "its labels are missing: the file t-labels-idx1-ubyte"),
        (idx(np.zeros((2, 4, 4))), idx(np.zeros(3)), "has 2 images, but t-labels-idx1-ubyte has 3 labels"),
        (idx(np.zeros((2, 4, 4)))[:-1], idx(np.zeros(2)), "fewer bytes than the 32"),
        (idx(np.zeros((2, 4, 4))) + b"x", idx(np.zeros(2)), "more bytes than the 32"),
        (b"GIF8", idx(np.zeros(2)), "not an IDX file of bytes: it begins with 47 49 46 38"),
        (idx(np.zeros((2, 4))), idx(np.zeros(2)), r"expected images \(N, H, W\)"),
        (b"\0\0\x08\x03" + b"\xff" * 12, idx(np.zeros(2)), "its sizes .* are damaged"),
        (idx(np.zeros((0, 4, 4))), idx(np.zeros(0)), "there are no images"),
    ],
)
def test_damaged_idx_files(tmp_path: Path, images: bytes, labels: bytes | None, message: str) -> None:
    (tmp_path / "t-images-idx3-ubyte").write_bytes(images)
    if labels is not None:
        (tmp_path / "t-labels-idx1-ubyte").write_bytes(labels)
    with pytest.raises(DataError, match=message):
        read_images([tmp_path / "t-images-idx3-ubyte"])


def test_what_is_no_folder_of_images(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("x")
    for name, message in (
        ("empty", "no images in folders of classes"),
        ("text.txt", "neither a folder"),
        ("x", "no such"),
    ):
        with pytest.raises(DataError, match=message):
            read_images([tmp_path / name])
