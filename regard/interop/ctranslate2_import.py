"""Read a model folder of CTranslate2: its weights, its vocabularies and its tokenizers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import ModelError
from regard.interop.families import ctranslate2 as names
from regard.interop.families.ctranslate2_settings import read_config, with_zero_start
from regard.interop.families.family import Plan
from regard.interop.files.ctranslate2_file import SCALE, CTranslate2File
from regard.interop.files.settings_file import SettingsFile
from regard.interop.files.weight_source import WeightSource
from regard.machine.lazy_torch import torch
from regard.models.config import TransformerConfig, TransformerLMConfig
from regard.models.folder.config_file import read_json, read_json_value, shortened
from regard.text.tokenizers.characters import CharacterTokenizer
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.pieces import PieceTokenizer, make_piece_file
from regard.text.tokenizers.subword_file import read_pieces
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import MAX_FILE_BYTES, Tokenizer

KINDS: dict[str, type[TransformerConfig] | type[TransformerLMConfig]] = {
    "TransformerSpec": TransformerConfig,
    "TransformerDecoderSpec": TransformerLMConfig,
}
PADDING = ("<pad>", "<blank>", "[PAD]")  # names of the padding token; the file does not say which it is
ZERO = "<zero>"  # a start token without a name: its vector is zero
TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "I8"}


class CTranslate2Model(NamedTuple):
    """What an import needs of a folder."""

    plan: Plan
    tokenizers: tuple[Tokenizer, Tokenizer]
    info: dict[str, Any]
    weights: WeightSource
    notes: tuple[str, ...]


def is_folder(path: Path) -> bool:
    """Whether a folder is a model of CTranslate2."""
    file = path / "model.bin"
    if not file.is_file():
        return False
    with open(file, "rb") as content:
        begin = content.read(64)
    return begin[:4] == b"\x06\0\0\0" and b"Spec\0" in begin


def read_folder(
    folder: Path, allow_keys: Collection[str] = (), *, pieces: Path | None = None, keep: Any = None
) -> CTranslate2Model:
    """Read the settings of a folder; its weights are read later, and `keep` lives as long as they do.

    `pieces` is the sentencepiece model of a package, which lies beside the folder.
    """
    path = folder / "model.bin"
    file = CTranslate2File(path)
    if file.kind not in KINDS:
        raise ModelError(f"{path}: it is a {shortened(file.kind)}, and regard imports {', '.join(KINDS)}")
    content = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    settings = SettingsFile(folder / "config.json", content, allowed=allow_keys)
    crossed = KINDS[file.kind] is TransformerConfig
    vocabularies = _vocabularies(folder, crossed)
    tokens = {role: settings.take(f"{role}_token", str, None) for role in ("bos", "eos", "unk", "decoder_start")}
    eps = settings.take("layer_norm_epsilon", float, None)
    before, after = settings.take("add_source_bos", bool, False), settings.take("add_source_eos", bool, False)
    settings.ignore("multi_query_attention")
    settings.must_be("quantization_type", 0)
    settings.finish()
    special, own = _special(settings, tokens, vocabularies, crossed)
    zero_start = crossed and "decoder/start_from_zero_embedding" in file.arrays
    zero_start = zero_start and bool(file.scalar("decoder/start_from_zero_embedding"))
    if zero_start:  # as Marian's models do, whose source ends with the end token that users of CTranslate2 add
        vocabularies = [[*tokens, ZERO] for tokens in vocabularies]
        if before:
            raise ModelError(f"{settings.path}: add_source_bos is true, which regard does not know of such models")
        zero, after = len(vocabularies[-1]) - 1, True
        special |= {"start_id": zero, "pad_id": zero, "barred_ids": (zero,)}
    if crossed and special["pad_id"] in special["end_ids"]:
        raise ModelError(f"{settings.path}: the vocabulary has no token that regard can use as padding")
    tokenizers = tuple(
        _tokenizer(folder, side, vocabulary, special, pieces)
        for side, vocabulary in zip(("source", "target"), (vocabularies * 2)[:2], strict=True)
    )
    config = read_config(file, vocabularies, special, eps, crossed)
    frame: dict[str, Any] = {"target": {"before": []}} if crossed else {}
    if crossed:
        sides = [special["start_id"]] if before else [], [special["end_ids"][0]] if after else []
        frame["source"] = {"before": sides[0], "after": sides[1]}
    info: dict[str, Any] = {"frame": frame} if crossed and not (own and after and not before) else {}
    shared = tokenizers[0].save() == tokenizers[1].save()
    both_tokenizers = tokenizers if not shared else (tokenizers[0], tokenizers[0])
    rows = (
        with_zero_start(names.rows(config), "decoder/projection/bias" in file.arrays)
        if zero_start
        else names.rows(config)
    )
    plan = Plan(config, rows, "")
    weights = _weights(file, config, keep)
    return CTranslate2Model(plan, (both_tokenizers[0], both_tokenizers[1]), info, weights, ())


def _vocabularies(folder: Path, crossed: bool) -> list[list[str]]:
    """Return the tokens of each side, or of both."""
    groups = (("shared_vocabulary",), ("source_vocabulary", "target_vocabulary")) if crossed else (("vocabulary",),)
    for group in groups:
        lists = [_listed(folder, name) for name in group]
        if all(lists):
            return [tokens for tokens in lists if tokens]
    raise ModelError(f"{folder}: there is no {groups[0][0]}.json, which names the tokens of the model")


def _listed(folder: Path, name: str) -> list[str] | None:
    path = folder / f"{name}.json"
    if path.is_file():
        tokens = read_json_value(path)
    elif (path := folder / f"{name}.txt").is_file() and path.stat().st_size <= MAX_FILE_BYTES:
        tokens = path.read_bytes().decode(errors="replace").removesuffix("\n").split("\n")
    else:
        return None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ModelError(f"{path}: must be a list of tokens")
    return tokens


def _special(
    settings: SettingsFile, tokens: Mapping[str, str | None], vocabularies: list[list[str]], crossed: bool
) -> tuple[dict[str, Any], bool]:
    """Return the special tokens as our settings, and whether they are those of regard's own tokenizers."""
    target = vocabularies[-1]

    def number(role: str, usual: str) -> int:
        name = tokens[role] or usual
        if name not in target:
            raise ModelError(f"{settings.path}: the vocabulary has no {role}_token {shortened(repr(name))}")
        return target.index(name)

    end, start = number("eos", "</s>"), number("decoder_start" if crossed else "bos", tokens["bos"] or "<s>")
    unknown_name = tokens["unk"] or "<unk>"
    unknown = target.index(unknown_name) if unknown_name in target else None
    if target[:4] == ["<pad>", "<unk>", "<s>", "</s>"] and (unknown, start, end) == (1, 2, 3):
        return {"pad_id": 0, "unknown_id": 1, "start_id": 2, "end_ids": (3,), "barred_ids": (0, 2)}, True
    pad = next((target.index(name) for name in PADDING if name in target), start)
    unknown = None if unknown == end else unknown
    return {"pad_id": pad, "unknown_id": unknown, "start_id": start, "end_ids": (end,), "barred_ids": ()}, False


def _tokenizer(
    folder: Path, side: str, vocabulary: list[str], special: dict[str, Any], pieces: Path | None
) -> Tokenizer:
    """Return the tokenizer of a side, from a file in the folder."""
    candidates = [pieces] if pieces else [folder / f"{side}.spm", folder / "sentencepiece.model"]
    others = {f"{prefix}{name}": kind for prefix in (f"{side}.", "") for name, kind in (
        ("tokenizer.json", ImportedTokenizer), ("characters.json", CharacterTokenizer))}  # fmt: skip
    for path in [*candidates, *(folder / name for name in others)]:
        if not path.is_file() or path.is_symlink():
            continue
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelError(f"{path}: larger than {MAX_FILE_BYTES} bytes, too large for a tokenizer")
        content = path.read_bytes()
        try:
            if path.name in others:
                return others[path.name](content)
            return _subwords(content, vocabulary, special)
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error
    raise ModelError(
        f"{folder}: its tokenizer is missing: CTranslate2 keeps only a list of tokens; put the sentencepiece model "
        f"into it as sentencepiece.model, or as {side}.spm, or a tokenizer.json"
    )


def _subwords(content: bytes, vocabulary: list[str], special: dict[str, Any]) -> Tokenizer:
    try:
        if read_pieces(content) == vocabulary:
            return SubwordTokenizer(content)
    except ModelError:
        pass  # not one of regard
    if special["unknown_id"] is None:
        raise ModelError("the vocabulary has no unknown token, which this tokenizer needs")
    numbers = [special["pad_id"], special["unknown_id"], special["start_id"], *special["end_ids"]]
    return PieceTokenizer(
        make_piece_file(content, vocabulary, unknown=special["unknown_id"], special=[*dict.fromkeys(numbers)])
    )


def _weights(file: CTranslate2File, config: Any, keep: Any) -> WeightSource:
    """Return the weights without what the settings cover: attributes, aliases, tables of positions."""
    covered = (
        set() if config.position == "learned" else {f"{stack}/{names.ENCODINGS}" for stack in ("encoder", "decoder")}
    )
    covered |= names.zeros(config).keys()
    arrays = {**file.arrays, **{alias: file.arrays[name] for alias, name in file.aliases.items()}}
    known = names.aliases(config)
    for alias, name in known.items():
        if not file.same(alias, name):
            raise ModelError(f"{file.path}: {shortened(alias)} is not {shortened(name)}")
    shapes = {
        name: array.shape
        for name, array in arrays.items()
        if array.shape and not name.endswith(f"weight{SCALE}") and name not in covered and name not in known
    }
    dtypes = {name: TYPES.get(arrays[name].dtype, "F32") for name in shapes}

    def get(name: str, _alive: Any = keep) -> torch.Tensor:
        return file.get(name)

    beside = tuple(path for path in sorted(file.path.parent.iterdir()) if path.is_file() and path != file.path)
    return WeightSource(file.path, shapes, get, dtypes, beside)
