"""Folders of other libraries are recognized and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.errors import ModelError
from regard.interop.importing import KNOWN
from regard.models.folder.foreign_folder import IMPORTED

WHISPER = {"architectures": ["WhisperModel"], "model_type": "whisper"}


@pytest.mark.parametrize(
    ("config", "name"),
    [(WHISPER, "WhisperModel"), ({"architectures": None, "model_type": "vit"}, "vit")],
)
def test_a_hugging_face_folder_is_named(config: dict[str, object], name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    message = f"this is a Hugging Face folder of a {name}, which regard cannot import yet.*regard.record"
    with pytest.raises(ModelError, match=message):
        regard.load(tmp_path)


def test_a_folder_that_can_be_imported(tmp_path: Path) -> None:
    assert {*IMPORTED} == {*KNOWN}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}), encoding="utf-8")
    with pytest.raises(ModelError, match="of a gpt2, which can be imported: regard import"):
        regard.load(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [["translate", "-t", "Bonjour.", "-m"], ["generate", "-m"], ["info"], ["explore", "--no-browser"], ["bench", "-m"]],
)
def test_the_commands_name_it(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(WHISPER), encoding="utf-8")
    result = CliRunner().invoke(app, [*arguments, str(tmp_path)])
    assert result.exit_code == 4
    assert "this is a Hugging Face folder of a WhisperModel" in result.stderr


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b'{"model_type": "\\u001b[31m"}', b'{"architectures": [7]}'])
def test_other_folders_are_not(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"no manifest.json, so this is not a model folder of regard"):
        regard.load(tmp_path)
