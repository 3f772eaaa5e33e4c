"""Write the tokenizers of a translation model as MarianTokenizer of transformers reads them.

source.spm and target.spm are sentencepiece models; vocab.json numbers the pieces of both, or those of the source if
target_vocab.json is there.
"""

from __future__ import annotations

import json
from typing import Any

from regard.errors import UsageError
from regard.interop.exports.hub_tokenizer import compare
from regard.interop.exports.model_source import ModelSource, vocabulary_of
from regard.text.tokenizers.pieces import PieceTokenizer, make_piece_file
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS, UNKNOWN
from regard.text.tokenizers.subwords import SubwordTokenizer
from regard.text.tokenizers.tokenizer import Tokenizer


def are_piece_tokenizers(source: ModelSource) -> bool:
    """Whether both tokenizers are sentencepiece models."""
    return all(isinstance(tokenizer, PieceTokenizer | SubwordTokenizer) for tokenizer in source.tokenizers)


def tokenizer_files(source: ModelSource) -> dict[str, bytes]:
    """Return the files by name; UsageError if MarianTokenizer cannot do what the tokenizers do."""
    special = source.special
    sides = [_as_pieces(tokenizer) for tokenizer in source.tokenizers]
    names = [vocabulary_of(side, side.size) for side in sides]
    separate = names[0] != names[1]
    roles = {"eos_token": special.end, "unk_token": special.unknown, "pad_token": special.pad}
    for key, token in roles.items():
        if token is not None and names[0][token] != names[1][token]:
            raise UsageError(f"source and target have different names for {key}; --to ct2 takes them")
    settings: dict[str, Any] = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
        **{key: names[1][token] for key, token in roles.items() if token is not None},
    }
    languages = source.info.get("languages") or {}
    settings |= {f"{side}_lang": languages[side] for side in ("source", "target") if languages.get(side)}
    files: dict[str, Any] = {"vocab.json": names[0], **({"target_vocab.json": names[1]} if separate else {})}
    numbered = {name: {piece: number for number, piece in enumerate(tokens)} for name, tokens in files.items()}
    texts = {"tokenizer_config.json": settings, **numbered}
    return {
        **{name: json.dumps(content, ensure_ascii=False, indent=1).encode() for name, content in texts.items()},
        "source.spm": sides[0].model,
        "target.spm": sides[1].model,
    }


def _as_pieces(tokenizer: Tokenizer) -> PieceTokenizer:
    """Return a tokenizer as Marian's; that of regard must split texts of its own tokens in the same way."""
    if isinstance(tokenizer, PieceTokenizer):
        return tokenizer
    model = tokenizer.save()[1]
    special = range(len(SPECIAL_TOKENS))
    pieces = PieceTokenizer(
        make_piece_file(model, vocabulary_of(tokenizer, tokenizer.size), unknown=UNKNOWN, special=special)
    )
    compare(tokenizer, pieces, plain_texts=True)
    return pieces
