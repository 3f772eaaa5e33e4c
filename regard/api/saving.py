"""Save what `regard.load` returns as a model folder, and what such a folder says about its data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from regard.models.folder import RESERVED, save_model
from regard.models.folder.weights_file import Storage
from regard.text.tokenizers.tokenizer import Tokenizer


def learned_from_demo(info: Mapping[str, Any]) -> bool:
    """Whether a model was trained on demo data, by config.json of its folder."""
    recipe = info.get("recipe")
    data = recipe.get("data") if isinstance(recipe, Mapping) else None
    return isinstance(data, Mapping) and bool(data.get("demo"))


def save_face(
    model: nn.Module,
    folder: str | Path,
    *,
    tokenizer: Tokenizer | tuple[Tokenizer, Tokenizer],
    info: Mapping[str, Any],
    storage: Storage,
) -> Path:
    """Save a model with its tokenizers; `info` is config.json of the folder that it comes from, or part of it."""
    rest = {name: value for name, value in info.items() if name not in RESERVED}
    return save_model(model, folder, tokenizer=tokenizer, info=rest, storage=storage)
