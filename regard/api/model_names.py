"""Find model folders by name: the user's, and those that ship with regard."""

from __future__ import annotations

from pathlib import Path

from regard.errors import ModelError

SHIPPED = Path(__file__).parents[1] / "shipped"


def find_model(name_or_folder: str | Path) -> Path:
    """Return the folder of a model: an existing folder, else a shipped model of that name."""
    folder = Path(name_or_folder)
    try:
        is_folder, exists = folder.is_dir(), folder.exists()
    except OSError as error:  # such as a folder above it without permission, or a name that is too long
        raise ModelError(f"{folder}: cannot be read: {error.strerror}") from error
    if is_folder:
        return folder
    names = shipped_models()
    if str(name_or_folder) in names:
        return SHIPPED / str(name_or_folder)
    reason = f"{folder} is a file, not a folder" if exists else f"there is no folder {folder.absolute()}"
    raise ModelError(
        f"no model {str(name_or_folder)!r}: {reason}, and no model of that name ships with regard "
        f"(shipped: {', '.join(names) or 'none'})"
    )


def shipped_models() -> list[str]:
    """Return the names of the models that ship with regard."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/manifest.json"))
