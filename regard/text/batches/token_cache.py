"""A cache of arrays on disk: they are made once, and later only mapped into memory.

If a file is missing, truncated, changed, or was made from other data, the arrays are made again. So the cache never has
to be deleted, and may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.system.files import fingerprint, replace_file

Arrays = dict[str, NDArray[Any]]

MANIFEST = "manifest.json"
TYPES = ("<i4", "<i8", "<f8")


def cache_key(*parts: str | bytes) -> str:
    """Return the sha256 of everything that the arrays are made from."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def cached_arrays(folder: Path | None, key: str, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of this key from the folder, or make them and save them there; without a folder, make them."""
    cached = None if folder is None else read_arrays(folder, key)
    if cached is not None:
        return cached
    arrays = make()
    if folder is None:
        return arrays
    try:
        write_arrays(folder, key, arrays)
    except OSError as error:
        warnings.warn(
            f"{folder}: tokens cannot be cached there ({error.strerror}), so the next start must make them again",
            RuntimeWarning,
            stacklevel=2,
        )
        return arrays
    return read_arrays(folder, key) or arrays  # mapped arrays need no memory of their own


def write_arrays(folder: Path, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a folder; the manifest last, because it marks the folder as complete."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    entries = {}
    for name, values in arrays.items():
        little_endian = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        replace_file(folder / name, little_endian.tobytes())
        dtype, shape = little_endian.dtype.str, list(little_endian.shape)
        entries[name] = {"type": dtype, "shape": shape, **fingerprint(folder / name)}
    replace_file(folder / MANIFEST, json.dumps({"key": key, "arrays": entries}, indent=1).encode())


def read_arrays(folder: Path, key: str) -> Arrays | None:
    """Return the arrays of a folder, mapped into memory; None if they are damaged or have another key.

    Changes to these arrays stay in memory and never reach the file.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if manifest["key"] != key:
            return None
        arrays: Arrays = {}
        for name, entry in manifest["arrays"].items():
            path, shape = folder / name, tuple(entry["shape"])
            expected = {"size": entry["size"], "sha256": entry["sha256"]}
            if not name.isidentifier() or entry["type"] not in TYPES or fingerprint(path) != expected:
                return None
            if expected["size"]:
                arrays[name] = np.memmap(path, entry["type"], mode="c", shape=shape)
            else:  # an empty file cannot be mapped
                arrays[name] = np.zeros(shape, entry["type"])
        return arrays
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
