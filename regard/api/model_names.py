"""Where the models are: folders by name, and what can be said of one before PyTorch is there to load it."""

from __future__ import annotations

import json
from pathlib import Path

from regard.errors import ModelError

SHIPPED = Path(__file__).parents[1] / "shipped"
LARGEST_CONFIG = 4 * 2**20  # bytes
FACES = {
    "transformer": "translator",
    "rnn-attention": "translator",
    "rnn-seq2seq": "translator",
    "transformer-lm": "writer",
    "rnn-lm": "writer",
    "encoder": "embedder",
}


def find_model(name_or_folder: str | Path) -> Path:
    """The folder of a model: one that exists, else a shipped one of that name."""
    folder = Path(name_or_folder)
    if folder.is_dir():
        return folder
    names = shipped_models()
    if str(name_or_folder) in names:
        return SHIPPED / str(name_or_folder)
    there = f"{folder} is a file, not a folder" if folder.exists() else f"there is no folder {folder.absolute()}"
    raise ModelError(
        f"no model {str(name_or_folder)!r}: {there}, and no model of that name comes with regard "
        f"(shipped: {', '.join(names) or 'none'})"
    )


def shipped_models() -> list[str]:
    """The names of the models that regard brings along."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/manifest.json"))


def face_of(folder: Path) -> str:
    """What a model will be once it is loaded: translator, writer or embedder.

    Only a glance: everything in the folder is checked when the model is loaded.
    """
    path = folder / "config.json"
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(LARGEST_CONFIG))
        return FACES[content["kind"]]
    except OSError as error:
        raise ModelError(f"{folder} is not a model folder: {path.name}: {error.strerror or error}") from error
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise ModelError(f"{path} does not say which kind of model this is: the file is damaged") from error
