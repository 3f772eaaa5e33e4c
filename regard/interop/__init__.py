"""Other people's models: read them, and write them as model folders of regard.

hub_folder             reads a folder in the format of Hugging Face, whose content is not trusted
torch_file             reads pytorch_model.bin without unpickling; torch_opcodes has the interpreter
settings_file          takes every key of a foreign settings file, or refuses it by name
weight_table           maps weights by a table, in both directions
llama, gpt2, bert      a family each: its settings and its table
sentence_transformers  what stands around an encoder: its pooling, and the longest text
chat_template          the form of chat prompts, by the markers in a template
importing              from a source to a model folder
comparison             the same texts through transformers and through the import
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.interop.importing import Imported, import_model, read

_WHERE = {"Imported": "importing", "import_model": "importing", "read": "importing"}  # imported on first use

__all__ = ["Imported", "import_model", "read"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
