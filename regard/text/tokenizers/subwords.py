"""A tokenizer whose tokens are pieces of words, by sentencepiece: BPE or unigram.

Sennrich et al. 2016 (BPE); Kudo 2018 (unigram, sampling); Provilkov et al. 2020 (BPE dropout); Kudo and Richardson 2018
(sentencepiece). reference_bpe.py shows in 40 lines what BPE does.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any, Literal

import sentencepiece

from regard.errors import DataError, ModelError, UsageError, unknown_name
from regard.text.random_streams import random_keys
from regard.text.tokenizers.characters import SHOWN
from regard.text.tokenizers.segmentations import Segmentations
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START, UNKNOWN
from regard.text.tokenizers.subword_file import read_pieces
from regard.text.tokenizers.tokenizer import SPACE, Word, group_words
from regard.text.tokenizers.word_table import WordTable, table_arrays

Kind = Literal["unigram", "bpe"]
KINDS = ("unigram", "bpe")
BYTES = 256
LARGEST_CHOICE = 32_000
TRAINING_SENTENCES = 1_000_000
LONGEST_CHUNK = 1_000  # characters; sentencepiece drops lines of more than 4,192 bytes without a word
MANY_CHARACTERS = 1_000

# sentencepiece writes a space as ▁, so a ▁ of the text itself goes in disguise: ESCAPE and a digit.
ESCAPE = "\x1a"
SURROGATES = re.compile("[\ud800-\udfff]")


class SubwordTokenizer:
    """Pieces of words to numbers and back, by a sentencepiece model.

    Texts are brought to Unicode's form NFC first. For lossless models decode(encode(text)) is the text in NFC, whatever
    is in it. For the others it is equal up to spaces: runs of spaces become one, and those at the ends go. Characters
    that the model has no piece for are written as bytes, so UNKNOWN never comes out of encode. Half surrogates, which
    are no characters, become U+FFFD. encode(decode(tokens)) = tokens is not promised: a text has many segmentations.
    """

    FILE = "tokenizer.model"

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._model, pieces = _load(content)
        self.lossless = self._model.decode(self._model.encode(" ")) == " "
        self._shown = [SHOWN.get(piece, piece) for piece in pieces]
        blank = (SPACE, "\n", "\t")
        self._parts = re.compile(" *[^ ]+| +" if self.lossless else "[^ ]+")
        self._blanks = [(piece.startswith(blank), not piece.strip("".join(blank))) for piece in pieces]

    @property
    def size(self) -> int:
        return self._model.get_piece_size()

    def encode(self, text: str) -> list[int]:
        return self._model.encode(_prepared(text))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return self._model.encode([_prepared(text) for text in texts])

    def sample_all(self, texts: Sequence[str], *, seed: int, alpha: float) -> list[list[int]]:
        """Each text in a segmentation drawn at random: a function of the arguments alone.

        Unigram models choose a word's segmentation with probability to the power alpha (Kudo 2018), so 0 is wildest;
        BPE models leave out each merge with probability alpha (Provilkov et al. 2020), so 0 changes nothing.
        """
        if not 0 <= alpha <= 1:
            raise UsageError(f"alpha must be between 0 and 1, got {alpha}")
        arrays = table_arrays(map(self.cut, texts), self.segmentations(alpha))
        return list(WordTable(arrays).draw(random_keys(len(texts), seed)))

    def cut(self, text: str) -> list[str]:
        """The parts of a text that are cut into pieces one by one, for no piece goes on after a space: its words."""
        return self._parts.findall(_prepared(text))

    def segmentations(self, alpha: float) -> Segmentations:
        """The ways to cut such a part that `sample_all` chooses from."""
        return Segmentations(self._model, alpha=alpha)

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        """The text; an UNKNOWN stands for a word, with a space before it unless it is the first."""
        kept = [int(token) for token in tokens if token not in (PAD, START, END)]
        if UNKNOWN not in kept:
            return _restored(self._model.decode(kept))
        text, given = "", iter(unknown)
        for is_unknown, group in groupby(kept, UNKNOWN.__eq__):
            run = list(group)
            if is_unknown:
                for word in islice(given, len(run)):
                    text += " " * bool(text and word) + word
            else:
                # sentencepiece takes the space off the first piece that it is given, except in lossless models
                space = bool(text) and not self.lossless and self._blanks[run[0]][0]
                text += " " * space + _restored(self._model.decode(run))
        return text

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [self._shown[token] for token in tokens]

    def words(self, tokens: Sequence[int]) -> list[Word]:
        """Words start at spaces, and in lossless models at line breaks and tabs; which join the next word."""
        unknown = [SPECIAL_TOKENS[UNKNOWN]]
        return [
            Word(self.decode(tokens[start:end], unknown=unknown).strip(" \n\t"), start, end)
            for start, end in self._spans(tokens)
        ]

    def save(self) -> tuple[str, bytes]:
        return self.FILE, self._content

    def _spans(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """The spans of words. An UNKNOWN is a word, and what follows it without a space is another."""
        flags = [None if token in (PAD, UNKNOWN, START, END) else self._blanks[token] for token in tokens]
        spans = group_words(flags)
        unknowns = [(i, i + 1) for i, token in enumerate(tokens) if token == UNKNOWN]
        return sorted(spans + unknowns) if unknowns else spans


def train_subwords(
    texts: Iterable[str], *, size: int | None, kind: Kind, lossless: bool, tokenised: bool = False
) -> SubwordTokenizer:
    """Learn a vocabulary of pieces from texts; the same texts give the same bytes.

    Size None: as many pieces as there are words that occur five times or more, besides the characters and the bytes
    (three times the characters at least, for writing without spaces), up to 32,000 and to what the data allows.
    Above a million lines, an even sample of them is learned from. `lossless` is for language models: spaces stay as
    they are, line breaks and tabs are pieces. `tokenised` says that spaces stand around all marks already, so that what
    is left together belongs together, and a piece may hold letters and marks ("qu&apos;").
    """
    if kind not in KINDS:
        raise UsageError(unknown_name("kind of subwords", kind, KINDS))
    lines = [line for text in texts for line in _prepared(text).split("\n") if line.strip()]
    lines = lines[:: -(-len(lines) // TRAINING_SENTENCES) or 1]
    if not lines:
        raise DataError("no words to learn a vocabulary from: the texts are empty")
    characters = Counter[str]()
    for line in lines:
        characters.update(line)
    characters.pop(" ", None)
    wanted = _chosen_size(lines, len(characters)) if size is None else size
    spaces: dict[str, Any] = {
        "remove_extra_whitespaces": not lossless,
        "add_dummy_prefix": not lossless,
        "allow_whitespace_only_pieces": lossless,
        "user_defined_symbols": ["\n", "\t"] if lossless else [],
    }
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            # Each part of a line once: with a megabyte of repetition sentencepiece would be busy for hours.
            sentence_iterator=(chunk for line in lines for chunk in dict.fromkeys(_chunks(line))),
            model_writer=model,
            model_type=kind,
            vocab_size=wanted,
            hard_vocab_limit=size is not None,
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=START,
            eos_id=END,
            normalization_rule_name="identity",
            byte_fallback=True,
            split_by_unicode_script=not tokenised,
            # With thousands of characters the rarest are left to bytes.
            character_coverage=1.0 if len(characters) < MANY_CHARACTERS else 0.9995,
            num_threads=4,  # the sums of unigram training depend on it
            minloglevel=2,
            **spaces,
        )
    except RuntimeError as error:
        raise UsageError(_size_advice(str(error), wanted)) from error
    return SubwordTokenizer(model.getvalue())


def _chosen_size(lines: Sequence[str], characters: int) -> int:
    """The size that train_subwords chooses."""
    words = Counter(word for line in lines for word in re.findall(r"\w+", line))
    frequent = sum(count >= 5 for count in words.values())
    return min(LARGEST_CHOICE, BYTES + len(SPECIAL_TOKENS) + max(characters + frequent, 3 * characters))


def _size_advice(message: str, size: int) -> str:
    """sentencepiece's complaint about the size in our words; it names the limit that it found."""
    if found := re.search(r"too high.*?<= *(\d+)", message):
        return f"a vocabulary of {size} is larger than the data allows: choose at most {found[1]}, or let it be chosen"
    if found := re.search(r"smaller than required_chars\D*\d+ vs (\d+)", message):
        return (
            f"a vocabulary of {size} is too small for the characters of the data and the {BYTES} bytes: "
            f"choose more than {found[1]}, or let it be chosen"
        )
    return f"no vocabulary of size {size} could be learned: {message}"


def _chunks(line: str) -> Iterator[str]:
    """A line in parts that sentencepiece takes, cut at spaces where there are any."""
    while len(line) > LONGEST_CHUNK:
        cut = line.rfind(" ", 1, LONGEST_CHUNK)
        cut = cut if cut > 0 else LONGEST_CHUNK
        yield line[:cut]
        line = line[cut:]
    yield line


def _prepared(text: str) -> str:
    """The text as sentencepiece gets it."""
    if text.isascii() and ESCAPE not in text:
        return text
    text = unicodedata.normalize("NFC", SURROGATES.sub("\ufffd", text))
    return text.replace(ESCAPE, ESCAPE + "0").replace(SPACE, ESCAPE + "1")


def _restored(text: str) -> str:
    """The text as it was before `_prepared`."""
    if ESCAPE not in text:
        return text
    return re.sub(f"{ESCAPE}[01]", lambda found: ESCAPE if found[0][1] == "0" else SPACE, text)


def _load(content: bytes) -> tuple[sentencepiece.SentencePieceProcessor, list[str]]:
    """The model and its pieces, if it is one of ours."""
    pieces = read_pieces(content)  # sentencepiece itself would believe anything
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise ModelError(f"not a sentencepiece model: {error}") from error
    return model, pieces
