"""The explorer comes with the wheel, whole, and runs where no Node is. All tests of the page run on that."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import zipfile
from pathlib import Path

from conftest import Watched
from page import ROOT, Explorer

STATIC = ROOT / "regard/look/page/static"
MOST_BYTES = 150_000  # of the page's files, packed


def test_the_wheel_holds_the_page_as_it_was_built(programs: Path) -> None:
    (wheel,) = programs.parents[1].glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        held = {name: content.read(name) for name in content.namelist() if name.startswith("regard/look/page/static/")}
        assert not [name for name in content.namelist() if name.endswith((".ts", ".tsx")) or "node_modules" in name]
    there = {f"regard/look/page/static/{path.relative_to(STATIC).as_posix()}": path for path in STATIC.rglob("*")}
    assert held == {name: path.read_bytes() for name, path in there.items() if path.is_file()}
    assert {"index.html", "app.js", "app.css"} <= {Path(name).name for name in held}


def test_the_page_is_small() -> None:
    files = [STATIC / name for name in ("index.html", "app.js", "app.css")]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) < MOST_BYTES


def test_the_server_is_the_installed_one_and_has_no_node(programs: Path, explorer: Explorer) -> None:
    assert shutil.which("node", path=str(programs)) is None
    ask = [programs / "python", "-c", "import regard; print(regard.__file__)"]
    found = Path(subprocess.run(ask, check=True, capture_output=True, text=True, cwd=programs).stdout.strip())
    assert found.is_relative_to(programs.parent) and not found.is_relative_to(ROOT)
    environment = Path(f"/proc/{explorer.process.pid}/environ")
    if environment.exists():  # on Linux
        assert f"PATH={programs}" in environment.read_text().split("\0")


def test_the_installed_page_translates(wide: Watched, explorer: Explorer) -> None:
    wide.page.goto(explorer.address)
    wide.page.get_by_text("Mary bought a red car").first.wait_for()
    assert (wide.blocked, wide.errors) == ([], [])
