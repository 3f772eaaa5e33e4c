"""`regard export`: copy a model to a new folder with its weights in another data type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.model_folders.info import size_text
from regard.errors import UsageError

# Endings of model files in other formats, and the format that writes such a file. A folder may have a dot in its name,
# such as mine-v1.2.
FILE_ENDINGS = {
    **dict.fromkeys((".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".npz", ".h5", ".json"), ""),
    **dict.fromkeys(
        (
            ".onnx",
            ".gguf",
            ".ggml",
            ".zip",
            ".tar",
            ".tgz",
            ".gz",
            ".pb",
            ".tflite",
            ".mlmodel",
            ".mlpackage",
            ".engine",
        ),
        "",
    ),
    ".argosmodel": "argos",
}


def export_model(
    model: Annotated[str, typer.Argument(help="Model folder, or the name of a shipped model.")],
    out: Annotated[Path, typer.Argument(help="New folder, or new file.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Format of another tool: ct2, argos, hf, gguf, onnx, words; the page `Export a model` describes them.",
            show_default="a model folder of regard",
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Data type of the weights: int4 (5 bits), int8 (1 byte), bfloat16 or float16 (2), or float32 (4).",
            show_default="int8, with --to as the format has it",
        ),
    ] = None,
) -> None:
    """Write a smaller copy of a model, to share it or to load it faster, or write it for another tool.

    The copy has everything to run the model and nothing to resume its training. The weights of an int8 or int4 copy
    are quantized when it is written; running it with --dtype int8 or int4 does not quantize them again.

    With --to, the result is in the format of another tool. A model that the tool cannot compute is refused with the
    reason.

    Example: regard export runs/mine mine-int8
    """
    from regard.api.model_names import find_model

    if to is not None:
        from regard.interop.exports.exporting import TOOLS, export_model

        export_model(find_model(model), out, to=to, storage=storage)
        typer.echo(f"wrote {out}, {size_text(size_of(out))}, for {TOOLS[to]}", err=True)
        return
    if out.suffix.lower() in FILE_ENDINGS:
        format = FILE_ENDINGS[out.suffix.lower()]
        other = f"; for another tool, add --to {format}" if format else ""
        raise UsageError(
            f"{out}: without --to, `regard export` writes a model folder of its own (config.json, "
            f"model.safetensors, tokenizer), for `regard` and `regard.load`: give a folder name, such as {out.stem}"
            f"{other}"
        )
    write_copy(find_model(model), out, "int8" if storage is None else storage)
    typer.echo(f"wrote {out}, {size_text(size_of(out))}", err=True)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())


def write_copy(folder: Path, out: Path, storage: str) -> None:
    """Write a model folder with its weights in another data type."""
    from regard.models.folder import RESERVED, load_with_config, save_model
    from regard.text.tokenizers.tokenizer import read_tokenizers, tokenizer_files

    if out.exists():
        raise UsageError(f"{out} already exists: choose another name")
    weights, config = load_with_config(folder)
    settings: dict[str, Any] = {
        "storage": storage,
        "files": tokenizer_files(*read_tokenizers(folder)),
        "info": {name: value for name, value in config.items() if name not in RESERVED},
        "card": card_of(folder, storage),
    }
    save_model(weights, out, **settings)


def card_of(folder: Path, storage: str) -> str | None:
    """Return the model card with a note on the storage, or None if the model has no card."""
    card = folder / "README.md"
    if not card.is_file():
        return None
    note = f"Stored as {storage} by `regard export`; the scores above are those of the original model."
    return f"{card.read_text(encoding='utf-8').rstrip()}\n\n{note}\n"
