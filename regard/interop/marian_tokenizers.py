"""The tokenizers of a Marian model: two sentencepiece models, and one vocabulary for both sides or one for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import ModelError
from regard.interop.files.hub_folder import HubFolder
from regard.interop.files.settings_file import SettingsFile
from regard.models.folder.config_file import read_json, shortened
from regard.text.tokenizers.pieces import PieceTokenizer, make_piece_file

MAX_MODEL_BYTES = 16 * 2**20
NAMES = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
HARMLESS = (
    *("tokenizer_class", "model_max_length", "name_or_path", "special_tokens_map_file", "clean_up_tokenization_spaces"),
    *("tokenizer_file", "added_tokens_decoder", "return_tensors", "backend", "is_local", "extra_special_tokens"),
    *("source_lang", "target_lang", "processor_class", "local_files_only", "target_vocab_file"),
)


class Tokenizers(NamedTuple):
    """The tokenizers of both sides; `names` are the special tokens by their role."""

    source: PieceTokenizer
    target: PieceTokenizer
    names: Mapping[str, str]


def read_tokenizers(folder: HubFolder) -> Tokenizers:
    """Read source.spm, target.spm, vocab.json and target_vocab.json; ModelError if they do not belong together."""
    settings = folder.settings("tokenizer_config.json", required=False)
    names = {key: token_name(settings, key, usual) for key, usual in NAMES.items()}
    settings.must_be("sp_model_kwargs", {})
    settings.ignore(*HARMLESS)
    other = folder.path("target_vocab.json")
    separate = settings.take("separate_vocabs", bool, False)
    settings.finish()
    if separate and other is None:
        raise ModelError(f"{settings.path}: separate_vocabs is {str(separate).lower()}; target_vocab.json is missing")
    vocabulary = read_vocabulary(folder, "vocab.json")
    targets = read_vocabulary(folder, "target_vocab.json") if separate else vocabulary
    sides = []
    for side, known in (("source", vocabulary), ("target", targets)):
        if missing := [name for key, name in names.items() if key != "pad_token" and name not in known]:
            raise ModelError(f"{folder.root}: the vocabulary has no token {shortened(repr(missing[0]))}")
        tokens = {name: known.index(name) for name in names.values() if name in known}
        model = read_bytes(folder, f"{side}.spm")
        content = make_piece_file(model, known, unknown=tokens[names["unk_token"]], special=[*tokens.values()])
        try:
            sides.append(PieceTokenizer(content))
        except ModelError as error:
            raise ModelError(f"{folder.root / side}.spm: {error}") from error
    return Tokenizers(sides[0], sides[1], names)


def token_name(settings: SettingsFile, key: str, usual: str) -> str:
    """Return the name of a special token, which may be given with options."""
    value: Any = settings.content.get(key)
    settings.ignore(key)
    value = value.get("content") if isinstance(value, dict) else value
    if value is not None and not isinstance(value, str):
        raise ModelError(f"{settings.path}: {key} must be a text, got {shortened(repr(value))}")
    return usual if value is None else value


def read_vocabulary(folder: HubFolder, name: str) -> list[str]:
    """Return the tokens of a JSON file {token: number} in order; ModelError unless each number has one token."""
    path = _path(folder, name)
    content = read_json(path.resolve())
    tokens: list[str | None] = [None] * len(content)
    for token, number in content.items():
        if type(number) is not int or not 0 <= number < len(tokens) or tokens[number] is not None:
            raise ModelError(f"{path}: the tokens must have the numbers 0 to {len(tokens) - 1}, each once")
        tokens[number] = token
    return [token for token in tokens if token is not None]


def read_bytes(folder: HubFolder, name: str) -> bytes:
    """Return the content of a sentencepiece model."""
    path = _path(folder, name)
    if path.stat().st_size > MAX_MODEL_BYTES:
        raise ModelError(f"{path}: larger than {MAX_MODEL_BYTES} bytes, too large for a sentencepiece model")
    return path.read_bytes()


def _path(folder: HubFolder, name: str) -> Path:
    path = folder.path(name)
    if path is None:
        raise ModelError(f"{folder.root}: there is no {name}, which a Marian model needs")
    return path
