"""Read a package of Argos Translate, which contains a model folder of CTranslate2 and a sentencepiece model."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Collection
from pathlib import Path

from regard.errors import ModelError
from regard.interop.ctranslate2_import import CTranslate2Model, read_folder
from regard.interop.files.settings_file import SettingsFile
from regard.interop.files.torch_file import DAMAGE
from regard.interop.files.weight_source import WeightSource
from regard.models.folder.config_file import read_json, shortened

MAX_PACKAGE_BYTES, MAX_PACKAGE_FILES = 2**33, 256
ARGOS_SEARCH = {"beam": 4, "length_penalty": 0.2}  # with which Argos Translate searches


def is_package(path: Path) -> bool:
    """Whether a file is a package of Argos Translate."""
    try:
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/metadata.json") and name.count("/") == 1 for name in archive.namelist())
    except DAMAGE:
        return False


def read_package(path: Path, allow_keys: Collection[str] = ()) -> CTranslate2Model:
    """Unpack a package into a temporary folder, which lives as long as the result, and read it."""
    unpacked = tempfile.TemporaryDirectory(prefix="regard-argos-")
    root = _unpack(path, Path(unpacked.name))
    settings = SettingsFile(f"{path}: metadata.json", read_json(root / "metadata.json"), allowed=allow_keys)
    languages = {"source": settings.take("from_code", str), "target": settings.take("to_code", str)}
    settings.must_be("type", "translate")
    settings.must_be("target_prefix", "")
    settings.ignore("package_version", "argos_version", "from_name", "to_name", "dependencies", "links", "code", "name")
    settings.ignore("package_path", "from_codes", "to_codes", "languages", "source_languages", "target_languages")
    settings.finish()
    if not (root / "sentencepiece.model").is_file():
        raise ModelError(f"{path}: it has no sentencepiece.model; regard imports no other tokenizers of such packages")
    model = read_folder(root / "model", allow_keys, pieces=root / "sentencepiece.model", keep=unpacked)
    info = {**model.info, "languages": languages, "search": ARGOS_SEARCH}
    weights = model.weights
    source = WeightSource(path, weights.shapes, weights.get, weights.dtypes)
    return model._replace(info=info, weights=source)


def _unpack(path: Path, place: Path) -> Path:
    """Unpack the files of a package, none outside of the folder, and return its only folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if not entry.filename.endswith("/")]
            size = sum(entry.file_size for entry in entries)
            if len(entries) > MAX_PACKAGE_FILES or size > MAX_PACKAGE_BYTES:
                raise ModelError(f"{path}: {len(entries)} files with {size} bytes are too much for a package")
            roots = {entry.filename.split("/")[0] for entry in entries}
            for entry in entries:
                parts = entry.filename.split("/")
                wanted = len(parts) == 2 or (len(parts) == 3 and parts[1] == "model")
                if any(part in ("", ".", "..") or "\\" in part or ":" in part for part in parts) or len(roots) != 1:
                    raise ModelError(f"{path}: {shortened(repr(entry.filename))} is no file of a package")
                if wanted:  # not the models that split texts into sentences
                    target = place.joinpath(*parts)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(entry) as content, open(target, "wb") as copy:
                        while block := content.read(2**20):
                            copy.write(block)
    except DAMAGE as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: cannot be unpacked: {shortened(error)}") from error
    return place / roots.pop()
