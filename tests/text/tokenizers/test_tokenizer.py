"""Tokenizers as files of a model folder, and what all of them share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import ModelError
from regard.models.folder import NAMES
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import (
    MAX_FILE_BYTES,
    Tokenizer,
    group_words,
    read_tokenizers,
    tokenizer_files,
    unseen,
)

TEXTS = ["the cat sees the dog", "a dog sees a cat", "the sea"]
CHARACTERS = train_characters(TEXTS)
SUBWORDS = train_subwords(TEXTS, size=None, kind="bpe", lossless=False)


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("source", "target", "names"),
    [
        (SUBWORDS, SUBWORDS, {"tokenizer.model"}),
        (CHARACTERS, CHARACTERS, {"characters.json"}),
        (CHARACTERS, train_characters(TEXTS), {"characters.json"}),
        (CHARACTERS, train_characters(["xyz"]), {"source.characters.json", "target.characters.json"}),
        (SUBWORDS, CHARACTERS, {"source.tokenizer.model", "target.characters.json"}),
    ],
)
def test_written_and_read(tmp_path: Path, source: Tokenizer, target: Tokenizer, names: set[str]) -> None:
    files = tokenizer_files(source, target)
    assert files.keys() == names
    assert all(NAMES.fullmatch(name) for name in names)
    write(tmp_path, files)
    ours, theirs = read_tokenizers(tmp_path)
    assert (ours is theirs) == (len(names) == 1)
    for got, wanted in ((ours, source), (theirs, target)):
        assert type(got) is type(wanted)
        assert got.save() == wanted.save()
        assert got.encode_all(TEXTS) == wanted.encode_all(TEXTS)


def test_folders_that_are_not_whole(tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(ModelError, match=message):
            read_tokenizers(tmp_path)
        for path in tmp_path.iterdir():
            path.unlink()

    name, content = SUBWORDS.save()
    refused("contains no tokenizer")
    write(tmp_path, {f"source.{name}": content})
    refused("the tokenizer of the target is missing")
    write(tmp_path, {f"target.{name}": content})
    refused("the tokenizer of the source is missing")
    write(tmp_path, {f"target.{name}": content, name: content})
    refused("a tokenizer for both sides and another one for one side")
    write(tmp_path, dict([SUBWORDS.save(), CHARACTERS.save()]))
    refused("both tokenizer.model and characters.json")
    write(tmp_path, {name: content[:-5]})
    refused(r"tokenizer\.model: not a sentencepiece model")
    write(tmp_path, {"characters.json": b"{}"})
    refused(r"characters\.json: not the characters")
    write(tmp_path, {"tokenizer.json": b"{}"})
    refused(r"tokenizer\.json: it is no tokenizer of the tokenizers library")
    (tmp_path / "elsewhere").write_bytes(content)
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    refused("not a regular file")
    with open(tmp_path / name, "wb") as file:
        os.truncate(file.fileno(), MAX_FILE_BYTES + 1)
    refused("larger than")


def test_unseen() -> None:
    """All but the tokens of the texts; special tokens are never among them."""
    sentences = SUBWORDS.encode_all(TEXTS)
    missing = unseen(SUBWORDS, sentences)
    seen = {token for sentence in sentences for token in sentence}
    assert set(missing) | seen == set(range(4, SUBWORDS.size))
    assert not set(missing) & seen
    assert missing == sorted(missing)
    emoji = SUBWORDS.encode("😀")
    assert set(emoji[-4:]) <= set(missing)
    assert unseen(CHARACTERS, CHARACTERS.encode_all(TEXTS)) == []


@given(st.lists(st.sampled_from(["a", " a", " ", "|"]), max_size=12))
def test_words_are_runs_with_the_blanks_before_them(pieces: list[str]) -> None:
    """The words are those of the text that the pieces spell, and lie side by side; | parts them."""
    spans = group_words([None if p == "|" else (p.startswith(" "), p == " ") for p in pieces])
    assert ["".join(pieces[start:end]).strip() for start, end in spans] == "".join(pieces).replace("|", " ").split()
    covered = [i for start, end in spans for i in range(start, end)]
    assert covered == sorted(set(covered))
    left = set(range(len(pieces))) - set(covered)
    assert all(pieces[i] in "| " for i in left)
