"""Packed files: .zst as an extra, with the same errors as .gz and .xz."""

from __future__ import annotations

import gzip
import lzma
import os
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from regard.errors import DataError, UsageError
from regard.text.files.compressed import content_name, open_decompressed
from regard.text.files.corpus import read_documents, read_pairs, read_parallel
from regard.text.files.lines import read_lines

PACK = zstandard.ZstdCompressor().compress
LINES = [f"line {i}, été" for i in range(20_000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def test_lines_of_a_zst_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    path.write_bytes(PACK(TEXT))
    assert list(read_lines(path)) == LINES
    path.write_bytes(PACK(TEXT[:50_001]) + PACK(b"") + PACK(TEXT[50_001:]))  # frames, as `zstd a b` and pzstd make them
    assert list(read_lines(path)) == LINES
    with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file, closefd=False) as writer:
        writer.write(TEXT)  # a frame that does not know its length
    assert list(read_lines(path)) == LINES
    path.write_bytes(b"")
    assert list(read_lines(path)) == []


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(1, len(PACK(TEXT)) - 1))
def test_a_zst_file_that_is_cut_off(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("zst") / "a.zst"
    path.write_bytes(PACK(TEXT)[:cut])
    with pytest.raises(DataError, match=r"a\.zst: damaged or truncated after line \d+ .*again"):
        list(read_lines(path))


@pytest.mark.parametrize("content", [b"plain text\n", PACK(b"text\n") + b"more", PACK(TEXT)[:30] + b"\xff" * 99])
def test_a_damaged_zst_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.zst"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.zst: damaged .*remove \.zst from its name if it is not compressed"):
        list(read_lines(path))


BOMBS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": PACK}


@pytest.mark.parametrize("suffix", BOMBS)
@pytest.mark.parametrize("unit", [b"aa\n", b"a"], ids=["many lines", "one line"])
def test_a_bomb(unit: bytes, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that would fill the memory is refused after a few bytes."""
    for name, limit in {"ALWAYS_ALLOWED_BYTES": 2**19, "MAX_LINE_BYTES": 2**18}.items():
        monkeypatch.setattr(f"regard.text.files.compressed.{name}", limit)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(BOMBS[suffix](unit * (2**21 // len(unit))))
    words = "more than 200 times its size.*decompress it first" if len(unit) > 1 else "a line has more than 0 MB"
    with pytest.raises(DataError, match=rf"a\.txt{suffix}: .*{words}"):
        read_documents(path)


def test_a_device_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.text.files.compressed.MAX_LINE_BYTES", 2**20)
    with pytest.raises(DataError, match="/dev/zero: a line has more than 1 MB, so this is not text"):
        read_documents("/dev/zero")


def test_a_pipe_is_read(tmp_path: Path) -> None:
    """As in `regard train <(zcat fr.gz) <(zcat en.gz)`."""
    read, write = os.pipe()
    os.write(write, b"un\ndeux\n")
    os.close(write)
    assert list(read_lines(f"/dev/fd/{read}")) == ["un", "deux"]
    os.close(read)


def test_a_zst_file_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(PACK(b"text\n"))
    with pytest.raises(
        DataError, match=r"a\.txt:1: not a text file; it looks like a zstd file: rename it to end in \.zst"
    ):
        list(read_lines(path))


def test_pairs_and_documents(tmp_path: Path) -> None:
    for name, text in {"a.fr": "un\ndeux\n", "a.en": "one\ntwo\n", "a.tsv": "un\tone\n"}.items():
        (tmp_path / f"{name}.zst").write_bytes(PACK(text.encode()))
    assert read_parallel(tmp_path / "a.fr.zst", tmp_path / "a.en.zst").target == ["one", "two"]
    assert read_pairs(tmp_path / "a.tsv.zst").target == ["one"]
    assert read_documents(tmp_path / "a.fr.zst").source == ["un\ndeux\n"]


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "a.zst").write_bytes(PACK(b"x"))
    with pytest.raises(UsageError, match=r"a\.zst: .*pip install 'regard\[zst\]'"):
        list(read_lines(tmp_path / "a.zst"))


def test_the_file_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a.zst").write_bytes(PACK(b"x"))
    with open_decompressed(tmp_path / "a.zst") as file:
        inner = file.raw._file  # type: ignore[attr-defined]
        assert file.read() == b"x" and not inner.closed
    assert inner.closed


def test_names() -> None:
    assert [content_name(Path(name)).name for name in ("a.tsv.gz", "a.tsv.ZST", "a.xz", "a.tsv")] == [
        "a.tsv", "a.tsv", "a", "a.tsv",
    ]  # fmt: skip
