"""Find what belongs to a model of Marian: the model, its settings for decoding, and the vocabularies.

The files are named by a `decoder.yml` or `config.yml` beside the model, or found by their content.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import ModelError
from regard.interop.families.marian_original import Tokens
from regard.interop.files.flat_yaml import read_settings, read_vocabulary
from regard.interop.files.marian_file import SETTINGS, MarianFile, is_marian_file
from regard.interop.files.settings_file import SettingsFile
from regard.interop.files.torch_file import DAMAGE
from regard.models.folder.config_file import MAX_BEAM, MAX_PENALTY, shortened
from regard.text.tokenizers.pieces import PieceTokenizer, make_piece_file, pieces_of

MAX_TEXT_BYTES = 16 * 2**20
MAX_ROWS = 2**22
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
# Of a decoder.yml: what says how to run, not what to compute.
HARMLESS = (
    *("relative-paths", "mini-batch", "maxi-batch", "maxi-batch-sort", "workspace", "max-length-factor", "shortlist"),
    *("gemm-precision", "cpu-threads", "quiet", "quiet-translation", "log", "n-best", "max-length", "max-length-crop"),
    *("skip-cost", "alignment", "ssplit-mode", "optimize", "int8shift", "mini-batch-words", "devices", "seed"),
    *("ssplit-prefix-file", "beam-threads", "wrap", "output", "input", "tsv", "bergamot-mode", "version"),
)


class MarianFolder(NamedTuple):
    """A model of Marian, and what was found beside it."""

    model: MarianFile
    decoding: SettingsFile  # empty if there is no such file
    vocabularies: tuple[Path, Path]
    beside: tuple[Path, ...]  # files that were read besides the model


def is_marian(source: Path) -> bool:
    """Whether a file is a model of Marian, or a folder without config.json has one."""
    if source.is_dir():
        return not (source / "config.json").exists() and any(map(_is_model, _files(source)))
    return _is_model(source)


def open_folder(source: Path, *, allow_keys: Collection[str]) -> MarianFolder:
    """Open the model in a folder, or a model file with what lies beside it."""
    root = source if source.is_dir() else source.parent
    files = _files(root)
    if source.is_dir():
        models = [path for path in files if _is_model(path) and not path.name.endswith(".optimizer.npz")]
        if len(models) != 1:
            names = ", ".join(path.name for path in models)
            raise ModelError(f"{source}: there are {len(models)} models of Marian ({names}): name the file of one")
        source = models[0]
    model = MarianFile(source)
    settings, path = _decoding(files, source, allow_keys)
    named = settings.take("vocabs", list, None)
    settings.must_be("models", [source.name], settings.content.get("models"))
    vocabularies = _named(root, named, settings) if named else _found(files, root)
    beside = (*([path] if path else []), *dict.fromkeys(vocabularies))
    return MarianFolder(model, settings, vocabularies, beside)


def read_tokenizers(folder: MarianFolder) -> tuple[PieceTokenizer, PieceTokenizer, Tokens, tuple[Path, ...]]:
    """Return the tokenizers, the special tokens, and further files that were read.

    A vocabulary is a sentencepiece model, whose numbers count, or a YAML file that numbers the pieces of source.spm and
    target.spm. Tables may have more rows than a vocabulary has pieces; padding comes after the larger table.
    """
    sides, special, read = [], set(), []
    sizes = _sizes(folder.model)
    for side, path in zip(("source", "target"), folder.vocabularies, strict=True):
        if path.suffix == ".spm":
            model = _bytes(path)
            names = pieces_of(model)
        else:
            numbers = read_vocabulary(_text(path), path)
            names = [""] * len(numbers)
            for name, number in numbers.items():
                if not 0 <= number < len(names) or names[number]:
                    raise ModelError(f"{path}: the pieces must have the numbers 0 to {len(names) - 1}, each once")
                names[number] = name
            pieces = path.parent / f"{side}.spm"
            if not pieces.is_file():
                raise ModelError(f"{path.parent}: there is no {side}.spm, the sentencepiece model of {path.name}")
            model = _bytes(pieces)
            read.append(pieces)
        if END not in names or UNKNOWN not in names or PAD in names:
            raise ModelError(f"{path}: a vocabulary of Marian has {END} and {UNKNOWN}, and no {PAD}")
        end, unknown = names.index(END), names.index(UNKNOWN)
        special.add((end, unknown))
        size = sizes[side == "target"]
        if len(names) > size:
            raise ModelError(f"{path}: it has {len(names)} tokens, but dim-vocabs of the model is {size}")
        unused = range(len(names), max(sizes))
        names += [f"<unused {number}>" for number in unused]
        content = make_piece_file(model, [*names, PAD], unknown=unknown, special=[end, unknown, *unused, len(names)])
        try:
            sides.append(PieceTokenizer(content))
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error
    if len(special) > 1:
        raise ModelError(f"{folder.vocabularies[0].parent}: the vocabularies number {END} and {UNKNOWN} differently")
    ((end, unknown),) = special
    return sides[0], sides[1], Tokens(end, unknown, sizes, max(sizes)), tuple(read)


def _sizes(model: MarianFile) -> tuple[int, int]:
    sizes = model.settings.get("dim-vocabs")
    if not isinstance(sizes, list) or len(sizes) != 2 or not all(type(n) is int and 0 < n <= MAX_ROWS for n in sizes):
        raise ModelError(f"{model.path}: dim-vocabs must have two sizes, got {shortened(repr(sizes))}")
    return sizes[0], sizes[1]


def read_search(settings: SettingsFile) -> dict[str, Any]:
    """Return the usual search that the settings for decoding name."""
    beam = settings.take("beam-size", int, 1 if settings.content else 4)
    value = settings.content.get("normalize", 1.0)
    settings.ignore("normalize", *HARMLESS)
    penalty = float(value) if isinstance(value, int | float) else -1.0  # also true and false
    settings.must_be("word-penalty", 0, 0.0)
    settings.must_be("allow-unk", False)
    settings.must_be("output-sampling", False, [])
    settings.finish()
    if not 1 <= beam <= MAX_BEAM or not 0 <= penalty <= MAX_PENALTY:
        raise ModelError(f"{settings.path}: beam-size is {beam} and normalize {shortened(value)}, out of range")
    return {"beam": beam, "length_penalty": penalty}


def _decoding(files: Sequence[Path], model: Path, allow_keys: Collection[str]) -> tuple[SettingsFile, Path | None]:
    """Return the settings for decoding, and their file if there is one that names this model or its vocabularies."""
    for path in files:
        if path.suffix not in (".yml", ".yaml") or path.name.endswith(("vocab.yml", "progress.yml", ".npz.yml")):
            continue
        text = _text(path)
        if "vocabs:" not in text or ("models:" in text and model.name not in text):
            continue
        return SettingsFile(path, read_settings(text, path), allowed=allow_keys), path
    return SettingsFile(model.parent, {}), None


def _named(root: Path, named: list[Any], settings: SettingsFile) -> tuple[Path, Path]:
    """Return the vocabularies that the settings name; of their paths, only the names count."""
    paths = [root / Path(str(name)).name for name in named]
    if len(paths) != 2 or not all(path.is_file() and not path.is_symlink() for path in paths):
        raise ModelError(f"{settings.path}: vocabs must name two files in this folder, got {shortened(named)}")
    return paths[0], paths[1]


def _found(files: Sequence[Path], root: Path) -> tuple[Path, Path]:
    """Return the vocabularies by their names: one for both sides, or one for each."""
    vocabularies = [path for path in files if path.name.endswith("vocab.yml")]
    vocabularies = vocabularies or [path for path in files if path.suffix == ".spm"]
    if len(vocabularies) == 1:
        return vocabularies[0], vocabularies[0]
    for marks in (("source", "target"), ("src", "trg"), ("src", "tgt")):
        sides = [[path for path in vocabularies if mark in path.name] for mark in marks]
        if all(len(side) == 1 for side in sides):
            return sides[0][0], sides[1][0]
    names = ", ".join(path.name for path in vocabularies) or "none"
    raise ModelError(f"{root}: the vocabularies of the model are unclear ({names}): list them in a decoder.yml")


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_file() and not path.is_symlink())


def _is_model(path: Path) -> bool:
    if not is_marian_file(path):
        return False
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return True
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{SETTINGS}.npy" in archive.namelist()
    except DAMAGE:
        return False


def _bytes(path: Path) -> bytes:
    if path.is_symlink() or path.stat().st_size > MAX_TEXT_BYTES:
        raise ModelError(f"{path}: not a regular file, or larger than {MAX_TEXT_BYTES} bytes")
    return path.read_bytes()


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: is no text in UTF-8") from error
