"""The search that the authors of an imported model recommend is the default of the commands, as of Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app

TEXT = "Jane visite l'Afrique en septembre."
DEMO = Path(__file__).parents[2] / "data" / "demo-fr-en"


@pytest.mark.parametrize(
    ("options", "search"),
    [
        ([], regard.Beam(2, length_penalty=0.0)),
        (["--alternatives", "3"], regard.Beam(3, length_penalty=0.0)),
        (["--beam", "4"], regard.Beam(4, length_penalty=0.0)),
        (["--length-penalty", "0.5"], regard.Beam(2, length_penalty=0.5)),
    ],
)
def test_options_replace_only_what_they_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], search: regard.Beam
) -> None:
    translator = regard.load(DEMO, device="cpu")
    translator.info["search"] = {"beam": 2, "length_penalty": 0.0}
    translator.save(tmp_path / "model")
    searches = []
    monkeypatch.setattr(
        "regard.cli.use.translate.translate_sentence", lambda *arguments: searches.append(arguments[2].search)
    )
    result = CliRunner().invoke(app, ["translate", "-m", str(tmp_path / "model"), "--text", TEXT, "--json", *options])
    assert result.exit_code == 0, result.stderr
    assert searches == [search]
