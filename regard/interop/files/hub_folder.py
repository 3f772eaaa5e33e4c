"""A folder in the format of Hugging Face: config.json, generation_config.json, safetensors files and tokenizer.json.

Such a folder may come from anyone. Nothing in it runs; names stay inside the folder, and sizes are checked before
memory is allocated.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from regard.errors import ModelError
from regard.interop.files.settings_file import SettingsFile
from regard.interop.files.torch_file import TorchFile
from regard.interop.weight_table import Shapes
from regard.machine.lazy_torch import torch
from regard.models.folder.config_file import read_json, shortened
from regard.system.files import fingerprint

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
# A file of all weights, or an index of several files; safetensors first.
SINGLE = ("model.safetensors", "pytorch_model.bin")
INDEX_ENDING = ".index.json"
MAX_SHARDS = 1024
MAX_WEIGHTS = 2**17
LICENSES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "NOTICE")
MAX_LICENSE_BYTES = 64 * 2**10


class HubFolder:
    """The files of the folder, found and bounded; weights are read one at a time."""

    def __init__(self, folder: Path, *, allowed_keys: Collection[str] = ()) -> None:
        self.root, self.allowed_keys = folder.resolve(), allowed_keys
        if not self.root.is_dir():
            raise ModelError(f"{folder}: no such folder")
        self.read_files: list[Path] = []
        self.shapes: Shapes = {}
        self.dtypes: dict[str, str] = {}
        self._places: dict[str, tuple[Path, str]] = {}  # the file of each weight, and its name there
        self._opened: dict[Path, Any] = {}

    def path(self, name: str, *, folder: str = "") -> Path | None:
        """Return the file of that name, in this folder or in a folder inside it, or None if there is none.

        A link is followed only into the cache of Hugging Face, which keeps the files of a folder in `../../blobs`.
        """
        for part in filter(None, (folder, name)):
            if Path(part).name != part:
                raise ModelError(f"{self.root}: {shortened(repr(part))} is not the name of a file in this folder")
        path = self.root / folder / name
        if not path.exists() and not path.is_symlink():
            return None
        target = path.resolve()
        inside = target.parent == self.root / folder or target.parent == self.root.parent.parent / "blobs"
        if not inside or not target.is_file():
            raise ModelError(f"{path}: not a regular file of this folder, or a link that leaves it")
        self.read_files.append(path)
        return path

    def settings(self, name: str, *, required: bool = True, folder: str = "") -> SettingsFile:
        """Return the settings in a JSON file; without the file they are empty, unless it is required."""
        path = self.path(name, folder=folder)
        if path is None and required:
            raise ModelError(
                f"{self.root / folder}: there is no {name}, so this is not the folder of a Hugging Face model"
            )
        content = {} if path is None else read_json(path.resolve())
        return SettingsFile(self.root / folder / name, content, allowed=self.allowed_keys)

    def open_weights(self) -> None:
        """Read the names, types and shapes of all weights."""
        names = self._shard_names()
        shapes: dict[str, tuple[int, ...]] = {}
        for name in names:
            path = self.path(name)
            if path is None:
                raise ModelError(f"{self.root}: the file {shortened(repr(name))} of the index is missing")
            self._opened[path] = self._open(path, shapes)
        self.shapes = shapes
        self._check_index()

    def _open(self, path: Path, shapes: dict[str, tuple[int, ...]]) -> Any:
        """Open a file of weights, and add their names, types and shapes."""
        if path.suffix == ".bin":
            file: Any = TorchFile(path)
            for weight in file.keys():  # noqa: SIM118  # not a dict
                self._add(path, weight, file.dtype(weight), file.shape(weight), shapes)
            return file
        try:
            file = safe_open(path, framework="pt", device="cpu")
            for weight in file.keys():  # noqa: SIM118  # not a dict
                part = file.get_slice(weight)
                self._add(path, weight, part.get_dtype(), tuple(part.get_shape()), shapes)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: cannot be read as safetensors: {shortened(error)}") from error
        return file

    def get(self, name: str) -> torch.Tensor:
        """Return a weight, in the type in which it is stored."""
        path, stored_name = self._places[name]
        try:
            weight: torch.Tensor = self._opened[path].get_tensor(stored_name)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: {shortened(repr(name))} cannot be read: {shortened(error)}") from error
        return weight

    def rename(self, prefix: str) -> None:
        """Remove a prefix from the names of the weights that have it: files carry it or not.

        Old files call the weight and the bias of a normalization gamma and beta.
        """
        names = {name: _new_name(name.removeprefix(prefix)) for name in self.shapes}
        for name, new in names.items():
            if new != name and new in self.shapes:
                raise ModelError(f"{self.root}: {shortened(repr(name))} is there with and without {prefix!r}")
        self.shapes = {names[name]: shape for name, shape in self.shapes.items()}
        self.dtypes = {names[name]: dtype for name, dtype in self.dtypes.items()}
        self._places = {names[name]: place for name, place in self._places.items()}

    @property
    def storage(self) -> str:
        """The storage that keeps every number: that of the weights, or float32 if they differ."""
        dtypes = {*self.dtypes.values()}
        return DTYPES[dtypes.pop()] if len(dtypes) == 1 else "float32"

    def license_text(self) -> str:
        """Return the licence that lies in the folder, or an empty text."""
        for name in LICENSES:
            path = self.path(name)
            if path is not None and path.stat().st_size <= MAX_LICENSE_BYTES:
                return path.read_bytes().decode(errors="replace")
        return ""

    def fingerprints(self) -> dict[str, dict[str, Any]]:
        """Return size and sha256 of each file that was read."""
        return {path.relative_to(self.root).as_posix(): fingerprint(path) for path in sorted({*self.read_files})}

    def _shard_names(self) -> list[str]:
        for single in SINGLE:
            if self.path(single) is not None:
                return [single]
            self.index_name = single + INDEX_ENDING
            path = self.path(self.index_name)
            if path is not None:
                return self._indexed_names(path, Path(single).suffix)
        raise ModelError(f"{self.root}: there is no file of weights: {' or '.join(SINGLE)}, or an index of several")

    def _indexed_names(self, path: Path, ending: str) -> list[str]:
        self.index = read_json(path.resolve()).get("weight_map")
        if not isinstance(self.index, dict) or not self.index or len(self.index) > MAX_WEIGHTS:
            raise ModelError(f"{path}: weight_map must name the file of each weight")
        names = sorted({name if isinstance(name, str) else "" for name in self.index.values()})
        if len(names) > MAX_SHARDS or not all(name.endswith(ending) for name in names):
            raise ModelError(f"{path}: weight_map must name {ending} files, at most {MAX_SHARDS}")
        return names

    def _check_index(self) -> None:
        index = getattr(self, "index", None)
        if index is None:
            return
        stored = {name: path.name for name, (path, _) in self._places.items()}
        if wrong := sorted(name for name in index.keys() | stored.keys() if index.get(name) != stored.get(name)):
            path = self.root / self.index_name
            raise ModelError(f"{path}: the weight {shortened(repr(wrong[0]))} is not in the file it names")

    def _add(self, path: Path, name: str, dtype: str, shape: tuple[int, ...], shapes: dict[str, Any]) -> None:
        if name in shapes:
            raise ModelError(f"{path}: the weight {shortened(repr(name))} is in two files")
        if len(shapes) >= MAX_WEIGHTS:
            raise ModelError(f"{path}: more than {MAX_WEIGHTS} weights")
        shapes[name], self.dtypes[name], self._places[name] = shape, dtype, (path, name)


def _new_name(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
