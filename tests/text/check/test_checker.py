"""The data doctor: clean files are clean; a planted fault is found at its place, alone, and as training treats it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from regard.demo.corpus import demo_pairs, demo_text
from regard.errors import DataError
from regard.text.batches.pairs import PairData
from regard.text.check import report as kinds
from regard.text.check.checker import PairsFile, ParallelFiles, Rules, TextFile, check_data, short_check
from regard.text.check.report import CheckReport, excerpt
from regard.text.check.suspicious_characters import (
    CONTROL,
    HTML,
    INVISIBLE,
    MOJIBAKE,
    NOT_NFC,
    PRIVATE,
    REPLACED,
    SCRIPT,
    TAB,
)
from regard.text.files.corpus import make_corpus, read_documents, read_pairs, read_parallel
from regard.text.files.lines import CRLF, MARK, NOT_UTF8, NUL
from regard.text.files.rows import MALFORMED
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.subwords import train_subwords

PAIRS = demo_pairs("train", 150)
FRENCH, ENGLISH = ([getattr(pair, side) for pair in PAIRS] for side in ("source", "target"))
TOKENIZER = train_subwords(FRENCH + ENGLISH, size=None, kind="unigram", lossless=False)
Lines = list[bytes]
Plant = Callable[[Lines, Lines, int], "set[tuple[int, int]]"]  # files and a row to where the fault is: (side, row)


def lines_of(texts: list[str]) -> Lines:
    return [text.encode() + b"\n" for text in texts]


def written(folder: Path, source: Lines, target: Lines) -> ParallelFiles:
    paths = folder / "train.fr", folder / "train.en"
    for path, lines in zip(paths, (source, target), strict=True):
        path.write_bytes(b"".join(lines))
    return ParallelFiles(*paths)


def inside(text: str, side: int) -> Plant:
    """A fault that stands between the words of a line."""

    def plant(source: Lines, target: Lines, row: int) -> set[tuple[int, int]]:
        lines = (source, target)[side]
        before, _, after = lines[row].partition(b" ")
        lines[row] = before + b" " + text.encode("utf-8", "surrogateescape") + b" " + after
        return {(side, row)}

    return plant


def whole(change: Callable[[bytes, bytes], tuple[bytes, bytes]], side: int = 0) -> Plant:
    """A fault of a whole pair, made from its two lines."""

    def plant(source: Lines, target: Lines, row: int) -> set[tuple[int, int]]:
        source[row], target[row] = change(source[row], target[row])
        return {(side, row)}

    return plant


def copied(source: Lines, target: Lines, row: int) -> set[tuple[int, int]]:
    source.insert(row + 1, source[row])
    target.insert(row + 1, target[row])
    return {(0, row + 1)}


def marked(source: Lines, target: Lines, row: int) -> set[tuple[int, int]]:
    target[0] = b"\xef\xbb\xbf" + target[0]
    return {(1, 0)}


PLANTS: dict[str, tuple[str, Plant]] = {
    "latin-1": (NOT_UTF8, inside("caf\udce9", 0)),
    "cut character": (NOT_UTF8, inside("\udcc3", 1)),
    "NUL": (NUL, inside("\0", 1)),
    "byte order mark": (MARK, marked),
    "CRLF": (CRLF, whole(lambda one, other: (one.replace(b"\n", b"\r\n"), other))),
    "CRLF in the target": (CRLF, whole(lambda one, other: (one, other.replace(b"\n", b"\r\n")), 1)),
    "empty source": (kinds.EMPTY, whole(lambda one, other: (b"\n", other))),
    "blank target": (kinds.EMPTY, whole(lambda one, other: (one, b" \t\n"))),
    "empty pair": (kinds.EMPTY, whole(lambda one, other: (b"\n", b"\n"))),
    "a megabyte": (kinds.LONG, whole(lambda one, other: (one, b"x" * 10**6 + b"\n"), 1)),
    "300 words": (kinds.LONG, whole(lambda one, other: (b"un " * 300 + b"\n", other))),
    "long target": (kinds.RATIO, whole(lambda one, other: (one, b" ".join([other[:-1]] * 8) + b"\n"))),
    "short target": (kinds.RATIO, whole(lambda one, other: (b" ".join([one[:-1]] * 8) + b"\n", b"Yes.\n"))),
    "copied source": (kinds.IDENTICAL, whole(lambda one, other: (one, one))),
    "pair twice": (kinds.DUPLICATE, copied),
    "mojibake": (MOJIBAKE, inside("cafÃ©", 0)),
    "mojibake of a quote": (MOJIBAKE, inside("donâ€™t", 1)),
    "mojibake with a control character": (MOJIBAKE, inside("Ã\x89tat", 0)),
    "replacement character": (REPLACED, inside("caf\ufffd", 0)),
    "bell": (CONTROL, inside("\x07", 0)),
    "tab": (TAB, inside("\t", 1)),
    "line separator": (CONTROL, inside("\u2028", 1)),
    "zero-width space": (INVISIBLE, inside("a\u200bb", 0)),
    "joiner in a Latin word": (INVISIBLE, inside("a\u200db", 1)),
    "mark in the middle": (INVISIBLE, inside("\ufeff", 0)),
    "private use": (PRIVATE, inside("\ue123", 1)),
    "no character": (PRIVATE, inside("\ufdd0", 1)),
    "decomposed": (NOT_NFC, inside("cafe\u0301", 0)),
    "entity": (HTML, inside("&amp;", 1)),
    "number of a character": (HTML, inside("&#39;", 1)),
    "tag": (HTML, inside("<br/>", 0)),
    "Cyrillic look-alike": (f"{SCRIPT} (Cyrillic)", inside("Рaris", 0)),
    "Greek": (f"{SCRIPT} (Greek)", inside("λόγος", 1)),
    "Chinese": (f"{SCRIPT} (East Asian)", inside("你好", 1)),
}  # fmt: skip


def test_a_clean_file_is_clean(tmp_path: Path) -> None:
    report = check_data([written(tmp_path, lines_of(FRENCH), lines_of(ENGLISH))])
    assert (report.problems, report.rows, report.unit, report.stops) == ((), 150, "pairs", False)
    assert str(report).count("\n") == 0 and "150 pairs, no problems found; words per line" in str(report)


@pytest.mark.parametrize("name", PLANTS)
@settings(max_examples=4, deadline=None)
@given(row=st.integers(0, 148))
def test_each_planted_fault_is_found_alone(tmp_path_factory: pytest.TempPathFactory, name: str, row: int) -> None:
    kind, plant = PLANTS[name]
    source, target = lines_of(FRENCH), lines_of(ENGLISH)
    spots = plant(source, target, row)
    files = written(tmp_path_factory.mktemp("planted"), source, target)
    report = check_data([files])
    assert [(found.name, found.count) for found in report.problems] == [(kind, 1)]
    (found,) = report.problems
    assert {example.location for example in found.examples} == {files.location(at + 1, side) for side, at in spots}
    assert len(found.examples[0].excerpt) < 200
    assert report.stops is found.stops is (kind in (NOT_UTF8, NUL))
    training_does_so(files, found.training, source, target, row)


def training_does_so(files: ParallelFiles, told: str, source: Lines, target: Lines, row: int) -> None:
    """What the report says of training is what training does."""
    match told.split()[0]:
        case "stops" | "stops;":
            with pytest.raises(DataError):
                read_parallel(files.source, files.target)
            corpus = read_parallel(files.source, files.target, faults="skip")
            assert "skips them" in told and len(corpus) == 149 and FRENCH[row] not in corpus.source
        case "drops":
            corpus = read_parallel(files.source, files.target)
            data = PairData(corpus, TOKENIZER, TOKENIZER, batch_tokens=2000, max_length=256)
            assert len(data) == 149 and (len(corpus) == 149 or row not in data.samples)
        case "fixes":
            corpus = read_parallel(files.source, files.target)
            if "NFC" in told:
                both = (
                    TOKENIZER.encode(corpus.source[row]),
                    TOKENIZER.encode(corpus.source[row].replace("e\u0301", "é")),
                )
                assert both[0] == both[1]
            elif "tab" in told:
                assert corpus.target is not None and "\t" in corpus.target[row]
                assert TOKENIZER.encode(corpus.target[row]) == TOKENIZER.encode(ENGLISH[row])
            else:
                assert (corpus.source, corpus.target) == (FRENCH, ENGLISH)
        case "keeps":
            corpus = read_parallel(files.source, files.target)
            kept = [[line[:-1].decode() for line in side] for side in (source, target)]
            assert [corpus.source, corpus.target] == kept
        case other:
            pytest.fail(f"training {other}?")


def names(report: CheckReport) -> list[tuple[str, int]]:
    return [(kind.name, kind.count) for kind in report.problems]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("lost", [0, 1, 57, 100, 148])
def test_a_lost_line_is_found_within_a_few(tmp_path: Path, side: int, lost: int) -> None:
    sides = lines_of(FRENCH), lines_of(ENGLISH)
    del sides[side][lost]
    files = written(tmp_path, *sides)
    report = check_data([files])
    assert names(report) == [(kinds.UNEQUAL, 1)] and report.stops
    (example,) = report.problems[0].examples
    assert abs(int(example.location.rpartition(":")[2]) - (lost + 1)) <= 2
    short, long = (files.source, files.target)[:: 1 - 2 * side]
    assert example.remark.startswith(f"{short} has 149 lines, {long} has 150: from about this line on")
    with pytest.raises(DataError, match="lines"):
        read_parallel(files.source, files.target, faults="skip")


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("cut", [slice(70, 71), slice(147, 150)])  # a line in the middle, or the last ones
def test_pairs_are_compared_as_far_as_they_pair_up(tmp_path: Path, side: int, cut: slice) -> None:
    source, target = list(FRENCH), list(ENGLISH)
    for copy, line in ((30, 3), (120, 5)):
        source[copy], target[copy] = source[line], target[line]
    source[20] = target[20]
    target[130] = " ".join([target[130]] * 8)
    sides = [source, target]
    del sides[side][cut]
    files = written(tmp_path, *map(lines_of, sides))
    report = check_data([files])
    expected = [(kinds.UNEQUAL, cut.stop - cut.start), (kinds.RATIO, 1), (kinds.IDENTICAL, 1), (kinds.DUPLICATE, 2)]
    assert names(report) == expected and report.stops
    second_copy = report.problems[-1].examples[1]
    number = 120 - (side == 0 and cut.start < 120)
    assert second_copy.location == f"{files.source}:{number + 1}" and ENGLISH[5][:20] in second_copy.excerpt


def test_pairs_of_files_that_are_not_parallel_are_not_compared(tmp_path: Path) -> None:
    others = [pair.target for pair in demo_pairs("test", 100)]
    files = written(tmp_path, lines_of([*FRENCH, FRENCH[3]]), lines_of([*others, *others]))
    assert names(check_data([files])) == [(kinds.UNEQUAL, 49)]


def test_advice_on_encodings(tmp_path: Path) -> None:
    mixed = lines_of(FRENCH)
    mixed[4] = "un café déjà bu\n".encode("latin-1")
    (problem,) = check_data([written(tmp_path, mixed, lines_of(ENGLISH))]).problems
    assert "skips them" in problem.training and "iconv" not in problem.advice[0]
    assert "do not convert the whole file: regard check FILES --fix FOLDER" in problem.advice[0]
    latin = [line.decode().replace("œ", "oe").encode("latin-1") for line in lines_of(FRENCH)]
    report = check_data([written(tmp_path, latin, lines_of(ENGLISH))])
    (problem,) = report.problems
    assert problem.training == "stops" and "looks like Latin-1: convert it with iconv -f latin1" in problem.advice[0]
    assert report.is_fixable and problem.advice[0] in str(report)
    assert json.loads(json.dumps(report.to_dict()))["kinds"][0]["advice"] == list(problem.advice)


def test_header_rows_and_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\ufeffde,en\n" + "".join(f'"{x}","{y}"\n' for x, y in zip(FRENCH, ENGLISH, strict=True)))
    report = check_data([PairsFile(path)])
    assert names(report) == [(MARK, 1)] and report.rows == 150
    note = f'{path}:1: header row, skipped (source: column "de", target: column "en")'
    assert report.notes == (note,) and note in str(report)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"fr": x, "en": y}) + "\n" for x, y in zip(FRENCH, ENGLISH, strict=True)))
    report = check_data([PairsFile(path)])
    assert (
        """--set 'data.columns=["fr", "en"]'""" in report.problems[1].advice[0] and report.problems[1].name == MALFORMED
    )
    assert not report.is_fixable  # the rows are in order, but the keys are others
    assert check_data([PairsFile(path, ("fr", "en"))]).problems == ()


def test_files_that_are_cut_off_or_empty(tmp_path: Path) -> None:
    files = written(tmp_path, lines_of(FRENCH)[:140], lines_of(ENGLISH))
    (kind,) = check_data([files]).problems
    assert (kind.name, kind.count, kind.examples[0].location) == (kinds.UNEQUAL, 10, files.location(140))
    assert "truncated after this line" in kind.examples[0].remark
    report = check_data([written(tmp_path, [], lines_of(ENGLISH))])
    assert names(report) == [(kinds.UNEQUAL, 150)] and report.problems[0].examples[0].location == str(files.source)
    report = check_data([written(tmp_path, [], [])])
    assert names(report) == [(kinds.NOTHING, 1)] and report.stops
    with pytest.raises(DataError):
        read_parallel(files.source, files.target)


def test_damaged_files_and_other_encodings(tmp_path: Path) -> None:
    whole, packed = gzip.compress(b"".join(lines_of(FRENCH)), mtime=0), tmp_path / "train.fr.gz"
    files = ParallelFiles(packed, written(tmp_path, [], lines_of(ENGLISH)).target)
    packed.write_bytes(whole)
    assert names(check_data([files])) == []
    packed.write_bytes(whole[:-20])
    report = check_data([files])
    assert names(report) == [(kinds.UNREADABLE, 1)] and report.stops
    assert (
        report.problems[0].examples[0].location == str(packed)
        and "truncated after line" in report.problems[0].examples[0].excerpt
    )
    wide = ParallelFiles(tmp_path / "wide.fr", files.target)
    wide.source.write_text("\n".join(FRENCH), encoding="utf-16")
    report = check_data([wide])
    assert names(report) == [(kinds.UNREADABLE, 1)] and report.problems[0].examples[0].location == f"{wide.source}:1"


def test_three_examples_of_each_kind_and_all_are_counted(tmp_path: Path) -> None:
    source = [b"<b>" + line if i % 10 == 3 else line for i, line in enumerate(lines_of(FRENCH))]
    files = written(tmp_path, source, lines_of(ENGLISH))
    (kind,) = check_data([files]).problems
    assert kind.count == 15 and [example.location for example in kind.examples] == [
        files.location(i) for i in (4, 14, 24)
    ]
    assert kind.examples[1].excerpt.startswith("<b>" + FRENCH[13][:20])


def test_a_duplicate_says_of_what(tmp_path: Path) -> None:
    source, target = (lines_of(side) + lines_of(side)[:20] for side in (FRENCH, ENGLISH))
    files = written(tmp_path, source, target)
    (kind,) = check_data([files]).problems
    assert kind.count == 20 and [one.location for one in kind.examples] == [files.location(151 + i) for i in range(3)]
    assert kind.examples[1].remark == f"same as {files.location(2)}" and FRENCH[1][:20] in kind.examples[1].excerpt
    target[-1] = b"Another translation of the same sentence.\n"
    assert names(check_data([written(tmp_path, source, target)])) == [(kinds.DUPLICATE, 19)]


def test_lengths_are_judged_by_what_is_usual_in_the_files(tmp_path: Path) -> None:
    source, target = FRENCH[:60], [f"{text} {text} {text} {text}" for text in ENGLISH[:60]]
    files = written(tmp_path, lines_of(source), lines_of(target))
    assert check_data([files]).problems == ()
    target[30] = "Yes."
    report = check_data([written(tmp_path, lines_of(source), lines_of(target))])
    assert names(report) == [(kinds.RATIO, 1)] and report.problems[0].examples[0].location == files.location(31)


@pytest.mark.parametrize(("words", "found"), [(39, []), (40, [(kinds.LONG, 1)])])
def test_the_most_tokens_of_a_side(tmp_path: Path, words: int, found: list[tuple[str, int]]) -> None:
    """The end counts as a token, as in training."""
    source, target = ([*side[:20], "a " * words] for side in (FRENCH, ENGLISH))
    files = written(tmp_path, lines_of(source), lines_of([*target[:20], "b " * 39]))
    assert names(check_data([files], rules=Rules(limit=40))) == found


def test_numbers_that_are_the_same_on_both_sides_are_in_order(tmp_path: Path) -> None:
    source, target = ([*side[:50], "19, 77 + 3"] for side in (FRENCH, ENGLISH))
    assert check_data([written(tmp_path, lines_of(source), lines_of(target))]).problems == ()


def test_words_are_parted_by_spaces_where_tokens_are(tmp_path: Path) -> None:
    """Other blanks can be within a token, so 300 of them do not make a sentence too long for sure."""
    for blank, found in ((" ", [(kinds.LONG, 1)]), ("\u00a0", []), ("  ", [(kinds.LONG, 1)])):
        line = blank.join(["a"] * 300)
        files = written(tmp_path, lines_of([*FRENCH[:20], line]), lines_of([*ENGLISH[:20], "b " * 200]))
        assert names(check_data([files])) == found


def test_shards_are_one_corpus(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir(), (tmp_path / "2").mkdir()
    first = written(tmp_path / "1", lines_of(FRENCH[:70]), lines_of(ENGLISH[:70]))
    second = written(tmp_path / "2", lines_of([*FRENCH[70:], FRENCH[3]]), lines_of([*ENGLISH[70:], ENGLISH[3]]))
    report = check_data([first, second])
    assert report.rows == 151 and names(report) == [(kinds.DUPLICATE, 1)]
    assert report.problems[0].examples[0].location == second.location(81)
    assert report.problems[0].examples[0].remark == f"same as {first.location(4)}"


def test_leaks_into_validation_and_test(tmp_path: Path) -> None:
    for name in ("train", "validation", "test"):
        (tmp_path / name).mkdir()
    train = written(
        tmp_path / "train", lines_of([*FRENCH[:100], FRENCH[7]]), lines_of([*ENGLISH[:100], "Yet another."])
    )
    held = [*FRENCH[100:120], FRENCH[7], FRENCH[7]], [*ENGLISH[100:120], "Another.", "Quite another."]
    validation = written(tmp_path / "validation", *map(lines_of, held))
    test = written(tmp_path / "test", lines_of([FRENCH[130], FRENCH[90]]), lines_of([ENGLISH[130], ENGLISH[90]]))
    report = check_data([train], [validation], [test])
    assert names(report) == [(kinds.LEAK, 3)] and not report.stops
    told = [(one.location, one.remark) for one in report.problems[0].examples]
    assert told == [
        (train.location(8), f"same as {validation.location(21)}"),
        (train.location(91), f"same as {test.location(2)}"),
    ]


def test_validation_files_have_faults_of_their_own_and_test_files_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    train = written(tmp_path, lines_of(FRENCH[:100]), lines_of(ENGLISH[:100]))
    faulty = lines_of(FRENCH[100:])
    faulty[4] = b"\n"
    held = written(tmp_path / "held", faulty, lines_of(ENGLISH[100:]))
    report = check_data([train], [held])
    assert names(report) == [(kinds.EMPTY, 1)] and report.problems[0].examples[0].location == held.location(5)
    assert report.rows == 100
    assert check_data([train], test=[held]).problems == ()


def test_pairs_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    rows = [f"{i}\t{one}\t{other}\n" for i, (one, other) in enumerate(zip(FRENCH, ENGLISH, strict=True))]
    path.write_text("".join(rows), encoding="utf-8")
    assert check_data([PairsFile(path, (1, 2))]).problems == ()
    rows[20] = "no tab\n"
    rows[30] = rows[30].replace("\t", "\t&amp;", 1)
    path.write_text("".join(rows), encoding="utf-8")
    report = check_data([PairsFile(path, (1, 2))])
    assert names(report) == [(MALFORMED, 1), (HTML, 1)] and report.stops
    assert [kind.examples[0].location for kind in report.problems] == [f"{path}:21", f"{path}:31"]
    skipped = check_data([PairsFile(path, (1, 2))], rules=Rules(faults="skip"))
    assert not skipped.stops and skipped.problems[0].training.startswith("skips them")
    assert len(read_pairs(path, (1, 2), faults="skip")) == 149


def test_pairs_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [{"source": one, "target": other} for one, other in zip(FRENCH, ENGLISH, strict=True)]
    rows[3]["target"] = "half a \ud800 pair"
    rows[5]["source"] = "two\nlines"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = check_data([PairsFile(path)])
    assert names(report) == [(NOT_UTF8, 1), (CONTROL, 1)]
    assert report.problems[1].examples[0].excerpt.startswith(r"two\nlines")


def test_text_for_a_language_model(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    text = demo_text(5000) + "\n\nA\ttab.\nA\ttab.\n"  # blank and repeated lines, and tabs, are part of a text
    path.write_text(text, encoding="utf-8")
    report = check_data([TextFile(path)])
    assert (report.problems, report.unit, report.rows) == ((), "lines", text.count("\n")) and len(report.sides) == 1
    lines = lines_of(text.split("\n"))
    lines[7], lines[9], lines[11] = b"a\0b\n", b"x" * 100_000 + b"\n", b"caf\xc3\x83\xc2\xa9\n"
    path.write_bytes(b"".join(lines))
    report = check_data([TextFile(path)])
    assert names(report) == [(NUL, 1), (kinds.LONG_LINE, 1), (MOJIBAKE, 1)]
    assert [kind.examples[0].location for kind in report.problems] == [f"{path}:{line}" for line in (8, 10, 12)]
    with pytest.raises(DataError, match=r"text\.txt:8: a NUL"):
        read_documents(path)
    corpus = read_documents(path, faults="skip")
    assert corpus.source[0].count("\n") == len(lines) - 1 and "\0" not in corpus.source[0]
    assert corpus.report.findings["NUL bytes, left out"].locations == [f"{path}:8"]


def test_documents(tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    documents = [demo_text(300, seed=seed) for seed in range(6)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*documents, documents[2]]), encoding="utf-8")
    report = check_data([TextFile(path)])
    assert names(report) == [(kinds.DUPLICATE, 1)] and report.unit == "documents"


def test_a_script_of_its_own_is_at_home(tmp_path: Path) -> None:
    russian = [f"Я вижу дом номер {i} и кота." for i in range(60)]
    english = [f"I see house number {i} and the cat." for i in range(60)]
    files = written(tmp_path, lines_of(russian), lines_of(english))
    assert check_data([files]).problems == ()
    mixed = [f"{text} λόγος" if i % 3 == 0 else text for i, text in enumerate(russian)]  # a second one
    assert check_data([written(tmp_path, lines_of(mixed), lines_of(english))]).problems == ()
    copied = [*english[:7], russian[7], *english[8:]]  # is told once, not as letters out of place too
    assert names(check_data([written(tmp_path, lines_of(russian), lines_of(copied))])) == [(kinds.IDENTICAL, 1)]
    english[5] = english[5].replace("cat", "кот")
    report = check_data([written(tmp_path, lines_of(russian), lines_of(english))])
    assert names(report) == [(f"{SCRIPT} (Cyrillic)", 1)]
    assert report.problems[0].examples[0].location == files.location(6, 1)


@pytest.mark.parametrize(
    "text",
    ["„Das ist groß“, sagte er.", "« CAFÉ » et «CAFÉ»", "NÃO É", "IRMÃ”", "A & B, AT&T; Q&AB; x < y > z", "<unk> 5 <b",
     "می‌خواهم", "👨‍👩‍👧 oui", "Ångström, Ärger, â, Đà Nẵng", "C’est ça…", "µ ª º"],
)  # fmt: skip
def test_text_that_is_in_order(tmp_path: Path, text: str) -> None:
    source = [*FRENCH[:100], text]
    report = check_data([written(tmp_path, lines_of(source), lines_of([*ENGLISH[:100], "It is so."]))])
    assert [kind.name for kind in report.problems if "another script" not in kind.name] == []


def test_by_the_tokens_of_a_model(tmp_path: Path) -> None:
    files = written(tmp_path, lines_of(FRENCH), lines_of(ENGLISH))
    longest = max(len(TOKENIZER.encode(text)) for text in FRENCH + ENGLISH)
    rules = Rules(limit=longest + 1, tokenizers=(TOKENIZER, TOKENIZER))
    assert check_data([files], rules=rules).problems == ()
    shorter = check_data([files], rules=Rules(limit=longest, tokenizers=(TOKENIZER, TOKENIZER)))
    corpus = read_parallel(files.source, files.target)
    data = PairData(corpus, TOKENIZER, TOKENIZER, batch_tokens=2000, max_length=longest)
    assert names(shorter) == [(kinds.LONG, data.too_long.count)] and data.too_long.count >= 1
    assert f"more than {longest} tokens" in shorter.problems[0].training
    tokens = sum(len(TOKENIZER.encode(text)) for text in FRENCH) / sum(len(text.split()) for text in FRENCH)
    assert shorter.tokenizer == "the model's tokenizer"
    assert check_data([files], rules=rules).sides[0].tokens_per_word == pytest.approx(tokens, abs=0.01)
    by_characters = check_data([files], rules=Rules(limit=60, by_characters=True)).problems[0]
    assert by_characters.count == sum(max(len(a), len(b)) >= 60 for a, b in zip(FRENCH, ENGLISH, strict=True))


def test_text_that_a_tokenizer_was_not_made_for(tmp_path: Path) -> None:
    source = [*FRENCH[:-1], "ქართული ენა ქართული ენა"]
    files = written(tmp_path, lines_of(source), lines_of(ENGLISH))
    characters = train_characters(FRENCH + ENGLISH)
    for tokenizer in (TOKENIZER, characters):
        report = check_data([files], rules=Rules(limit=10_000, tokenizers=(tokenizer, tokenizer)))
        assert (kinds.BYTES, 1) in names(report)
        assert report.problems[-1].examples[0].location == files.location(150)


def test_tokens_per_word_of_a_sample(tmp_path: Path) -> None:
    report = check_data([written(tmp_path, lines_of(FRENCH), lines_of(ENGLISH))])
    words = [sum(len(text.split()) for text in side) for side in (FRENCH, ENGLISH)]
    assert [side.words_per_line for side in report.sides] == [round(count / 150, 2) for count in words]
    assert all(1 < side.tokens_per_word < 4 for side in report.sides) and report.tokenizer == "subwords of a sample"
    letters = sum(len("".join(text.split())) for text in FRENCH)
    assert report.sides[0].characters_per_word == round(letters / words[0], 2)


def test_a_sample_is_spread_over_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.text.check import scan

    monkeypatch.setattr(scan, "SAMPLE_LINES", 40)
    side = scan.SideCounts()
    for i in range(1000):
        side.count(str(i), 1)
    assert 20 <= len(side.sample) <= 40 and side.sample == [str(i) for i in range(0, 1000, 32)]


def test_report_as_json(tmp_path: Path) -> None:
    source = lines_of(FRENCH)
    source[4] = b"\xff\n"
    report = check_data([written(tmp_path, source, lines_of(ENGLISH))])
    found = json.loads(json.dumps(report.to_dict()))
    assert found["stops"] is True and found["rows"] == 150 and found["unit"] == "pairs"
    assert found["kinds"][0]["name"] == NOT_UTF8 and found["kinds"][0]["stops"] is True
    assert found["kinds"][0]["examples"][0]["place"].endswith("train.fr:5")


def test_excerpts() -> None:
    assert excerpt("short") == "short"
    assert excerpt("x" * 100) == "x" * 60 + "…"
    shown = excerpt("a" * 500 + "\u200b" + "b" * 500, 500)
    assert r"\u200b" in shown and shown.startswith("…") and shown.endswith("…") and len(shown) < 80
    assert excerpt("a\tb\x07") == r"a\tb\x07"


def test_what_is_told_on_the_way(tmp_path: Path) -> None:
    told: list[int] = []
    files = written(tmp_path, [b"un\n"] * 25_000, [b"one\n"] * 25_000)
    check_data([files], on_progress=told.append)
    assert told == [10_000, 20_000]


def test_short_check_says_nothing_of_clean_data() -> None:
    train, validation = (make_corpus(FRENCH[part], ENGLISH[part], name="x") for part in (slice(100), slice(100, 150)))
    assert short_check(train, validation) == [] == short_check(train)
    assert short_check(make_corpus([demo_text(4000)], name="x"), make_corpus(["an end"], name="y")) == []


def test_short_check(tmp_path: Path) -> None:
    source, target = lines_of(FRENCH), lines_of(ENGLISH)
    source[3], target[3] = source[2], target[2]
    target[9] = target[9][:5] + "\u200b".encode() + target[9][5:]
    source[12] = b"x" * 10**6 + b"\n"
    source[14] = target[14]
    source[20] = b"\n"  # told by the report on reading
    files = written(tmp_path, source, target)
    (tmp_path / "held").mkdir()
    held = written(tmp_path / "held", [source[30], b"\n"], [target[30], b"one\n"])
    train, validation = (read_parallel(one.source, one.target) for one in (files, held))
    lines = short_check(train, validation)
    assert [line.partition("; training ")[0] for line in lines] == [
        f"empty, dropped: 1, first at {held.location(2)}",
        f"{kinds.LONG}: 1, first at {files.location(13)}",
        f"{kinds.IDENTICAL}: 1, first at {files.location(15)}",
        f"{kinds.DUPLICATE}: 1, first at {files.location(4)}",
        f"{kinds.LEAK}: 1, first at {files.location(31)}",
        f"{INVISIBLE}: 1, first at {files.location(10, 1)}",
    ]
    assert "drops them" in lines[1] and all("keeps them" in line for line in lines[2:])
    assert any("too long" in line for line in short_check(train, limit=5))


def test_short_check_of_a_text(tmp_path: Path) -> None:
    text = demo_text(3000).split("\n")
    text[5] += "\u200b"
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_text(demo_text(500, seed=3), encoding="utf-8")
    paths[1].write_text("\n".join(text), encoding="utf-8")
    (line,) = short_check(read_documents(paths))
    assert line.startswith(f"{INVISIBLE}: 1, first at {paths[1]}:6; training keeps them")
