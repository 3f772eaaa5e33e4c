"""Recognize model folders of other libraries, to say what they are. PyTorch is not imported for that."""

from __future__ import annotations

import json
from pathlib import Path

MAX_CONFIG_BYTES = 4 * 2**20
MAX_NAME_CHARACTERS = 60
IMPORTED = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gpt2",
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "marian",
    "m2m_100",
    "mbart",
    "t5",
)  # the families of regard.interop.importing


def describe_foreign_folder(folder: Path) -> str | None:
    """Say which library wrote a model folder, and what can be done with it; None if it is not recognized.

    Hugging Face's config.json names the class of the model under `architectures`, or its family under `model_type`.
    """
    if (folder / "manifest.json").exists():
        return None
    try:
        with (folder / "config.json").open("rb") as file:
            config = json.loads(file.read(MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(config, dict):
        return None
    architectures, family = config.get("architectures"), config.get("model_type")
    name = architectures[0] if isinstance(architectures, list) and architectures else family
    if not isinstance(name, str) or (not name.isidentifier() and not name.replace("-", "_").isidentifier()):
        return None
    if family in IMPORTED:
        advice = f"which can be imported: regard import {folder} NAME"
    else:
        advice = (
            "which regard cannot import yet. To see its attention, load it in Python with transformers and pass the "
            "model to regard.record"
        )
    return f"{folder}: this is a Hugging Face folder of a {name[:MAX_NAME_CHARACTERS]}, {advice}"
