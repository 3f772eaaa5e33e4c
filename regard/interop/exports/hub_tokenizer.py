"""The tokenizer of a model as tokenizer.json of the `tokenizers` library.

Subwords become a model of the same kind with byte fallback, characters a table of words of one character. The result is
compared with the tokenizer itself, on texts made of its own tokens.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Sequence
from typing import Any

import sentencepiece

from regard.errors import UsageError
from regard.interop.exports.model_source import ModelSource, vocabulary_of
from regard.models.config import TransformerLMConfig
from regard.text.tokenizers.characters import CharacterTokenizer
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.imported_file import BLANKS, EACH_CHARACTER, OUTER_SPACES
from regard.text.tokenizers.special_tokens import PLACEHOLDERS, SPECIAL_TOKENS, UNKNOWN
from regard.text.tokenizers.subwords import ESCAPE, SubwordTokenizer
from regard.text.tokenizers.tokenizer import SPACE, Tokenizer

COMPARED_TEXTS = 1000


def tokenizer_files(source: ModelSource) -> dict[str, bytes]:
    """Return tokenizer.json and tokenizer_config.json; UsageError if the library cannot do what the tokenizer does."""
    first, tokenizer = source.tokenizers
    if first is not tokenizer:
        raise UsageError("transformers has one tokenizer for both sides of this class; --to ct2 takes two")
    names = vocabulary_of(tokenizer, source.config.vocabularies[-1])
    special = source.special
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    settings |= {"eos_token": names[special.end], "pad_token": names[special.pad]}
    if special.unknown is not None:
        settings["unk_token"] = names[special.unknown]
    if isinstance(tokenizer, ImportedTokenizer):
        content = tokenizer.save()[1]
    else:
        content = _library_file(tokenizer, _around(source, names))
        compare(tokenizer, ImportedTokenizer(content))
    return {"tokenizer.json": content, "tokenizer_config.json": json.dumps(settings, indent=2).encode()}


def _around(source: ModelSource, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of the tokens before and after a text."""
    if isinstance(source.config, TransformerLMConfig):
        return [names[token] for token in source.before_target()], []
    before, after = source.around_source()
    return [names[token] for token in before], [names[token] for token in after]


def _library_file(tokenizer: Tokenizer, around: tuple[list[str], list[str]]) -> bytes:
    from tokenizers import AddedToken, Tokenizer as Library, processors

    if isinstance(tokenizer, CharacterTokenizer):
        library = _characters(tokenizer)
    elif isinstance(tokenizer, SubwordTokenizer):
        library = _subwords(tokenizer)
    else:
        raise UsageError(f"the tokenizers library has no form of a {type(tokenizer).__name__}; --to ct2 takes it")
    assert isinstance(library, Library)
    library.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL_TOKENS])
    before, after = around
    if before or after:
        template = [*before, "$A", *after]
        numbers = [(name, library.token_to_id(name)) for name in dict.fromkeys((*before, *after))]
        library.post_processor = processors.TemplateProcessing(single=template, special_tokens=numbers)
    return library.to_str().encode()


def _characters(tokenizer: CharacterTokenizer) -> Any:
    from tokenizers import Regex, Tokenizer as Library, decoders, models, normalizers, pre_tokenizers

    names = vocabulary_of(tokenizer, tokenizer.size)
    library = Library(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=SPECIAL_TOKENS[UNKNOWN]))
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.Split(Regex(EACH_CHARACTER), "isolated")
    library.decoder = decoders.Fuse()
    return library


def _subwords(tokenizer: SubwordTokenizer) -> Any:
    from tokenizers import Regex, Tokenizer as Library, decoders, models, normalizers, pre_tokenizers

    if tokenizer.lossless:
        raise UsageError("the tokenizers library splits a lossless subword tokenizer otherwise; --to ct2 takes it")
    content = tokenizer.save()[1]
    pieces = sentencepiece.SentencePieceProcessor(model_proto=content)
    names = vocabulary_of(tokenizer, tokenizer.size)
    scores = [pieces.get_score(number) for number in range(len(names))]
    unigram = any(score != int(score) for score in scores)
    if not unigram:
        raise UsageError("a subword tokenizer with merges (bpe) has no form in the tokenizers library yet")
    library = Library(models.Unigram(list(zip(names, scores, strict=True)), UNKNOWN, byte_fallback=True))
    escapes = {ESCAPE: ESCAPE + "0", SPACE: ESCAPE + "1"}
    blanks = [normalizers.Replace(Regex(BLANKS), " "), normalizers.Replace(Regex(OUTER_SPACES), "")]
    library.normalizer = normalizers.Sequence(
        [*blanks, normalizers.NFC(), *(normalizers.Replace(*escape) for escape in escapes.items())]
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    restored = [decoders.Replace(escaped, character) for character, escaped in reversed(escapes.items())]
    library.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(replacement=SPACE), decoders.Fuse(), *restored]
    )
    return library


def _is_plain(text: str) -> bool:
    """Whether our tokenizer leaves a text as it is."""
    return " ".join(text.split()) == text and not {SPACE, ESCAPE} & {*text} and unicodedata.is_normalized("NFC", text)


def compare(ours: Tokenizer, theirs: Tokenizer, *, plain_texts: bool = False) -> None:
    """Raise UsageError unless both split texts made of our tokens in the same way, and join them to the same text.

    With `plain_texts`, the other tokenizer takes a text as it is, so all are in NFC, with single spaces and no ▁.
    """
    draws = random.Random(0)
    for _ in range(COMPARED_TEXTS):
        tokens = [draws.randrange(len(SPECIAL_TOKENS), ours.size) for _ in range(draws.randrange(1, 12))]
        text = ours.decode(tokens)
        if any(placeholder in text for placeholder in PLACEHOLDERS):  # no text contains them
            continue
        if plain_texts and not _is_plain(text):
            continue
        expected = ours.encode(text)
        if theirs.encode(text) != expected or theirs.decode(expected) != ours.decode(expected):
            raise UsageError(
                f"the other tool splits {text!r} into {theirs.pieces(theirs.encode(text))}, and the model "
                f"into {ours.pieces(expected)}; --to ct2 takes its tokenizer as it is"
            )
