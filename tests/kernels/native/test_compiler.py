"""The cache of compiled C: a library is loaded only if it belongs to the user and nobody else can write to it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from regard.kernels.native.compiler import compile_to, load_library

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "answer.c"
    source.write_text("int answer(void) { return 42; }")
    return source


def planted(source: Path) -> bytes:
    """A library with the same functions, but of someone else."""
    other = source.with_name("other.c")
    other.write_text("int answer(void) { return 666; }")
    compile_to(other.with_suffix(".so"), other, "cc", ("-shared", "-fPIC"))
    return other.with_suffix(".so").read_bytes()


def test_it_is_compiled_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = load_library(source)
    assert library.answer() == 42
    monkeypatch.setattr("regard.kernels.native.compiler.compile_to", None)  # it would fail
    assert load_library(source).answer() == 42


@pytest.mark.parametrize(
    "how", ["others may write to the folder", "others may write to the file", "the file is a link", "another owner"]
)
def test_a_planted_library_is_not_loaded(how: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The name is predictable, so whoever can write to the cache folder could put code of their own there."""
    assert load_library(source).answer() == 42
    (compiled,) = (tmp_path / "cache" / "regard").iterdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other cache"))  # a process loads each path only once
    content, library = planted(source), tmp_path / "other cache" / "regard" / compiled.name
    library.parent.mkdir(mode=0o700, parents=True)
    if how == "the file is a link":
        library.symlink_to(tmp_path / "other.so")
    else:
        library.write_bytes(content)
        library.chmod(0o700)
    if how == "others may write to the folder":
        library.parent.chmod(0o777)
    elif how == "others may write to the file":
        library.chmod(0o777)
    elif how == "another owner":
        owner = library.stat().st_uid
        monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert load_library(source).answer() == 42
    assert (tmp_path / "other.so").read_bytes() == content
    if "file" in how:
        assert not library.is_symlink() and library.read_bytes() != content  # replaced
    else:  # nothing in such a folder is used or replaced
        assert list(library.parent.iterdir()) == [library] and library.read_bytes() == content


def test_a_source_that_does_not_compile_is_reported(source: Path) -> None:
    source.write_text("int answer(void) { return undefined_name; }")
    with pytest.warns(RuntimeWarning, match=r"cannot compile answer\.c.*slower.*undefined_name"):
        assert load_library(source) is None
