"""Subword tokenizers, by sentencepiece: BPE or unigram.

Sennrich et al. 2016 (BPE); Kudo 2018 (unigram, sampling); Provilkov et al. 2020 (BPE dropout); Kudo and Richardson 2018
(sentencepiece). reference_bpe.py implements BPE in 40 lines.
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
from regard.text.tokenizers.characters import VISIBLE
from regard.text.tokenizers.placeholder_tokens import PlaceholderTokens
from regard.text.tokenizers.segmentations import Segmentations
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START, UNKNOWN
from regard.text.tokenizers.subword_file import read_pieces
from regard.text.tokenizers.tokenizer import SPACE, Word, group_words
from regard.text.tokenizers.word_table import WordTable, table_arrays

Kind = Literal["unigram", "bpe"]
KINDS = ("unigram", "bpe")
BYTES = 256
MAX_CHOSEN_SIZE = 32_000
MAX_TRAINING_LINES = 1_000_000
CHUNK_CHARACTERS = 1_000  # sentencepiece silently drops lines of more than 4,192 bytes
MANY_CHARACTERS = 1_000

# sentencepiece writes a space as ▁, so a ▁ in the text itself is escaped: ESCAPE and a digit.
ESCAPE = "\x1a"
SURROGATES = re.compile("[\ud800-\udfff]")
BREAKS = re.compile("[\t-\r\x1c-\x1f\x85\u2028\u2029]")  # tabs and line breaks, which separate words as spaces do


class SubwordTokenizer:
    """Maps text to subwords and back, with a sentencepiece model.

    Texts are first normalized to Unicode NFC. For lossless models, decode(encode(text)) is always the text in NFC. For
    other models it is equal up to spaces: tabs and line breaks become spaces, runs of spaces become one, and leading
    and trailing spaces are removed.
    Characters without a token are encoded as bytes, so encode never returns UNKNOWN. Half surrogates, which are not
    characters, become U+FFFD. encode(decode(tokens)) = tokens is not guaranteed: a text has many segmentations. Each
    placeholder (special_tokens.py) is one token.
    """

    FILE = "tokenizer.model"

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._model, pieces = _load(content)
        self._placeholders = PlaceholderTokens(self._model)
        self.lossless = self._model.decode(self._model.encode(" ")) == " "
        self._shown = [VISIBLE.get(piece, piece) for piece in pieces]
        blank = (SPACE, "\n", "\t")
        self._parts = re.compile(" *[^ ]+| +" if self.lossless else "[^ ]+")
        self._blanks = [(piece.startswith(blank), not piece.strip("".join(blank))) for piece in pieces]
        # The text of each token that is ordinary text: no special token, no byte, no escape.
        first = len(SPECIAL_TOKENS) + BYTES
        self._texts = [None if ESCAPE in piece else piece.replace(SPACE, " ") for piece in pieces]
        self._texts[:first] = [None] * first
        self._decoded = ["" if token in (PAD, START, END) else text for token, text in enumerate(self._texts)]

    @property
    def size(self) -> int:
        return self._model.get_piece_size()

    def encode(self, text: str) -> list[int]:
        return self._placeholders.fold(text, self._model.encode(_prepared(text, lossless=self.lossless)))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self._model.encode([_prepared(text, lossless=self.lossless) for text in texts])
        return [self._placeholders.fold(text, tokens) for text, tokens in zip(texts, encoded, strict=True)]

    def sample_all(self, texts: Sequence[str], *, seed: int, alpha: float) -> list[list[int]]:
        """Return each text in a random segmentation that depends only on the arguments.

        Unigram models sample a word's segmentation with its probability to the power alpha (Kudo 2018), so 0 is the
        most random; BPE models drop each merge with probability alpha (Provilkov et al. 2020), so 0 changes nothing.
        """
        if not 0 <= alpha <= 1:
            raise UsageError(f"alpha must be between 0 and 1, got {alpha}")
        arrays = table_arrays(map(self.cut, texts), self.segmentations(alpha))
        return list(WordTable(arrays).draw(random_keys(len(texts), seed)))

    def cut(self, text: str) -> list[str]:
        """Split a text into words, which are segmented independently, because no token continues after a space."""
        return self._parts.findall(_prepared(text, lossless=self.lossless))

    def segmentations(self, alpha: float) -> Segmentations:
        """Return the segmentations of words from which `sample_all` chooses."""
        return Segmentations(self._model, alpha=alpha)

    def decode(self, tokens: Sequence[int], *, unknown: Sequence[str] = ()) -> str:
        """Return the text. An UNKNOWN is a word, with a space before it unless it is the first."""
        texts = [self._decoded[token] for token in tokens]
        if None not in texts:
            text = "".join(texts)  # type: ignore[arg-type]
            return text if self.lossless else text.lstrip(" ")
        content = self._placeholders.unfold([int(token) for token in tokens if token not in (PAD, START, END)])
        if UNKNOWN not in content:
            return _restored(self._model.decode(content))
        text, replacements = "", iter(unknown)
        for is_unknown, group in groupby(content, UNKNOWN.__eq__):
            run = list(group)
            if is_unknown:
                for word in islice(replacements, len(run)):
                    text += " " * bool(text and word) + word
            else:
                # sentencepiece removes the space of the first token, except in lossless models
                space = bool(text) and not self.lossless and self._blanks[run[0]][0]
                text += " " * space + _restored(self._model.decode(run))
        return text

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return [self._shown[token] for token in tokens]

    def words(self, tokens: Sequence[int]) -> list[Word]:
        """Return the words. A space (in lossless models also a line break or tab) belongs to the word after it."""
        return [Word(self._word(tokens[start:end]), start, end) for start, end in self._spans(tokens)]

    def _word(self, tokens: Sequence[int]) -> str:
        """Return the text of a word. Most words need no decoder: their tokens, side by side, are their text."""
        texts = [self._texts[token] for token in tokens]
        text = self.decode(tokens, unknown=[SPECIAL_TOKENS[UNKNOWN]]) if None in texts else "".join(texts)  # type: ignore[arg-type]
        return text.strip(" \n\t")

    def save(self) -> tuple[str, bytes]:
        return self.FILE, self._content

    def _spans(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Return the spans of words. An UNKNOWN is a word, and text that follows without a space is another one."""
        flags = [None if token in (PAD, UNKNOWN, START, END) else self._blanks[token] for token in tokens]
        for i in self._placeholders.word_starts(tokens):
            flags[i] = (True, False)
        spans = group_words(flags)
        unknowns = [(i, i + 1) for i, token in enumerate(tokens) if token == UNKNOWN]
        return sorted(spans + unknowns) if unknowns else spans


def train_subwords(
    texts: Iterable[str], *, size: int | None, kind: Kind, lossless: bool, tokenised: bool = False
) -> SubwordTokenizer:
    """Learn a subword vocabulary from texts; the same texts give the same bytes.

    With size None, the vocabulary has one subword for each word that occurs at least five times, in addition to the
    characters and the bytes (at least three times the characters, for writing without spaces), up to 32,000 and to what
    the data allows. More than a million lines are sampled evenly. `lossless` is for language models: spaces are
    preserved, and line breaks and tabs are tokens. `tokenised` says that the text is tokenized, with spaces around
    punctuation, so a subword may contain both letters and punctuation ("qu&apos;").
    """
    if kind not in KINDS:
        raise UsageError(unknown_name("kind of subwords", kind, KINDS))
    lines = [line for text in texts for line in _prepared(text, lossless=lossless).split("\n") if line.strip()]
    lines = lines[:: -(-len(lines) // MAX_TRAINING_LINES) or 1]
    if not lines:
        raise DataError("there are no words to learn a vocabulary from: the texts are empty")
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
            # Each chunk of a line once: sentencepiece would take hours for a megabyte of repetition.
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
            # With thousands of characters, the rarest are encoded as bytes.
            character_coverage=1.0 if len(characters) < MANY_CHARACTERS else 0.9995,
            num_threads=4,  # fixed, because unigram training depends on it (order of summation)
            minloglevel=2,
            **spaces,
        )
    except RuntimeError as error:
        raise UsageError(_size_advice(str(error), wanted)) from error
    return SubwordTokenizer(model.getvalue())


def _chosen_size(lines: Sequence[str], characters: int) -> int:
    """Return the vocabulary size that train_subwords chooses."""
    words = Counter(word for line in lines for word in re.findall(r"\w+", line))
    frequent = sum(count >= 5 for count in words.values())
    return min(MAX_CHOSEN_SIZE, BYTES + len(SPECIAL_TOKENS) + max(characters + frequent, 3 * characters))


def _size_advice(message: str, size: int) -> str:
    """sentencepiece's complaint about the size in our words; it names the limit that it found."""
    if limit := re.search(r"too high.*?<= *(\d+)", message):
        return f"a vocabulary of {size} is larger than the data allows: choose at most {limit[1]}, or let it be chosen"
    if limit := re.search(r"smaller than required_chars\D*\d+ vs (\d+)", message):
        return (
            f"a vocabulary of {size} is too small for the characters of the data and the {BYTES} bytes: "
            f"choose more than {limit[1]}, or omit the size"
        )
    return f"no vocabulary of size {size} could be learned: {message}"


def _chunks(line: str) -> Iterator[str]:
    """Split a line into chunks that sentencepiece accepts, at spaces if possible."""
    while len(line) > CHUNK_CHARACTERS:
        cut = line.rfind(" ", 1, CHUNK_CHARACTERS)
        cut = cut if cut > 0 else CHUNK_CHARACTERS
        yield line[:cut]
        line = line[cut:]
    yield line


def _prepared(text: str, *, lossless: bool) -> str:
    """Normalize and escape a text for sentencepiece."""
    if not lossless:
        text = BREAKS.sub(" ", text)
    if text.isascii() and ESCAPE not in text:
        return text
    text = unicodedata.normalize("NFC", SURROGATES.sub("\ufffd", text))
    return text.replace(ESCAPE, ESCAPE + "0").replace(SPACE, ESCAPE + "1")


def _restored(text: str) -> str:
    """Undo the escapes of `_prepared`."""
    if ESCAPE not in text:
        return text
    return re.sub(f"{ESCAPE}[01]", lambda escape: ESCAPE if escape[0][1] == "0" else SPACE, text)


def _load(content: bytes) -> tuple[sentencepiece.SentencePieceProcessor, list[str]]:
    """Load a model and its pieces after checking that regard wrote it."""
    pieces = read_pieces(content)  # sentencepiece itself does not check its input
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise ModelError(f"not a sentencepiece model: {error}") from error
    return model, pieces
