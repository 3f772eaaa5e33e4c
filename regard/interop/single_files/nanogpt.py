"""Read a checkpoint of nanoGPT, ckpt.pt, and the characters in meta.pkl or the tokenizer.json beside it.

Both are pickles, which are programs; nothing in them runs (files/torch_opcodes.py).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.interop.families import nanogpt
from regard.interop.families.family import TokenIds
from regard.interop.files.settings_file import SettingsFile
from regard.interop.files.torch_file import MAX_PROGRAM_BYTES, TorchFile
from regard.interop.files.torch_opcodes import read_program
from regard.interop.files.weight_source import WeightSource
from regard.interop.single_files.single_file import SingleFile
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.imported_file import EACH_CHARACTER
from regard.text.tokenizers.tokenizer import MAX_FILE_BYTES

END = "<|endoftext|>"
OTHER_PARTS = ("optimizer", "iter_num", "best_val_loss", "config", "scaler")  # of the training


def read_nanogpt(path: Path, allow_keys: Collection[str] = ()) -> SingleFile:
    """Read the settings and the tokenizer; the weights are read later."""
    file = TorchFile(path, part="model")
    arguments = file.content.get("model_args")
    if not isinstance(arguments, dict) or (unknown := file.content.keys() - {"model", "model_args", *OTHER_PARTS}):
        reason = (
            "model_args are missing" if not isinstance(arguments, dict) else f"{min(map(str, unknown))!r} is unknown"
        )
        raise ModelError(f"{path}: it is no checkpoint of nanoGPT: {reason}")
    settings = SettingsFile(f"{path}: model_args", arguments, allowed=allow_keys)
    vocabulary = settings.take("vocab_size", int)
    tokenizer, beside, extra = _tokenizer(path, vocabulary)
    end = vocabulary if extra else _number(tokenizer, END)
    tokens = TokenIds(None, (end,), None, tokenizer.unknown, tokenizer.size, (), ())
    plan = nanogpt.make_plan(settings, tokens, extra=extra)
    names = {name.removeprefix(nanogpt.COMPILED).removeprefix(nanogpt.PREFIX): name for name in file.keys()}  # noqa: SIM118
    if len(names) < len(file.keys()):
        raise ModelError(f"{path}: a weight is there with and without a prefix")
    shapes = {name: file.shape(stored) for name, stored in names.items()}
    dtypes = {name: file.dtype(stored) for name, stored in names.items()}
    weights = WeightSource(path, shapes, lambda name: file.get_tensor(names[name]), dtypes, beside=(beside,))
    notes = ("Its texts have no end, so the model writes until a limit.",) if extra else ()
    return SingleFile("nanogpt", plan, tokens, tokenizer, weights, "", notes)


def _number(tokenizer: ImportedTokenizer, name: str) -> int:
    (number, *others) = tokenizer.encode(name) or [0]
    if others or tokenizer.name(number) != name:
        raise ModelError(f"its tokenizer has no token {name}")
    return number


def _tokenizer(path: Path, vocabulary: int) -> tuple[ImportedTokenizer, Path, int]:
    """Return the tokenizer beside the checkpoint, its file, and how many tokens it has beyond the vocabulary."""
    for name in ("meta.pkl", "tokenizer.json"):
        file = path.parent / name
        if not file.is_file() or file.is_symlink():
            continue
        if file.stat().st_size > min(MAX_FILE_BYTES, MAX_PROGRAM_BYTES):
            raise ModelError(f"{file}: it is too large for a tokenizer")
        try:
            if name == "tokenizer.json":
                return ImportedTokenizer(file.read_bytes()), file, 0
            return _characters(read_program(file.read_bytes())[0], vocabulary), file, 1
        except ModelError as error:
            raise ModelError(f"{file}: {error}") from error
    raise ModelError(
        f"{path}: its tokenizer is not beside it: meta.pkl of a data set of characters, or tokenizer.json, for a model "
        "with GPT-2's tokens that of GPT-2"
    )


def _characters(meta: Any, vocabulary: int) -> ImportedTokenizer:
    """Return a tokenizer of the characters in `itos`, with one more token for the end of a text."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    itos = meta.get("itos") if isinstance(meta, dict) else None
    numbers = range(vocabulary)
    if not isinstance(itos, dict) or itos.keys() != {*numbers}:
        raise ModelError(f"itos must have the {vocabulary} characters of the model")
    characters = [itos[number] for number in numbers]
    if not all(isinstance(each, str) and len(each) == 1 for each in characters) or len({*characters}) < vocabulary:
        raise ModelError("itos must have one character for each token")
    library = Tokenizer(models.WordLevel({character: number for number, character in enumerate(characters)}, END))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(EACH_CHARACTER), "isolated")
    library.decoder = decoders.Fuse()
    library.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    return ImportedTokenizer(library.to_str().encode())
