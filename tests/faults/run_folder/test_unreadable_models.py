"""Model folders and files without read permission: a clear error with exit code 4, whichever it is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regard.api.model_names import find_model
from regard.errors import ModelError
from regard.models.folder import read_config

NOBODY = 65534


@pytest.fixture
def model() -> Iterator[Path]:
    """A model in a folder that every user may enter: pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        folder = Path(name) / "above" / "model"
        shutil.copytree(find_model("fr-en"), folder)
        for path in folder.iterdir():
            path.chmod(0o644)
        yield folder
        folder.parent.chmod(0o755)
        folder.chmod(0o755)


@contextmanager
def as_nobody() -> Iterator[None]:
    """As another user where we are root, who may read everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("name", [".", "..", "manifest.json", "config.json", "model.safetensors"])
def test_without_read_permission(name: str, model: Path) -> None:
    read_config(model)
    (model / name).chmod(0)
    with as_nobody(), pytest.raises(ModelError, match="cannot be read: Permission denied") as error:
        read_config(find_model(model))
    assert error.value.exit_code == 4
