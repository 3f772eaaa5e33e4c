"""Files to sentences: pairs and documents, what is dropped and counted, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from regard.errors import DataError, UsageError
from regard.text.files.corpus import make_corpus, read_documents, read_pairs, read_parallel


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def jsonl(path: Path, *entries: object) -> Path:
    return written(path, "".join(json.dumps(entry) + "\n" for entry in entries))


def test_parallel_files(tmp_path: Path) -> None:
    source = written(tmp_path / "a.fr", "un\n\ndeux\ntrois\n \nquatre")
    target = written(tmp_path / "a.en", "one\nx\ntwo\n\t\n\nfour")
    corpus = read_parallel(source, target)
    assert corpus.source == ["un", "deux", "quatre"]
    assert corpus.target == ["one", "two", "four"]
    assert [corpus.location(i) for i in range(len(corpus))] == [f"{source}:1", f"{source}:3", f"{source}:6"]
    report = corpus.report
    assert (report.read, report.kept) == (6, 3)
    assert report.files == (str(source), str(target))
    assert report.findings["empty, dropped"].count == 3
    assert report.findings["empty, dropped"].locations == [f"{source}:2", f"{source}:4", f"{source}:5"]
    assert "3 of 6 kept" in str(report)
    assert f"empty, dropped: 3, first at {source}:2" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["findings"]["empty, dropped"]["count"] == 3


def test_what_was_mended_is_counted_for_both_files(tmp_path: Path) -> None:
    source = written(tmp_path / "a.fr", "\ufeffun\r\ndeux\n")
    target = written(tmp_path / "a.en", "\ufeffone\ntwo\r\n")
    corpus = read_parallel(source, target)
    assert (corpus.source, corpus.target) == (["un", "deux"], ["one", "two"])
    assert corpus.report.findings["CRLF line ends"].locations == [f"{source}:1", f"{target}:2"]
    assert corpus.report.findings["byte order marks"].count == 2


def test_shards_go_together_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "1.fr.gz").write_bytes(gzip.compress(b"a\nb\n"))
    sources = [tmp_path / "1.fr.gz", written(tmp_path / "2.fr", "c\n\nd\n")]
    targets = [written(tmp_path / "1.en", "A\nB\n"), written(tmp_path / "2.en", "C\nx\nD\n")]
    corpus = read_parallel(sources, targets)
    assert (corpus.source, corpus.target) == ([*"abcd"], [*"ABCD"])
    assert [corpus.location(i) for i in (0, 1, 2, 3)] == [
        f"{sources[0]}:1",
        f"{sources[0]}:2",
        f"{sources[1]}:1",
        f"{sources[1]}:3",
    ]


def test_inner_line_breaks_keep_files_parallel(tmp_path: Path) -> None:
    source, target = written(tmp_path / "a", "x\u2028y\x0bz\nu\n"), written(tmp_path / "b", "X\nU\n")
    corpus = read_parallel(source, target)
    assert corpus.source == ["x\u2028y\x0bz", "u"]


@pytest.mark.parametrize("swap", [False, True])
def test_unequal_files(tmp_path: Path, swap: bool) -> None:
    short, long = written(tmp_path / "short", "a\nb\n"), written(tmp_path / "long", "A\nB\nextra\nD\n")
    first, second = (long, short) if swap else (short, long)
    counts = (4, 2) if swap else (2, 4)
    message = (
        f"{first} has {counts[0]} lines and {second} has {counts[1]},.*"
        f"{short} ends before line 3, where {long} has 'extra'"
    )
    with pytest.raises(DataError, match=message):
        read_parallel(first, second)


def test_shards_without_a_counterpart(tmp_path: Path) -> None:
    one = written(tmp_path / "a", "x\n")
    with pytest.raises(UsageError, match="2 source files and 1 target files"):
        read_parallel([one, one], [one])
    with pytest.raises(UsageError, match="no files"):
        read_parallel([], [])


def test_nothing_in_it(tmp_path: Path) -> None:
    empty = written(tmp_path / "empty", "\n\n")
    with pytest.raises(DataError, match=r"empty, .*empty: no usable text \(2 lines read\)"):
        read_parallel(empty, empty)


def test_tsv(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", 'un\tone\t"\n"deux\ttwo\tx\ty\n\tthree\tz\n')
    corpus = read_pairs(path)
    assert (corpus.source, corpus.target) == (["un", '"deux'], ["one", "two"])
    assert corpus.report.findings["empty, dropped"].locations == [f"{path}:3"]
    corpus = read_pairs([path], columns=(1, 2))
    assert (corpus.source, corpus.target) == (["one", "two", "three"], ['"', "x", "z"])
    assert read_pairs(path, columns=("1", "0")).source == ["one", "two"]
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"a\tb\n"))
    assert read_pairs(tmp_path / "b.tsv.gz").target == ["b"]


def test_tsv_faults(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", "un\tone\nno tab here\n")
    with pytest.raises(DataError, match=r"a\.tsv:2: columns 0 and 1 are needed .* has 1 column\(s\).*'no tab here'"):
        read_pairs(path)
    with pytest.raises(DataError, match=r"a\.tsv:1: columns 0 and 2 are needed .* has 2 column\(s\)"):
        read_pairs(path, columns=(0, 2))
    with pytest.raises(UsageError, match="columns are counted from 0"):
        read_pairs(path, columns=(0, -1))
    with pytest.raises(DataError, match=r"a\.tsv:1: no column 'fr'; the first row names the columns: 'un', 'one'\."):
        read_pairs(path, columns=("fr", "en"))
    with pytest.raises(UsageError, match=r"x\.doc: a file of pairs must be \.tsv, \.csv, \.jsonl .* or \.parquet"):
        read_pairs(tmp_path / "x.doc")


def test_jsonl(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"source": "un", "target": "one", "id": 7}, {"target": "", "source": "x"})
    corpus = read_pairs(path)
    assert (corpus.source, corpus.target) == (["un"], ["one"])
    assert corpus.report.findings["empty, dropped"].locations == [f"{path}:2"]
    path = jsonl(tmp_path / "b.jsonl", {"fr": "un", "en": "one"})
    assert read_pairs(path, columns=("en", "fr")).source == ["one"]
    assert read_pairs(written(tmp_path / "c.jsonl", '{"source": "a", "target": "b"}\n\n')).report.read == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a"', r"a\.jsonl:2: not valid JSON"),
        ("[" * 100_000, r"a\.jsonl:2: not valid JSON"),
        ('["a", "b"]', r"a\.jsonl:2: expected a JSON object such as .*, got list"),
        ('{"source": "a", "en": "b"}', r"a\.jsonl:2: no key 'target'; the keys of this row are: 'source', 'en'"),
        ("{}", r"a\.jsonl:2: no key 'source'; the keys of this row are: none"),
        ('{"source": "a", "target": 3}', r"a\.jsonl:2: 'target' contains int, not text"),
        ('{"source": "\\ud800", "target": "b"}', r"a\.jsonl:2: 'source' contains half a surrogate pair"),
        ('{"source": "a\\u0000", "target": "b"}', r"a\.jsonl:2: 'source' contains a NUL"),
    ],
)
def test_jsonl_faults(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path / "a.jsonl", f'{{"source": "a", "target": "b"}}\n{line}\n')
    with pytest.raises(DataError, match=message):
        read_pairs(path)


def test_jsonl_columns_are_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two names"):
        read_pairs(jsonl(tmp_path / "a.jsonl", {}), columns=(0, 1))


def test_documents(tmp_path: Path) -> None:
    play = written(tmp_path / "play.txt", "ROMEO:\r\nO!\r\n\r\nEnd")
    lines = jsonl(tmp_path / "more.jsonl", {"text": "one\ntwo"}, {"text": " "}, {"text": "three"})
    corpus = read_documents([play, lines])
    assert corpus.source == ["ROMEO:\nO!\n\nEnd\n", "one\ntwo", "three"]
    assert corpus.target is None
    assert [corpus.location(i) for i in range(3)] == [f"{play}:1", f"{lines}:1", f"{lines}:3"]
    assert corpus.report.findings["empty, dropped"].locations == [f"{lines}:2"]
    assert read_documents(jsonl(tmp_path / "b.jsonl", {"body": "x"}), column="body").source == ["x"]


def test_a_corpus_from_memory() -> None:
    corpus = make_corpus(["a", "", "c"], ["A", "B", "C"], name="demo")
    assert (corpus.source, corpus.target) == (["a", "c"], ["A", "C"])
    assert corpus.location(1) == "demo:3"
    assert make_corpus(["a"], name="x").target is None
    with pytest.raises(UsageError, match="x: 2 source and 1 target"):
        make_corpus(["a", "b"], ["A"], name="x")


def test_fingerprint_is_of_the_sentences(tmp_path: Path) -> None:
    def corpus(*rows: tuple[str, str]) -> str:
        return make_corpus([one for one, _ in rows], [other for _, other in rows], name="x").fingerprint

    pair = written(tmp_path / "a.tsv", "ab\tc\n")
    assert read_pairs(pair).fingerprint == corpus(("ab", "c")) == make_corpus(["ab"], ["c"], name="y").fingerprint
    different = [
        corpus(("ab", "c")),
        corpus(("a", "bc")),
        corpus(("c", "ab")),
        corpus(("ab", "c"), ("ab", "c")),
        make_corpus(["ab", "c"], name="x").fingerprint,
        make_corpus(["ab"], name="x").fingerprint,
        make_corpus(['ab", "c'], name="x").fingerprint,
    ]
    assert len(set(different)) == len(different)


def test_lines_that_cannot_be_read_are_left_out_and_counted(tmp_path: Path) -> None:
    source, target = tmp_path / "a.fr", tmp_path / "a.en"
    source.write_bytes(b"un\ncaf\xe9\ntrois\nquatre\ncinq\n")
    target.write_bytes(b"one\ncoffee\nth\0ree\nfour\n\n")
    with pytest.raises(DataError, match=r"a\.fr:2: byte 0xe9"):
        read_parallel(source, target)
    corpus = read_parallel(source, target, faults="skip")
    assert (corpus.source, corpus.target) == (["un", "quatre"], ["one", "four"])
    assert [corpus.location(i) for i in (0, 1)] == [f"{source}:1", f"{source}:4"]
    assert corpus.report.read == 5
    assert {kind: one.locations for kind, one in corpus.report.findings.items()} == {
        "not UTF-8, left out": [f"{source}:2"],
        "NUL bytes, left out": [f"{target}:3"],
        "empty, dropped": [f"{source}:5"],
    }
    assert f"not UTF-8, left out: 1, first at {source}:2" in str(corpus.report)


def test_rows_that_are_no_pairs_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"source": "a", "target": "b"}\n{"source": "a"\n{"target": "b"}\n')
    corpus = read_pairs(path, faults="skip")
    assert len(corpus) == 1 and corpus.report.findings["malformed rows, left out"].count == 2
    path = written(tmp_path / "a.tsv", "a\tb\nc\n")
    assert read_pairs(path, faults="skip").source == ["a"]


def test_what_always_stops(tmp_path: Path) -> None:
    ours, theirs = written(tmp_path / "a", "x\ny\n"), written(tmp_path / "b", "X\n")
    with pytest.raises(DataError, match="has 2 lines"):
        read_parallel(ours, theirs, faults="skip")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x\n" * 100)[:-5])
    with pytest.raises(DataError, match="damaged"):
        read_documents(tmp_path / "a.gz", faults="skip")
    (tmp_path / "wide").write_bytes("hello".encode("utf-16"))
    with pytest.raises(DataError, match="in UTF-16"):
        read_documents(tmp_path / "wide", faults="skip")
    (tmp_path / "packed.txt").write_bytes(gzip.compress(b"text"))
    with pytest.raises(DataError, match="a gzip file"):
        read_documents(tmp_path / "packed.txt", faults="skip")


def test_when_nothing_is_left_the_faults_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xff\n\xfe\n")
    with pytest.raises(DataError, match=r"no usable text \(2 lines read; not UTF-8, left out: 4, first at .*a:1\)"):
        read_parallel(path, path, faults="skip")
    with pytest.raises(UsageError, match=r"unknown policy for faults 'ignore' \(known: stop, skip\)"):
        read_parallel(path, path, faults="ignore")  # type: ignore[arg-type]
