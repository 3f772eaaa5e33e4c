"""Find the format of a model file by its first bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from regard.errors import ModelError
from regard.interop.single_files.gguf import read_gguf
from regard.interop.single_files.llama2c import could_be_llama2c, read_llama2c
from regard.interop.single_files.nanogpt import read_nanogpt
from regard.interop.single_files.single_file import SingleFile


def recognize(path: Path) -> Callable[[Path, Collection[str]], SingleFile]:
    """Return the function that reads a file, by its first bytes."""
    try:
        with open(path, "rb") as file:
            begin = file.read(28)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    if begin[:4] == b"GGUF":
        return read_gguf
    if begin[:2] in (b"PK", b"\x80\x02"):
        return read_nanogpt
    if could_be_llama2c(begin, path.stat().st_size):
        return read_llama2c
    raise ModelError(
        f"{path}: regard does not recognize this file; it reads files of GGUF, llama2.c, nanoGPT, Marian and Argos "
        "Translate, and word vectors as text"
    )
