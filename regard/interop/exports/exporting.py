"""Export a model for another tool: the list of formats."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from regard.errors import UsageError, unknown_name

# The module of each format, which has the functions `export(source, out, storage)`, and `STORAGES`, the first one the
# default.
FORMATS = {
    "ct2": "ctranslate2_folder",
    "argos": "argos_package",
    "hf": "hub_folder",
    "gguf": "gguf_file",
    "words": "words_text",
    "onnx": "onnx_graphs",
}
TOOLS = {
    "ct2": "CTranslate2",
    "argos": "Argos Translate and LibreTranslate",
    "hf": "transformers",
    "gguf": "llama.cpp",
    "words": "gensim and other tools for word2vec's text format",
    "onnx": "ONNX runtimes",
}


def export_model(model: str | Path, out: str | Path, *, to: str, storage: str | None = None) -> Path:
    """Write a model folder in the format of another tool, and return the new file or folder.

    `to` is one of FORMATS. `storage` is the type of the weights, by default float32. A model that the tool cannot
    compute is a UsageError that names the reason. The tool itself is not needed, except for "onnx".
    """
    from regard.interop.exports.model_source import open_source

    if to not in FORMATS:
        raise UsageError(unknown_name("format", to, tuple(FORMATS)))
    writer: Any = importlib.import_module(f"regard.interop.exports.{FORMATS[to]}")
    storage = writer.STORAGES[0] if storage is None else storage
    if storage not in writer.STORAGES:
        raise UsageError(f"--to {to}: {unknown_name('storage', storage, writer.STORAGES)}")
    out = Path(out)
    if out.exists():
        raise UsageError(f"{out} already exists: choose another name")
    writer.export(open_source(model), out, storage)
    return out
