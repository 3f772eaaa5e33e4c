"""Lines of text files: packed or not, and each fault with its place and what to do."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.text.files.lines import no_findings, read_lines

# Characters at which str.splitlines cuts and other tools do not.
INNER_BREAKS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
line_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\ufeff"), max_size=20)


def written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.xz"])
def test_plain_and_packed(tmp_path: Path, name: str) -> None:
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
    path = written(tmp_path, name, pack("été\n\nfin".encode()))
    assert list(read_lines(path)) == ["été", "", "fin"]
    assert list(read_lines(str(path))) == ["été", "", "fin"]


def test_a_gz_of_several_parts(tmp_path: Path) -> None:
    path = written(tmp_path, "a.gz", gzip.compress(b"one\ntw") + gzip.compress(b"o\n"))
    assert list(read_lines(path)) == ["one", "two"]


@given(lines=st.lists(line_texts, max_size=5), end=st.sampled_from(["\n", "\r\n"]), mark=st.booleans())
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, mark: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes(b"\xef\xbb\xbf" * mark + "".join(line + end for line in lines).encode())
    findings = no_findings()
    got = list(read_lines(path, findings))
    assert got == lines or (mark and not lines and got == [""])  # a file of nothing but the mark
    assert findings["CRLF line ends"].count == (len(lines) if end == "\r\n" else 0)
    assert findings["byte order marks"].count == mark


def test_only_newline_ends_a_line(tmp_path: Path) -> None:
    text = "a" + "b".join(INNER_BREAKS) + "c\rd"
    assert len(text.splitlines()) == len(INNER_BREAKS) + 2
    assert list(read_lines(written(tmp_path, "a", f"{text}\n{text}".encode()))) == [text, text]


def test_the_first_places_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, "a", b"x\n" + b"y\r\n" * 9)
    findings = no_findings()
    list(read_lines(path, findings))
    assert findings["CRLF line ends"].count == 9
    assert findings["CRLF line ends"].locations == [f"{path}:{line}" for line in (2, 3, 4, 5, 6)]


def test_a_very_long_line(tmp_path: Path) -> None:
    assert [len(line) for line in read_lines(written(tmp_path, "a", b"x" * 10**6 + b"\ny\n"))] == [10**6, 1]


LINE = gzip.compress(b"line\n", mtime=0)  # without the time, the names of the tests stay the same


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("latin.txt", "ok\nun caf\xe9 noir\n".encode("latin1"), r"latin\.txt:2: byte 0xe9 at byte 7 .*iconv -f latin1"),
        ("koi8.txt", "привет мир\n".encode("koi8-r"), r"koi8\.txt:1: byte 0x.. at byte 1 .*iconv -f ENCODING -t utf-8"),
        ("cut.txt", "été".encode()[:-1], r"cut\.txt:1: byte 0xc3 at byte 4 .*unexpected end"),
        ("wide.txt", "hello\n".encode("utf-16"), r"wide\.txt:1: .*in UTF-16: .*iconv -f utf-16 -t utf-8"),
        ("wide.txt", b"\xfe\xff" + "hello".encode("utf-16-be"), r"in UTF-16"),
        ("nul.txt", b"ok\nab\0c\n", r"nul\.txt:2: a NUL byte at byte 3 "),
        ("packed.txt", gzip.compress(b"text", mtime=0), r"packed\.txt:1: not a text file; .* gzip .* end in \.gz"),
        ("packed.txt", lzma.compress(b"text"), r"an xz file: rename it to end in \.xz"),
        ("a.gz", gzip.compress(b"line\n" * 1000, mtime=0)[:-9], r"a\.gz: damaged or truncated after line \d+ .*again"),
        ("a.xz", lzma.compress(b"line\n" * 1000)[:-9], r"a\.xz: damaged or truncated after line \d+ .*again"),
        ("a.gz", b"plain text\n", r"a\.gz: damaged .*remove \.gz from its name if it is not compressed"),
        ("a.xz", b"plain text\n", r"a\.xz: damaged .*remove \.xz from its name if it is not compressed"),
        ("a.gz", LINE[:14] + b"\xff\xff" + LINE[16:], r"a\.gz: damaged"),
    ],
)  # fmt: skip
def test_faults_in_the_content(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(DataError, match=message):
        list(read_lines(path))


def test_a_wrong_path(tmp_path: Path) -> None:
    written(tmp_path, "train.fr", b"x\n")
    with pytest.raises(DataError, match=r"trian\.fr: no such file; did you mean .*train\.fr\?"):
        list(read_lines(tmp_path / "trian.fr"))
    for text in ("Le chat dort", "The cat sleeps.", "ouvert 24/7 le lundi"):
        with pytest.raises(DataError, match=r"no such file; if this is a text, pipe it: echo TEXT \| regard …$"):
            list(read_lines(tmp_path / text))
    with pytest.raises(DataError, match=r"my file\.txt: no such file$"):
        list(read_lines(tmp_path / "my file.txt"))
    with pytest.raises(DataError, match=r"zzz: no such file$"):
        list(read_lines(tmp_path / "zzz"))
    with pytest.raises(DataError, match=r"no such file, because there is no folder .*nowhere$"):
        list(read_lines(tmp_path / "nowhere/train.fr"))
    with pytest.raises(DataError, match="is a folder: give the files in it"):
        list(read_lines(tmp_path))
    (tmp_path / "f.gz").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        list(read_lines(tmp_path / "f.gz"))
    with pytest.raises(DataError, match="cannot be opened: Not a directory"):
        list(read_lines(tmp_path / "train.fr" / "x"))
