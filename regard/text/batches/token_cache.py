"""Arrays kept on disk: made once, then only mapped into memory.

A file that is missing, cut off or changed, or that was made from something else, costs time and nothing more: the
arrays are made anew. So nobody need ever delete this cache, and everybody may.
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

from regard.files import fingerprint, replace_file

Arrays = dict[str, NDArray[Any]]

MANIFEST = "manifest.json"
TYPES = ("<i4", "<i8", "<f8")


def key_of(*parts: str | bytes) -> str:
    """sha256 of all that some arrays were made from."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def kept_arrays(folder: Path | None, key: str, make: Callable[[], Arrays]) -> Arrays:
    """The arrays that `make` makes, from the folder where it holds them under this key; without a folder, made."""
    found = None if folder is None else read_arrays(folder, key)
    if found is not None:
        return found
    arrays = make()
    if folder is None:
        return arrays
    try:
        write_arrays(folder, key, arrays)
    except OSError as error:
        warnings.warn(
            f"{folder}: tokens cannot be kept there ({error.strerror}), so the next start makes them again",
            RuntimeWarning,
            stacklevel=2,
        )
        return arrays
    return read_arrays(folder, key) or arrays  # mapped, they need no memory of their own


def write_arrays(folder: Path, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put arrays into a folder of their own; the manifest last, for it says that the rest is there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    listed = {}
    for name, values in arrays.items():
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        replace_file(folder / name, little.tobytes())
        listed[name] = {"type": little.dtype.str, "shape": list(little.shape), **fingerprint(folder / name)}
    replace_file(folder / MANIFEST, json.dumps({"key": key, "arrays": listed}, indent=1).encode())


def read_arrays(folder: Path, key: str) -> Arrays | None:
    """The arrays of a folder, mapped into memory; None when they are not whole or not those of this key.

    What is written into them stays in memory, and never reaches the file.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if manifest["key"] != key:
            return None
        arrays: Arrays = {}
        for name, listed in manifest["arrays"].items():
            path, shape = folder / name, tuple(listed["shape"])
            whole = {"size": listed["size"], "sha256": listed["sha256"]}
            if not name.isidentifier() or listed["type"] not in TYPES or fingerprint(path) != whole:
                return None
            if whole["size"]:
                arrays[name] = np.memmap(path, listed["type"], mode="c", shape=shape)
            else:  # an empty file cannot be mapped
                arrays[name] = np.zeros(shape, listed["type"])
        return arrays
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
