"""What all data that is no text has in common: a report of what was read, and a fingerprint of the numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ArrayReport:
    """What was read: the files, a description of the content, and what was changed on the way."""

    files: tuple[str, ...]
    content: str  # such as "60,000 images of 28 x 28 pixels in 10 classes"
    changes: tuple[str, ...] = field(default=())  # such as "3 images were resized"

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values, for JSON."""
        return {"files": list(self.files), "content": self.content, "changes": list(self.changes)}

    def __str__(self) -> str:
        return "\n".join([f"{self.content}, from {', '.join(self.files)}", *self.changes])


def array_fingerprint(array: NDArray, texts: Iterable[str] = ()) -> str:
    """Return the sha256 of an array and of the texts that belong to it; file names and compression do not matter."""
    digest = hashlib.sha256(f"{array.dtype} {array.shape} {list(texts)!r}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
