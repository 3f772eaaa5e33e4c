"""The check before sentencepiece: every file of ours passes, and whatever another writer could put in is refused."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path

import pytest

from regard.errors import ModelError
from regard.text.tokenizers.subword_file import MAX_PIECE_BYTES, MAX_PIECES, read_pieces
from regard.text.tokenizers.subwords import SubwordTokenizer, train_subwords

ROOT = Path(__file__).parents[3]
TEXTS = ["the cat sees the dog", "a dog sees a cat", "the été of the sea, twice the sea\tand\nagain"]
BYTES, FIRST = 4, 260  # the numbers of <0x00> and of the first usual piece, in models that are not lossless


@cache
def trained(kind: str, lossless: bool) -> bytes:
    return train_subwords(TEXTS, size=None, kind=kind, lossless=lossless).save()[1]  # type: ignore[arg-type]


def entry(text: bytes, score: float = -1.0, kind: int | None = None) -> bytes:
    """A piece as sentencepiece writes it."""
    content = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", score)
    content += b"" if kind is None else b"\x18" + bytes([kind])
    return b"\x0a" + bytes([len(content)]) + content


def part(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def parts() -> tuple[list[bytes], bytes, bytes]:
    """The pieces, the settings and the rules of a good file; the last two without what stands before them."""
    content, pieces = trained("unigram", False), []
    while content[0] == 0x0A:
        end = 2 + content[1]
        pieces.append(content[:end])
        content = content[end:]
    end = 2 + content[1]
    assert content[0] == 2 << 3 | 2 and content[end] == 3 << 3 | 2 and len(content) == end + 2 + content[end + 1]
    return pieces, content[2:end], content[end + 2 :]


def written(pieces: list[bytes], settings: bytes, rules: bytes) -> bytes:
    return b"".join(pieces) + part(2, settings) + part(3, rules)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("lossless", [False, True])
def test_ours_pass(kind: str, lossless: bool) -> None:
    content = trained(kind, lossless)
    model = SubwordTokenizer(content)
    pieces = read_pieces(content)
    assert len(pieces) == model.size and model.pieces(range(6)) == [*pieces[:4], *model.pieces([4, 5])]
    for token in range(FIRST + 2, model.size):
        assert model._model.id_to_piece(token) == pieces[token]


def test_the_shipped_one_passes() -> None:
    assert len(read_pieces((ROOT / "regard/shipped/fr-en/tokenizer.model").read_bytes())) > 1000


def test_the_parts_make_the_whole() -> None:
    assert written(*parts()) == trained("unigram", False)


SPECIAL = "not the special tokens"
OURS = "not a sentencepiece model of regard: "
PIECES = {
    "piece twice": (lambda p: [*p, entry(b"zzz"), entry(b"zzz")], "occurs twice"),
    "special token twice": (lambda p: [*p, entry(b"<s>")], "occurs twice"),
    "empty piece": (lambda p: [*p, entry(b"")], "is empty"),
    "no pieces": (lambda p: [], SPECIAL),
    "three pieces": (lambda p: p[:3], SPECIAL),
    "order of special tokens": (lambda p: [*p[1::-1], *p[2:]], SPECIAL),
    "padding is a usual piece": (lambda p: [entry(b"<pad>", 0.0), *p[1:]], SPECIAL),
    "start is unknown": (lambda p: [*p[:2], entry(b"<s>", 0.0, 2), *p[3:]], SPECIAL),
    "strange first piece": (lambda p: [entry(b"\x1b[31m", 0.0, 3), *p[1:]], r"its first pieces are '\\x1b\[31m' <unk>"),
    "no bytes": (lambda p: p[:BYTES] + p[FIRST:], "the 256 bytes do not follow"),
    "a byte less": (lambda p: p[: FIRST - 1] + p[FIRST:], "the 256 bytes do not follow"),
    "bytes in another order": (lambda p: [*p[:4], p[5], p[4], *p[6:]], "the 256 bytes do not follow"),
    "a byte that is a usual piece": (lambda p: [*p[:4], entry(b"<0x00>"), *p[5:]], "the wrong kind"),
    "one more control piece": (lambda p: [*p, entry(b"zzz", 0.0, 3)], "the wrong kind"),
    "a piece defined by a user": (lambda p: [*p, entry(b"zzz", 0.0, 4)], "the wrong kind"),
    "an unused piece": (lambda p: [*p, entry(b"zzz", 0.0, 5)], "the wrong kind"),
    "a kind that does not exist": (lambda p: [*p, entry(b"zzz", 0.0, 77)], "the wrong kind"),
    "no number": (lambda p: [*p, entry(b"zzz", float("nan"))], "a score is not a number"),
    "infinity": (lambda p: [*p, entry(b"zzz", float("-inf"))], "a score is not a number"),
    "a number beyond measure": (lambda p: [*p, entry(b"zzz", -3e38)], "too large"),
    "no text": (lambda p: [*p, entry(b"\xff\xfe")], "damaged, truncated, or from another program"),
    "half a surrogate": (lambda p: [*p, entry(b"\xed\xa0\x80")], "damaged, truncated, or from another program"),
    "long piece": (lambda p: [*p, entry(b"z" * (MAX_PIECE_BYTES - 6))], "damaged, truncated, or from another program"),
    "score and text the other way round": (
        lambda p: [*p, b"\x0a\x08\x15\0\0\0\0\x0a\x01z"],
        "damaged, truncated, or from another program",
    ),
    "two texts": (
        lambda p: [*p, b"\x0a\x0b\x0a\x01z\x0a\x01y\x15\0\0\0\0"],
        "damaged, truncated, or from another program",
    ),
    "two kinds": (
        lambda p: [*p, b"\x0a\x0c\x0a\x01z\x15\0\0\0\0\x18\x01\x18\x03"],
        "damaged, truncated, or from another program",
    ),
    "text under another number": (
        lambda p: [*p, b"\x0a\x08\x12\x01z\x15\0\0\0\0"],
        "damaged, truncated, or from another program",
    ),
    "score under another number": (
        lambda p: [*p, b"\x0a\x08\x0a\x01z\x1d\0\0\0\0"],
        "damaged, truncated, or from another program",
    ),
    "no score": (lambda p: [*p, b"\x0a\x03\x0a\x01z"], "damaged, truncated, or from another program"),
    "something behind the score": (
        lambda p: [*p, b"\x0a\x0a\x0a\x01z\x15\0\0\0\0\x20\x01"],
        "damaged, truncated, or from another program",
    ),
    "piece behind the end": (
        lambda p: [*p, b"\x0a\x7f\x0a\x01z\x15\0\0\0\0"],
        "damaged, truncated, or from another program",
    ),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces(name: str) -> None:
    change, message = PIECES[name]
    pieces, settings, rules = parts()
    with pytest.raises(ModelError, match=message):
        read_pieces(written(change(pieces), settings, rules))
    if name in ("long piece", "piece twice"):  # the same without the fault
        assert read_pieces(written([*pieces, entry(b"zzz"), entry(b"z" * (MAX_PIECE_BYTES - 10))], settings, rules))


def test_too_many_pieces() -> None:
    with pytest.raises(ModelError, match=f"more than {MAX_PIECES} pieces"):
        read_pieces(entry(b"e") * (MAX_PIECES + 1))


# number and wire type of a field, and its value; see sentencepiece_model.proto
SETTINGS = {
    "words instead of pieces": (b"\x18\x03", "neither unigram nor bpe"),
    "a model of no type": (b"\x18\x00", "neither unigram nor bpe"),
    "type as a text": (b"\x1a\x01\x01", "neither unigram nor bpe"),
    "without bytes": (b"\x98\x02\x00", "no byte fallback"),
    "spaces behind words": (b"\xc0\x01\x01", "puts spaces after words"),
    "padding elsewhere": (b"\xd8\x02\x05", "special tokens have other names or numbers"),
    "unknown elsewhere": (b"\xc0\x02\x05", "special tokens have other names or numbers"),
    "no start": (b"\xc8\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "special tokens have other names or numbers"),
    "end with another name": (b"\xfa\x02\x01x", "names or numbers"),
    "another text for unknown": (b"\xe2\x02\x01x", "names or numbers"),
    "cut short": (b"\xe2\x02\x09x", "its settings are damaged or truncated"),
    "endless number": (b"\x90\x03" + b"\xff" * 11 + b"\0", "its settings are damaged or truncated"),
    "group": (b"\x93\x03\0\0\0\0", "its settings are damaged or truncated"),
    "field 0": (b"\x00\x01", "its settings are damaged or truncated"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str) -> None:
    added, message = SETTINGS[name]
    pieces, settings, rules = parts()
    with pytest.raises(ModelError, match=message):
        read_pieces(written(pieces, settings + added, rules))


RULES = {
    "rules": (b"\x12\x05\x01\0\0\0x", "its own rules"),
    "rules of no length": (b"\x10\x00", "its own rules"),
    "spaces half kept": (b"\x18\x00", "its own rules"),
    "no prefix that is a number": (b"\x18\x02", "its own rules"),
    "spaces not escaped": (b"\x28\x00", "its own rules"),
    "rules as a table": (b"\x32\x01x", "its rules have the field 6"),
    "cut short": (b"\x12\x05", "damaged or truncated"),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    added, message = RULES[name]
    pieces, settings, rules = parts()
    with pytest.raises(ModelError, match=message):
        read_pieces(written(pieces, settings, rules + added))


def test_parts() -> None:
    """Each part once, and no other: two would be put together, and what is behind them could be anything."""
    pieces, settings, rules = parts()
    good = written(pieces, settings, rules)
    for added, message in (
        (part(2, settings), "it has settings 2 times"),
        (part(3, rules), "it has rules 2 times"),
        (part(4, b""), "unexpected field 4"),
        (part(5, b"\x12\x05\x01\0\0\0x"), "unexpected field 5"),  # rules for the way back
        (entry(b"zzz"), "unexpected field 1"),
        (b"\x15\0\0\0\0", "unexpected field 2"),
        (b"\x11\0\0\0", "damaged, truncated, or from another program"),
    ):
        with pytest.raises(ModelError, match=message):
            read_pieces(good + added)
    with pytest.raises(ModelError, match="it has settings 0 times"):
        read_pieces(b"".join(pieces) + part(3, rules))
    with pytest.raises(ModelError, match="it has rules 0 times"):
        read_pieces(b"".join(pieces) + part(2, settings))
