"""`regard import`: make a model folder of another library's model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from regard.cli.model_folders.info import size_text


def import_folder(
    source: Annotated[
        Path, typer.Argument(help="Folder in the format of Hugging Face, or a file of GGUF, llama2.c or nanoGPT.")
    ],
    out: Annotated[Path, typer.Argument(help="New model folder.")],
    family: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FAMILY",
            help="llama, mistral, qwen2, qwen3, gpt2, bert, roberta, xlm-roberta, distilbert, marian, m2m_100, mbart "
            "or t5.",
            show_default="detected",
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Data type of the weights: float32, bfloat16, float16, int8 or int4.",
            show_default="that of the source",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with transformers on some texts, and refuse a different result.")
    ] = False,
    positions: Annotated[
        str,
        typer.Option(
            metavar="hf|original",
            help="Of a Marian model: compute positions as transformers does, or as Marian does, which trained it.",
        ),
    ] = "hf",
    allow_key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Accept a setting of the source that regard does not know; may be repeated."),
    ] = None,
) -> None:
    """Import a model of another library: Llama, Mistral, Qwen, SmolLM, GPT-2, OPUS-MT, or a sentence encoder.

    The result is a model folder like any other: translate, generate, embed, score, evaluate, explore and export work
    with it.
    Nothing is downloaded, and no code of the source runs.

    Example: regard import SmolLM2-135M-Instruct smollm2 --storage int8
    """
    import torch  # noqa: F401  # as a whole, not by shared/torch_import.py: transformers needs all of it

    from regard.interop import import_model
    from regard.models.folder import read_config
    from regard.models.folder.weights_file import Storage

    folder = import_model(
        source,
        out,
        storage=cast("Storage | None", storage),
        family=family,
        allow_keys=allow_key or (),
        check=check,
        positions=positions,
    )
    info = read_config(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    typer.echo(
        f"wrote {folder}, {size_text(size)}: a model of the family {info['imported']['family']}, stored as "
        f"{info['storage']}; README.md says what was imported",
        err=True,
    )
