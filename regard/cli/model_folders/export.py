"""`regard export`: copy a model to a new folder with its weights in another data type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.model_folders.info import size_text
from regard.errors import UsageError

# Endings of model files in other formats. A folder may have a dot in its name, such as mine-v1.2.
FILE_ENDINGS = (
    *(
        ".onnx",
        ".gguf",
        ".ggml",
        ".safetensors",
        ".bin",
        ".pt",
        ".pth",
        ".ckpt",
        ".pkl",
        ".npz",
        ".h5",
        ".pb",
        ".tflite",
    ),
    *(".mlmodel", ".mlpackage", ".engine", ".json", ".zip", ".tar", ".tgz", ".gz"),
)


def export_model(
    model: Annotated[str, typer.Argument(help="Model folder, or the name of a shipped model.")],
    out: Annotated[Path, typer.Argument(help="New folder.")],
    storage: Annotated[
        str, typer.Option(help="Data type of the weights: int8 (1 byte each), bfloat16 or float16 (2), or float32 (4).")
    ] = "int8",
) -> None:
    """Write a smaller copy of a model, to share it or to load it faster.

    The copy has everything to run the model and nothing to resume its training. The weights of an int8 copy are
    quantized when it is written; running it with --dtype int8 does not quantize them again.

    Example: regard export runs/mine mine-int8
    """
    from regard.api.model_names import find_model
    from regard.models.folder import RESERVED, load_with_config, save_model
    from regard.text.tokenizers.tokenizer import read_tokenizers, tokenizer_files

    if out.suffix.lower() in FILE_ENDINGS:
        raise UsageError(
            f"{out}: regard cannot write {out.suffix} files. It exports a model folder of its own (config.json, "
            f"model.safetensors, tokenizer), for `regard` and `regard.load`: give a folder name, such as {out.stem}"
        )
    if out.exists():
        raise UsageError(f"{out} already exists: choose another name")
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
    """Return the model card with a note on the storage, or None if the model has no card."""
    card = folder / "README.md"
    if not card.is_file():
        return None
    note = f"Stored as {storage} by `regard export`; the scores above are those of the original model."
    return f"{card.read_text(encoding='utf-8').rstrip()}\n\n{note}\n"
