"""The committed page was built from the committed sources. The check needs no Node."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent.parent
WEB, STATIC = ROOT / "web", ROOT / "regard" / "look" / "page" / "static"
FIXED = ("build.mjs", "index.html", "favicon.svg", "package.json", "package-lock.json", "tsconfig.json")
SHARED = ("regard/look/pictures/drawing/colours.json", "regard/look/page/first_texts.json")


def hash_of_sources(web: Path) -> str:
    """Compute the hash that build.mjs writes into build.json: of a list of files in the format of sha256sum."""
    files = {name: web / name for name in FIXED}
    files |= {path.relative_to(web).as_posix(): path for path in (web / "src").rglob("*") if path.is_file()}
    files |= {f"../{name}": ROOT / name for name in SHARED}
    lines = [f"{sha256(files[name].read_bytes()).hexdigest()}  {name}\n" for name in sorted(files)]
    return sha256("".join(lines).encode()).hexdigest()


def test_the_page_is_built_from_its_sources() -> None:
    """Whoever changes web/ runs `make page` and commits what it writes."""
    built = json.loads((STATIC / "build.json").read_text("utf-8"))
    assert built["sources"] == hash_of_sources(WEB), "web/ has changed since the page was built: run `make page`"


def test_a_changed_source_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in FIXED:
        (tmp_path / name).write_bytes((WEB / name).read_bytes())
    (tmp_path / "src" / "main.tsx").write_text("1")
    before = hash_of_sources(tmp_path)
    (tmp_path / "src" / "main.tsx").write_text("2")
    assert hash_of_sources(tmp_path) != before


@pytest.mark.parametrize("name", ["app.js", "app.css", "engine.js", "index.html", "favicon.svg"])
def test_what_was_built_is_what_is_there(name: str) -> None:
    """build.json also names what came out, so that nobody edits it by hand."""
    built = json.loads((STATIC / "build.json").read_text("utf-8"))
    assert built["files"][name] == sha256((STATIC / name).read_bytes()).hexdigest()


def test_the_page_asks_nobody_else() -> None:
    """No address of another machine stands in what a browser is given, names of XML formats excepted."""
    for name in ("index.html", "app.js", "app.css"):
        text = (STATIC / name).read_text("utf-8").replace("http://www.w3.org/", "")
        assert "http://" not in text and "https://" not in text and "@import" not in text, name


def test_versions_are_exact() -> None:
    package = json.loads((WEB / "package.json").read_text("utf-8"))
    versions = [*package["dependencies"].values(), *package["devDependencies"].values()]
    assert all(version[0].isdigit() for version in versions)
    assert set(package["dependencies"]) == {"preact", "@preact/signals", "d3-shape", "d3-scale"}
