"""`check --fix`: each fault is repaired and listed, what is doubtful stays, and clean files stay byte for byte."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from regard.demo.corpus import demo_pairs, demo_text
from regard.errors import DataError, UsageError
from regard.text.check import report as kinds
from regard.text.check.changes import FixReport
from regard.text.check.checker import PairsFile, ParallelFiles, TextFile, check_data
from regard.text.check.fix import fix_data, fixed_shards
from regard.text.check.suspicious_characters import CONTROL, HTML, INVISIBLE, MOJIBAKE, TAB
from regard.text.files.lines import CRLF, MARK, NOT_UTF8
from regard.text.files.records import MALFORMED
from regard.text.files.shards import Shard

PAIRS = demo_pairs("train", 300)
FRENCH, ENGLISH = ([getattr(pair, side) for pair in PAIRS] for side in ("source", "target"))


def written(folder: Path, source: list[bytes], target: list[bytes], suffix: str = "") -> ParallelFiles:
    folder.mkdir(exist_ok=True, parents=True)
    compress = {".gz": gzip.compress, ".xz": lzma.compress}.get(suffix, bytes)
    paths = folder / f"a.fr{suffix}", folder / f"a.en{suffix}"
    for path, lines in zip(paths, (source, target), strict=True):
        path.write_bytes(compress(b"".join(line + b"\n" for line in lines)))
    return ParallelFiles(*paths)


def encoded(lines: list[str]) -> list[bytes]:
    return [line.encode() for line in lines]


def fix(shard: Shard, out: Path) -> tuple[FixReport, Shard, list[dict[str, str]]]:
    """Fix a shard; return the report, the repaired shard, and the listed changes."""
    report = fix_data([shard], [], out)
    with open(out / "changes.tsv", encoding="utf-8", newline="") as file:
        changes = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    (fixed,) = fixed_shards([shard], out)
    return report, fixed, changes


def lines_of(path: object) -> list[str]:
    return Path(str(path)).read_text(encoding="utf-8").split("\n")[:-1]


REPAIRS = {
    "latin-1": (NOT_UTF8, b"un caf\xe9 noir", "un café noir"),
    "windows": (NOT_UTF8, b"l\x92\xe9t\xe9\x85", "l’été…"),
    "both": (NOT_UTF8, "déjà ".encode() + b"l'\xe9t\xe9 au caf\xe9", "déjà l'été au café"),
    "CRLF": (CRLF, b"oui\r", "oui"),
    "entity": (HTML, b"A &amp; B &eacute;t&#233; &quot;x&quot;", 'A & B été "x"'),
    "entity twice": (HTML, b"A &amp;amp;amp; B", "A & B"),
    "mojibake": (MOJIBAKE, "un cafÃ© noir".encode(), "un café noir"),
    "mojibake twice": (MOJIBAKE, "un café".encode().decode("latin-1").encode().decode("latin-1").encode(), "un café"),
    "bell": (CONTROL, b"o\x07ui", "oui"),
    "NUL": (CONTROL, b"o\0ui", "oui"),
    "form feed": (CONTROL, b"oui\x0cnon", "oui non"),
    "control characters of Windows": (CONTROL, "l\u0092ami".encode(), "l’ami"),
    "tab": (TAB, b"oui\tnon \t ", "oui non"),
    "mark in the middle of the file": (MARK, "\ufeffoui".encode(), "oui"),
}


@pytest.mark.parametrize("name", REPAIRS)
def test_a_line_is_repaired_and_listed(tmp_path: Path, name: str) -> None:
    kind, broken, repaired = REPAIRS[name]
    source = encoded(FRENCH)
    source[41] = broken
    files = written(tmp_path / "in", source, encoded(ENGLISH))
    before = files.source.read_bytes()
    report, fixed, changes = fix(files, tmp_path / "out")
    assert lines_of(fixed.files[0]) == [*FRENCH[:41], repaired, *FRENCH[42:]]
    assert lines_of(fixed.files[1]) == ENGLISH and files.source.read_bytes() == before
    assert set(report.repaired) == {kind} and not report.dropped and report.rows == 300
    assert {(x["file"], x["line"], x["kind"]) for x in changes} == {(str(files.source), "42", kind)}
    assert changes[-1]["after"] == repaired and sum(report.repaired.values()) == len(changes)
    assert not check_data([fixed]).is_fixable and check_data([files]).is_fixable


def test_a_wide_file_and_a_byte_order_mark(tmp_path: Path) -> None:
    files = written(tmp_path, [], encoded(["\ufeff" + ENGLISH[0], *ENGLISH[1:]]))
    files.source.write_text("".join(f"{line}\r\n" for line in FRENCH), encoding="utf-16", newline="")
    report, fixed, changes = fix(files, tmp_path / "out")
    assert (lines_of(fixed.files[0]), lines_of(fixed.files[1])) == (FRENCH, ENGLISH)
    assert report.repaired == {"UTF-16 or UTF-32": 1, CRLF: 300, MARK: 1} and len(changes) == 302


DOUBTFUL = {
    "tag": (HTML, b"<b>oui</b>"),
    "unknown entity": ("", b"AT&T; &foo;"),
    "a capital and a space": (MOJIBAKE, "AMANHÃ\u00a0!".encode()),
    "invisible": (INVISIBLE, "o\u200bui".encode()),
    "Cyrillic bytes": (NOT_UTF8, "привет мир".encode("koi8-r")),
    "cut character": (NOT_UTF8, "été".encode()[:-1]),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_what_is_doubtful_is_left_and_reported(tmp_path: Path, name: str) -> None:
    kind, line = DOUBTFUL[name]
    source = encoded(FRENCH)
    source[41] = line
    files = written(tmp_path / "in", source, encoded([*ENGLISH[:41], "yes, yes", *ENGLISH[42:]]))
    report, fixed, changes = fix(files, tmp_path / "out")
    assert changes == [] and not report.repaired and "nothing to repair" in str(report)
    assert Path(str(fixed.files[0])).read_bytes() == files.source.read_bytes()
    assert [problem.name for problem in check_data([fixed]).problems] == ([kind] if kind else [])


def test_pairs_are_dropped_with_both_sides_listed(tmp_path: Path) -> None:
    source, target = encoded([*FRENCH, FRENCH[7], "x &amp; y", "x & y"]), encoded([*ENGLISH, ENGLISH[7], "z", "z"])
    source[10], target[20] = b"", b" \t "
    files = written(tmp_path / "in", source, target)
    report, fixed, changes = fix(files, tmp_path / "out")
    assert report.dropped == {kinds.EMPTY: 2, kinds.DUPLICATE: 2} and report.rows == 299
    assert [len(lines_of(path)) for path in fixed.files] == [299, 299]
    dropped = [(Path(x["file"]).name, x["line"], x["before"]) for x in changes if x["kind"] == "dropped: duplicates"]
    assert dropped[:2] == [("a.fr", "301", FRENCH[7]), ("a.en", "301", ENGLISH[7])]
    assert ("a.fr", "21", FRENCH[20]) in [(Path(x["file"]).name, x["line"], x["before"]) for x in changes]
    assert check_data([fixed]).problems == ()


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("lost", [(0,), (150,), (60, 200), (299,)])
def test_a_lost_line_costs_a_few_pairs_and_the_rest_is_aligned(
    tmp_path: Path, side: int, lost: tuple[int, ...]
) -> None:
    sides = [list(FRENCH), list(ENGLISH)]
    sides[side] = [line for i, line in enumerate(sides[side]) if i not in lost]
    files = written(tmp_path / "in", *map(encoded, sides))
    report, fixed, changes = fix(files, tmp_path / "out")
    pairs = list(zip(*map(lines_of, fixed.files), strict=True))
    assert set(pairs) <= set(zip(FRENCH, ENGLISH, strict=True)) and len(pairs) >= 300 - 15 * len(lost)
    listed = Counter(x["before"] for x in changes if x["kind"] == f"dropped: {kinds.UNEQUAL}")
    assert listed == Counter(sides[0] + sides[1]) - Counter(text for pair in pairs for text in pair)
    assert report.dropped == {kinds.UNEQUAL: listed.total()} and check_data([fixed]).problems == ()


def test_files_that_are_not_parallel_are_left_alone(tmp_path: Path) -> None:
    others = [pair.target for pair in demo_pairs("test", 200)]
    files = written(tmp_path / "in", [b"A &amp; B", *encoded(FRENCH), b""], encoded(others))
    report, fixed, _ = fix(files, tmp_path / "out")
    assert lines_of(fixed.files[0]) == ["A & B", *FRENCH, ""] and lines_of(fixed.files[1]) == others
    assert report.repaired == {HTML: 1} and not report.dropped
    remaining = check_data([fixed])
    assert remaining.stops and not remaining.is_fixable


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_compressed_files(tmp_path: Path, suffix: str) -> None:
    source = encoded(FRENCH)
    source[3] = b"un caf\xe9 noir"
    if suffix == ".zst":
        zstandard = pytest.importorskip("zstandard")
        files = ParallelFiles(tmp_path / "a.fr.zst", written(tmp_path, [], encoded(ENGLISH)).target)
        files.source.write_bytes(zstandard.compress(b"".join(line + b"\n" for line in source)))
    else:
        files = written(tmp_path, source, encoded(ENGLISH), suffix)
    _, fixed, _ = fix(files, tmp_path / "out")
    assert Path(str(fixed.files[0])).name == files.source.name and check_data([fixed]).problems == ()
    assert Path(str(fixed.files[1])).read_bytes() == files.target.read_bytes()  # unchanged, so a copy


def test_tsv(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    rows = ["id\tfr\ten", "1\tun &amp; deux\tone", "2\tno target", "3\tx\ty", "4\tx\ty", "", "5\tz\t"]
    path.write_text("\n".join(rows))  # without a line break at the end
    report, fixed, _ = fix(PairsFile(path), tmp_path / "out")
    assert Path(str(fixed.files[0])).read_text() == "id\tfr\ten\n1\tun & deux\tone\n3\tx\ty"
    assert report.dropped == {MALFORMED: 1, kinds.DUPLICATE: 1, kinds.EMPTY: 2} and report.rows == 2


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbfde;en\r\n"zwei\nZeilen; hier";two\r\ncaf\xe9;"A &quot;B&quot; ; C"\r\n'
        b'x;y\r\nx;y\r\nunver\xc3\xa4ndert;"so"\r\n'
    )
    report, fixed, _ = fix(PairsFile(path), tmp_path / "out")
    assert Path(str(fixed.files[0])).read_bytes().decode() == (
        'de;en\r\n"zwei Zeilen; hier";two\r\ncafé;"A ""B"" ; C"\r\nx;y\r\nunverändert;"so"\r\n'
    )
    assert report.repaired == {MARK: 1, CONTROL: 1, NOT_UTF8: 1, HTML: 1} and report.dropped == {kinds.DUPLICATE: 1}


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    entries = [
        {"id": 1.0, "translation": {"fr": "un\tcafÃ©", "en": "one"}},
        {"id": 2, "translation": {"fr": "deux", "en": ""}},
        {"id": 3, "translation": {"fr": "trois", "en": "three\0"}},
        {"id": 4, "translation": {"fr": "quatre\ud800", "en": "four"}},  # half a character: left
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries) + '{"id": 5}\n\n')
    report, fixed, _ = fix(PairsFile(path), tmp_path / "out")
    rows = [json.loads(line) for line in lines_of(fixed.files[0])]
    assert rows[0] == {"id": 1.0, "translation": {"fr": "un café", "en": "one"}}
    assert rows[1:] == [{"id": 3, "translation": {"fr": "trois", "en": "three"}}, entries[3]]
    assert report.dropped == {kinds.EMPTY: 2, MALFORMED: 1}
    with pytest.raises(DataError, match=r"6 of 6 rows cannot be read; .*a\.jsonl:1: no key 'de'|5 of 6 rows"):
        fix_data([PairsFile(path, ("de", "en"))], [], tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_text_and_documents_for_a_language_model(tmp_path: Path) -> None:
    text = demo_text(2000) + "\n\nA\ttab.\nA\ttab.\n"
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode() + b"caf\xe9 &amp; bar\r\n")
    report, fixed, _ = fix(TextFile(path), tmp_path / "out")
    assert Path(str(fixed.files[0])).read_text() == text + "café & bar\n"  # blank and repeated lines and tabs stay
    assert report.repaired == {NOT_UTF8: 1, CRLF: 1, HTML: 1} and not report.dropped
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": x}) + "\n" for x in ("a\n\tb", "x &lt; y", "x < y", " ")))
    report, fixed, _ = fix(TextFile(path), tmp_path / "documents")
    assert [json.loads(line)["text"] for line in lines_of(fixed.files[0])] == ["a\n\tb", "x < y"]


def test_shards_are_one_corpus_and_validation_another(tmp_path: Path) -> None:
    for name in "xyz":
        (tmp_path / f"{name}.tsv").write_text("a\tb\n" + f"{name}\tb\n")
    shards = [PairsFile(tmp_path / f"{name}.tsv") for name in "xyz"]
    report = fix_data(shards[:2], shards[2:], tmp_path / "out")
    texts = [(tmp_path / "out" / f"{name}.tsv").read_text() for name in "xyz"]
    assert texts == ["a\tb\nx\tb\n", "y\tb\n", "a\tb\nz\tb\n"] and report.dropped == {kinds.DUPLICATE: 1}


def test_what_is_refused(tmp_path: Path) -> None:
    files = written(tmp_path / "in", [b"a"], [b"b"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "empty").mkdir()
    for out, message in (("full", "not empty"), ("in", "not empty"), ("in/a.fr", "is a file")):
        with pytest.raises(UsageError, match=message):
            fix_data([files], [], tmp_path / out)
    other = written(tmp_path / "more", [b"a"], [b"b"])
    with pytest.raises(UsageError, match=r"several files are named a\.fr"):
        fix_data([files, other], [], tmp_path / "new")
    with pytest.raises(UsageError, match="cannot write parquet"):
        fix_data([PairsFile(tmp_path / "a.parquet")], [], tmp_path / "new")
    with pytest.raises(UsageError, match="writes a file of this name"):
        fix_data([TextFile(tmp_path / "changes.tsv")], [], tmp_path / "new")
    damaged = tmp_path / "a.txt.gz"
    damaged.write_bytes(gzip.compress(b"line\n" * 1000)[:-9])
    with pytest.raises(DataError, match=r"a\.txt\.gz: damaged after line"):
        fix_data([TextFile(damaged)], [], tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt.gz", "empty", "full", "in", "more"]
    fix_data([files], [], tmp_path / "empty")
    assert (tmp_path / "empty" / "a.fr").read_bytes() == b"a\n"


CLEAN = st.lists(
    st.tuples(st.sampled_from(FRENCH[:20]), st.sampled_from(ENGLISH[:20])),
    min_size=1,
    max_size=8,
    unique_by=lambda pair: pair,
)
PARTS = [*"aé&;<>ÃÂ©«» \t\r\x07\x92\ufeff\u200b", "&amp;", "&#9;", "&eacute;", "Ã©", "l'été"]
MESS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
BYTES = st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b" "))
LINES = st.sampled_from(encoded(FRENCH[:20])) | MESS.map(str.encode) | MESS.map(lambda x: x.encode("cp1252", "replace"))


@settings(max_examples=40, deadline=None)
@given(pairs=CLEAN, last=st.sampled_from([b"\n", b""]), form=st.sampled_from(["parallel", "tsv", "csv", "jsonl", "gz"]))
def test_a_clean_corpus_stays_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], last: bytes, form: str
) -> None:
    folder = tmp_path_factory.mktemp("clean")
    shard: Shard
    if form in ("parallel", "gz"):
        shard = written(folder, *(encoded([pair[i] for pair in pairs]) for i in (0, 1)), ".gz" * (form == "gz"))
    else:
        path = folder / f"a.{form}"
        rows = {
            "tsv": ["\t".join(pair) for pair in pairs],
            "csv": [",".join(f'"{text}"' for text in pair) for pair in pairs],
            "jsonl": [json.dumps({"target": y, "source": x}) for x, y in pairs],
        }[form]
        path.write_bytes("\n".join(rows).encode() + last)
        shard = PairsFile(path)
    report, fixed, changes = fix(shard, folder / "out")
    assert changes == [] and not report.repaired and not report.dropped
    for old, new in zip(shard.files, fixed.files, strict=True):
        assert Path(str(new)).read_bytes() == Path(str(old)).read_bytes()


@settings(max_examples=40, deadline=None)
@given(pairs=st.lists(st.tuples(LINES | BYTES, LINES), min_size=1, max_size=12), extra=st.lists(LINES, max_size=2))
def test_fixing_twice_changes_nothing_more(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[bytes, bytes]], extra: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("messy")
    source = encoded(FRENCH[:60]) + [pair[0] for pair in pairs] + extra
    files = written(folder, source, encoded(ENGLISH[:60]) + [pair[1] for pair in pairs])
    _, fixed, _ = fix(files, folder / "once")
    again, twice, changes = fix(fixed, folder / "twice")
    assert changes == [] and not again.repaired and not again.dropped
    for old, new in zip(fixed.files, twice.files, strict=True):
        assert Path(str(new)).read_bytes() == Path(str(old)).read_bytes()
    assert not check_data([fixed]).is_fixable
