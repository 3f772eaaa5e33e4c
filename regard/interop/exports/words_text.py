"""Write word vectors as a text file of word2vec, which gensim and many other tools read."""

from __future__ import annotations

from pathlib import Path

from regard.errors import UsageError
from regard.interop.exports.model_source import ModelSource, new_file
from regard.layers.word_vectors import write_vectors
from regard.models.config import WordVectorConfig
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS
from regard.text.tokenizers.words import WordTokenizer

STORAGES = ("float32",)


def export(source: ModelSource, out: Path, storage: str) -> None:
    """Write the file, without the special tokens; `storage` is float32, in digits."""
    tokenizer = source.tokenizers[1]
    if not isinstance(source.config, WordVectorConfig) or not isinstance(tokenizer, WordTokenizer):
        raise UsageError(f"a model of the kind {source.config.kind!r} has no word vectors; --to ct2 takes Transformers")
    vectors = source.model.vectors.detach()[len(SPECIAL_TOKENS) :].float()  # type: ignore[operator]
    with new_file(out) as path:
        write_vectors(path, tokenizer.vocabulary, vectors, format="word2vec")
