"""What a recipe says of its files is done: lines that cannot be read, and files of every kind by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from regard.errors import DataError
from regard.training.recipe.from_files import recipe_for_files
from regard.training.recipe.schema import DataRecipe, Recipe

GOOD, BAD = b"un deux\ntrois\nquatre\n", b"un deux\ncaf\xe9\nquatre\n"


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize("form", ["source", "pairs", "text"])
def test_the_policy_for_faults(tmp_path: Path, form: str, validation: bool) -> None:
    """In training and validation files of each form: stop by default, with "skip" left out and counted."""
    (good := tmp_path / "good.txt").write_bytes(GOOD)
    (bad := tmp_path / "bad.txt").write_bytes(BAD)
    (other := tmp_path / "other.txt").write_bytes(GOOD)
    for path in (good, bad):
        path.with_suffix(".tsv").write_bytes(path.read_bytes().replace(b"\n", b"\tx\n"))
    files = [(good, bad), (bad, good)][not validation]
    keys: dict[str, tuple[str, ...]] = {}
    for prefix, path in zip(("", "validation_"), files, strict=True):
        if form == "source":
            keys |= {f"{prefix}source": (str(path),), f"{prefix}target": (str(other),)}
        else:
            keys[prefix + form] = (str(path.with_suffix(".tsv") if form == "pairs" else path),)
    model = {"kind": "transformer-lm"} if form == "text" else {}

    def read(faults: str) -> object:
        recipe = Recipe(name="x", data=DataRecipe(**keys, faults=faults), model=model)  # type: ignore[arg-type]
        return recipe.task.read(recipe)

    with pytest.raises(DataError, match=r"bad\.\w+:2: byte 0xe9"):
        read("stop")
    corpora = read("skip")
    part = corpora.validation if validation else corpora.train  # type: ignore[attr-defined]
    (place,) = part.report.findings["not UTF-8, left out"].locations
    assert place.endswith(("bad.txt:2", "bad.tsv:2")) and "caf" not in "".join(part.source)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Told before anything is read, with the setting that names it and where shipped recipes' data comes from."""
    (there := tmp_path / "train.fr").write_bytes(GOOD)
    files = {"source": str(there), "target": str(there) + "x"}
    missing = {"validation_source": str(tmp_path / "no" / "val.fr"), "validation_target": str(there)}
    message = (
        r"train\.frx: no such file; did you mean .*train\.fr\? \(data\.target names it\)"
        r".*docs/training/data\.md.*--set data\.t"
    )
    recipe = Recipe(name="x", data=DataRecipe(**files, **missing))
    with pytest.raises(DataError, match=message):
        recipe.task.read(recipe)
    files["target"] = str(tmp_path / "train.en")
    (tmp_path / "train.en").write_bytes(GOOD)
    recipe = Recipe(name="x", data=DataRecipe(**files, **missing))
    with pytest.raises(DataError, match=r"no folder .*no \(data\.validation_source names it\)"):
        recipe.task.read(recipe)


def test_zst_files_by_their_names(tmp_path: Path) -> None:
    for name in ("a.fr.zst", "a.en.zst", "b.fr-en.tsv.zst", "text.txt.zst"):
        (tmp_path / name).write_bytes(zstandard.ZstdCompressor().compress(b"a\tb\n"))
    data = recipe_for_files([tmp_path / "a.fr.zst", tmp_path / "a.en.zst"]).data
    assert (data.source_language, data.target_language) == ("fr", "en")
    assert data.source == (str(tmp_path / "a.fr.zst"),)
    recipe = recipe_for_files([tmp_path / "b.fr-en.tsv.zst"])
    assert recipe.data.form == "pairs" and recipe.name == "fr-en"
    recipe = recipe_for_files([tmp_path / "text.txt.zst"])
    assert recipe.data.form == "text" and recipe.name == "text"
