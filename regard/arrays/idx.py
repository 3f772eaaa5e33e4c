"""Read IDX files, the format of MNIST and Fashion-MNIST: a few numbers, then the bytes of all images or labels.

    magic     two zero bytes, 8 for bytes, the number of dimensions
    sizes     one 32-bit number per dimension, the highest byte first
    content   the numbers, row by row

Images have the dimensions (N, H, W), labels (N,). The labels of `train-images-idx3-ubyte.gz` are in
`train-labels-idx1-ubyte.gz`.
"""

from __future__ import annotations

import gzip
import lzma
import math
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.text.files.compressed import READ_ERRORS, missing_file

BYTES = 8  # the type of the numbers
MAX_BYTES = 2**32  # of one file, decompressed


def is_idx_name(path: Path) -> bool:
    """Whether a file is an IDX file by its name."""
    return "idx" in path.name.lower() and path.is_file()


def is_label_name(path: Path) -> bool:
    """Whether an IDX file has labels by its name."""
    return is_idx_name(path) and "labels" in path.name


def read_labelled_idx(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read the images (N, 1, H, W) of a file and the labels (N,) of the file that belongs to it."""
    partner = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if partner == path or not partner.is_file():
        raise DataError(f"{path}: its labels are missing: the file {partner.name if partner != path else '…-labels-…'}")
    images, labels = read_idx(path), read_idx(partner)
    if images.ndim != 3 or labels.ndim != 1:
        raise DataError(f"{path}: expected images (N, H, W) and labels (N,), got {images.shape} and {labels.shape}")
    if len(images) != len(labels):
        raise DataError(f"{path} has {len(images):,} images, but {partner.name} has {len(labels):,} labels")
    if not images.size:
        raise DataError(f"{path}: there are no images")
    return images[:, None], labels


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an IDX file of bytes, which may be compressed; DataError if its sizes do not match its content."""
    try:
        with _open(path) as file:
            magic = file.read(4)
            if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != BYTES or not 1 <= magic[3] <= 4:
                raise DataError(f"{path}: not an IDX file of bytes: it begins with {magic.hex(' ')}")
            sizes = np.frombuffer(file.read(4 * magic[3]), ">u4").tolist()
            expected = math.prod(sizes)
            if len(sizes) < magic[3] or expected > MAX_BYTES:
                raise DataError(f"{path}: its sizes {sizes} are damaged")
            content = file.read(expected + 1)
    except FileNotFoundError:
        raise DataError(missing_file(path)) from None
    except READ_ERRORS as error:
        raise DataError(f"{path}: damaged or truncated ({error}): download it again") from error
    if len(content) != expected:
        problem = "fewer" if len(content) < expected else "more"
        raise DataError(f"{path}: {problem} bytes than the {expected:,} of its sizes {sizes}: download it again")
    return np.frombuffer(content, np.uint8).reshape(sizes)


def _open(path: Path) -> IO[bytes]:
    """Open a plain or compressed file; its header says how long the content is, so no other limit is needed."""
    match path.suffix.lower():
        case ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        case ".xz":
            return lzma.open(path, "rb")
        case _:
            return path.open("rb")
