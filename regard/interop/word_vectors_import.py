"""Read a text file of word vectors: word2vec's and GloVe's formats."""

from __future__ import annotations

from pathlib import Path

from regard.errors import DataError
from regard.interop.families.family import Plan
from regard.interop.files.weight_source import WeightSource
from regard.interop.weight_table import Part, Row
from regard.layers.word_vectors import read_vectors
from regard.models.config import WordVectorConfig
from regard.text.files.compressed import open_decompressed
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.text.tokenizers.words import WordTokenizer, word_tokenizer

MAX_LINE_BYTES = 2**20
VECTORS = "vectors"  # the name of the one weight of such a file


def is_vector_file(path: Path) -> bool:
    """Whether the first line of a file is a word and its numbers, or the numbers of words and columns."""
    try:
        with open_decompressed(path) as file:
            line = file.readline(MAX_LINE_BYTES)
        _, *numbers = line.decode().split()
        return bool([float(number) for number in numbers])
    except (OSError, EOFError, ValueError, DataError):
        return False


def read_word_vectors(path: Path) -> tuple[Plan, WordTokenizer, WeightSource]:
    """Return the plan, the words and the vectors of a file."""
    words, vectors = read_vectors(path)
    tokenizer = word_tokenizer(words, [0] * len(words), tokenised=True)
    config = WordVectorConfig(vocabulary=tokenizer.size, dim=vectors.shape[1], method="imported")
    special = Part(None, len(SPECIAL_TOKENS))
    rows = [
        Row("words.weight", (special, Part(VECTORS, len(words)))),
        Row("counts", (Part(None, tokenizer.size),)),
    ]
    source = WeightSource(path, {VECTORS: tuple(vectors.shape)}, {VECTORS: vectors}.__getitem__)
    return Plan(config, rows, ""), tokenizer, source
