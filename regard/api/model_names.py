"""Model folders by name: those of the user, and those that come with regard."""

from __future__ import annotations

from pathlib import Path

from regard.errors import ModelError

SHIPPED = Path(__file__).parents[1] / "shipped"


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
