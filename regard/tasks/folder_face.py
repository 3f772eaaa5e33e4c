"""Find out what a model folder contains, without importing PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

from regard.errors import ModelError
from regard.models.folder.foreign_folder import describe_foreign_folder
from regard.tasks import face_for

MAX_CONFIG_BYTES = 4 * 2**20


def face_of(folder: Path) -> str:
    """Return what `regard.load` will return for a folder: such as "translator" or "image classifier"."""
    return face_for(kind_of(folder))


def kind_of(folder: Path) -> str:
    """Return the kind of model in a folder, such as "transformer".

    This reads only config.json; the folder is checked when the model is loaded.
    """
    path = folder / "config.json"
    if foreign := describe_foreign_folder(folder):
        raise ModelError(foreign)
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(MAX_CONFIG_BYTES))
        kind = content["kind"]
        if not isinstance(kind, str):
            raise TypeError(kind)
    except OSError as error:
        raise ModelError(f"{folder} is not a model folder: {path.name}: {error.strerror or error}") from error
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise ModelError(f"{path} has no valid kind of model: the file is damaged") from error
    try:
        face_for(kind)
    except LookupError as error:
        raise ModelError(
            f"{path}: the kind of model {kind!r} is unknown. Commands know only the kinds of regard itself; a task of "
            f"your own has to be registered, with regard.tasks.register, in the program that loads the model"
        ) from error
    return kind
