"""The encoding of a file: the advice is right for each case, and only lines beyond doubt are decoded."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.text.files.encodings import survey_encoding
from regard.text.files.lines import read_lines
from regard.text.files.mojibake import without_mojibake

FRENCH = [
    "Un café noir, s'il vous plaît.",
    "C'était déjà l'été à Noël.",
    "QUALITÉ\u00a0: très élevée",  # as Latin-1, É and the no-break space happen to be UTF-8
    "«\u00a0Où\u00a0?\u00a0»",
    "été",
    "plain ASCII",
]
MISSING = b"\x81\x8d\x8f\x90\x9d"  # bytes that Windows-1252 does not have
WINDOWS = [*FRENCH, "L’œuf coûte 3\u00a0€ – déjà…"]


def written(path: Path, lines: list[str], encoding: str = "utf-8") -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
    return path


def mixed(path: Path, utf8: list[str], other: list[str], encoding: str = "cp1252") -> Path:
    path.write_bytes(*[b"".join([f"{line}\n".encode() for line in utf8] + [f"{x}\n".encode(encoding) for x in other])])
    return path


def advice(path: Path) -> str:
    """The message of a reader that stops at the first line it cannot read."""
    with pytest.raises(DataError) as error:
        list(read_lines(path))
    return str(error.value)


@pytest.mark.parametrize(
    ("lines", "encoding", "name"), [(FRENCH, "latin-1", "latin1"), (WINDOWS, "cp1252", "windows-1252")]
)
def test_a_file_wholly_in_another_encoding_is_converted(
    tmp_path: Path, lines: list[str], encoding: str, name: str
) -> None:
    path = written(tmp_path / "a.txt", lines, encoding)
    command = f"iconv -f {name} -t utf-8 {path} > {tmp_path / 'a.utf8.txt'}"
    assert command in advice(path) and "skip" not in advice(path)
    subprocess.run(command, shell=True, check=True)
    assert list(read_lines(tmp_path / "a.utf8.txt")) == lines


def test_a_compressed_file_is_decompressed_first(tmp_path: Path) -> None:
    path = tmp_path / "a b.txt.gz"
    path.write_bytes(gzip.compress(written(tmp_path / "a", FRENCH, "latin-1").read_bytes()))
    command = f"gzip -dc '{path}' | iconv -f latin1 -t utf-8 > '{tmp_path / 'a b.utf8.txt'}'"
    assert command in advice(path)
    subprocess.run(command, shell=True, check=True)
    assert list(read_lines(tmp_path / "a b.utf8.txt")) == FRENCH


def test_a_file_with_some_lines_in_another_encoding_is_never_converted_as_a_whole(tmp_path: Path) -> None:
    path = mixed(tmp_path / "a.txt", WINDOWS * 10, WINDOWS)
    text = advice(path)
    assert "iconv" not in text and "6 of the 77 lines" in text and "60 contain UTF-8" in text
    assert "regard check FILES --fix FOLDER" in text and "data.faults=skip" in text
    survey = survey_encoding(path)
    assert [survey.decode(f"{line}\n".encode("cp1252")) for line in WINDOWS] == [f"{line}\n" for line in WINDOWS]


def test_a_line_in_both_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    raw = "déjà, ".encode() + "l'été au café\n".encode("latin-1")
    path.write_bytes(raw)
    survey = survey_encoding(path)
    assert survey.decode(raw) == "déjà, l'été au café\n" and "iconv" not in survey.advice()
    path.write_bytes("été".encode()[:-1])  # cut off inside a character
    survey = survey_encoding(path)
    assert not survey.certain and "iconv" not in survey.advice() and "correct it" in survey.advice()


OTHERS = {
    "cp1250": ["Příliš žluťoučký kůň úpěl ďábelské ódy.", "Děkuji vám.", "Dobrý den"],
    "latin2": ["Zażółć gęślą jaźń", "Dzień dobry", "Część"],
    "cp1254": ["Teşekkür ederim", "Günaydın, nasılsınız?"],
    "koi8-r": ["привет мир", "Я и ты"],
    "cp1253": ["καλημέρα κόσμε"],
    "cp437": ["déjà vu à Noël", "café"],
    "mac-roman": ["déjà vu à Noël", "café"],
    "gbk": ["你好世界", "我 hello"],
    "shift-jis": ["こんにちは", "テスト text"],
}


@pytest.mark.parametrize("encoding", OTHERS)
def test_other_encodings_are_not_taken_for_western(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path / "a.txt", OTHERS[encoding], encoding)
    survey = survey_encoding(path)
    assert not survey.certain and f"iconv -f ENCODING -t utf-8 {path} > " in survey.advice()
    assert all(survey.decode(line.encode(encoding)) is None for line in OTHERS[encoding])


def test_letters_must_be_those_of_the_lines_in_utf8(tmp_path: Path) -> None:
    czech = OTHERS["cp1250"]
    survey = survey_encoding(mixed(tmp_path / "a.txt", czech * 10, czech, "cp1250"))
    decoded = [survey.decode(line.encode("cp1250")) for line in czech]
    assert decoded == [None, None, "Dobrý den"]  # ý is the same byte in both encodings; ø for ř is not Czech


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("utf-16", "utf-16"), ("utf-16-le", "utf-16le"), ("utf-16-be", "utf-16be"), ("utf-32", "utf-32")],
)
def test_wide_encodings(tmp_path: Path, encoding: str, name: str) -> None:
    path = written(tmp_path / "a.txt", FRENCH, encoding)
    command = f"iconv -f {name} -t utf-8 {path} > {tmp_path / 'a.utf8.txt'}"
    assert command in advice(path)
    subprocess.run(command, shell=True, check=True)
    assert list(read_lines(tmp_path / "a.utf8.txt")) == FRENCH


def test_utf8_needs_no_advice(tmp_path: Path) -> None:
    survey = survey_encoding(written(tmp_path / "a.txt", ["\ufeff" + FRENCH[0], *FRENCH[1:]]))
    assert survey.advice() == "" and not survey.certain


@pytest.mark.parametrize(
    "text",
    [
        "café",
        "C’est l’été… déjà !",
        "“naïve” – Müller",
        "Привет, как дела?",
        "Ελληνικά",
        "Łódź",
        "QUALITÉ",
        "Ça",
    ],
)
def test_mojibake_is_undone(text: str) -> None:
    garbled = "".join(bytes([byte]).decode("cp1252" if byte not in MISSING else "latin-1") for byte in text.encode())
    assert garbled != text and without_mojibake(garbled) == text
    assert without_mojibake(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [("déjà, cafÃ© noir", "déjà, café noir"), ("« donâ€™t »", "« don’t »"), ("é Ð¿Ñ€Ð¸Ð²ÐµÑ‚", "é привет")],
)
def test_mojibake_in_a_part_of_a_line(text: str, meant: str) -> None:
    assert without_mojibake(text) == meant


@pytest.mark.parametrize(
    "text", ["AMANHÃ\u00a0!", "«CAFÉ»", "NÃO É", "IRMÃ”", "Ã", "Ångström, â, Đà Nẵng", "30 Â", "â€"]
)
def test_text_that_may_be_correct_stays(text: str) -> None:
    assert without_mojibake(text) == text
