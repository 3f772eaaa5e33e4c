"""What a model folder will be once it is loaded, told without importing PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

from regard.errors import ModelError
from regard.tasks import face_for

LARGEST_CONFIG = 4 * 2**20  # bytes


def face_of(folder: Path) -> str:
    """Return what `regard.load` will make of a folder: "translator", "writer" or "embedder".

    Only a glance: everything in the folder is checked when the model is loaded.
    """
    path = folder / "config.json"
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(LARGEST_CONFIG))
        return face_for(content["kind"])
    except OSError as error:
        raise ModelError(f"{folder} is not a model folder: {path.name}: {error.strerror or error}") from error
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise ModelError(f"{path} does not say which kind of model this is: the file is damaged") from error
