"""`regard export`: a model with its weights stored in another way, in a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.info import size_text
from regard.errors import UsageError


def export_model(
    model: Annotated[str, typer.Argument(help="Model folder, or the name of a model that regard ships.")],
    out: Annotated[Path, typer.Argument(help="The new folder.")],
    storage: Annotated[
        str, typer.Option(help="int8 (a byte a weight, rounded), bfloat16 (two) or float32 (four).")
    ] = "int8",
) -> None:
    """Store a model smaller, to pass it on or to load it faster: all that uses it, and nothing that trains it.

    A model that is stored as int8 and used with --dtype int8 is rounded once.

    Example: regard export runs/mine mine-int8
    """
    from regard.api.model_names import find_model
    from regard.models.folder import RESERVED, load_with_config, save_model
    from regard.text.tokenizers.tokenizer import read_tokenizers, tokenizer_files

    if out.exists():
        raise UsageError(f"{out} is there already: choose another name")
    folder = find_model(model)
    weights, config = load_with_config(folder)
    settings: dict[str, Any] = {
        "storage": storage,
        "files": tokenizer_files(*read_tokenizers(folder)),
        "info": {name: value for name, value in config.items() if name not in RESERVED},
        "card": card_of(folder, storage),
    }
    save_model(weights, out, **settings)
    size = sum(path.stat().st_size for path in out.iterdir())
    typer.echo(f"wrote {out}, {size_text(size)}", err=True)


def card_of(folder: Path, storage: str) -> str | None:
    """The model's card with a word on how it is stored now, if it has one."""
    card = folder / "README.md"
    if not card.is_file():
        return None
    note = f"Stored as {storage} by `regard export`; scores that stand here are of the model that it was made from."
    return f"{card.read_text(encoding='utf-8').rstrip()}\n\n{note}\n"
