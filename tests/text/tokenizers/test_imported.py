"""Tokenizers of other libraries: their tokens, texts, pieces and words, and what is refused in their files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.api.writer import new_text
from regard.errors import ModelError
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.imported_file import PATTERNS

LINES = ["The cat sat on the mat.", "Les élèves 🙂 sont allés à l'école.", "x = 1\n\n  return  x", "don't 12345"]


def byte_level() -> Tokenizer:
    """As GPT-2, with the split of Llama 3."""
    tokenizer = Tokenizer(models.BPE())
    pattern = next(pattern for pattern in PATTERNS if "{1,3}" in pattern)
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<|end|>", "<|start|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES * 2, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", 1)])
    return tokenizer


def sentencepiece() -> Tokenizer:
    """As Llama 2: BPE with ▁ for spaces, and bytes for what the vocabulary lacks."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"acehinorstT."]
    merges = [("▁", "T"), ("h", "e"), ("a", "t"), ("▁T", "he"), ("▁", "s"), ("c", "at")]
    pieces += ["".join(pair) for pair in merges]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def wordpiece() -> Tokenizer:
    """As BERT."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "##s", "mat", ".", "on", "'"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


KINDS: dict[str, Any] = {"byte level": byte_level, "sentencepiece": sentencepiece, "wordpiece": wordpiece}


def imported(tokenizer: Tokenizer) -> ImportedTokenizer:
    return ImportedTokenizer(tokenizer.to_str().encode())


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_texts_are_those_of_the_library(kind: str) -> None:
    theirs = KINDS[kind]()
    theirs.enable_padding(length=128)  # as in the file of MiniLM
    theirs.enable_truncation(max_length=4)
    ours = imported(theirs)
    theirs.no_padding()
    theirs.no_truncation()
    for line in [*LINES, ""]:
        ids = theirs.encode(line, add_special_tokens=False).ids
        assert ours.encode(line) == ids
        assert ours.decode(ids) == theirs.decode(ids)
    assert ours.encode_all(LINES) == [ours.encode(line) for line in LINES]
    assert ours.size == theirs.get_vocab_size()
    assert ours.save() == ("tokenizer.json", ours._content)


def test_frames() -> None:
    assert imported(byte_level()).frame() == ([1], [])
    assert imported(sentencepiece()).frame() == ([1], [2])
    assert imported(wordpiece()).frame() == ([2], [3])


def test_pieces_and_words() -> None:
    ours = imported(byte_level())
    ids = [1, *ours.encode("Les élèves 🙂\n"), 0]
    assert "".join(ours.pieces(ours.encode("The cat\tsat\n"))) == "The▁cat⇥sat⏎"
    assert [word.text for word in ours.words(ids)] == ["Les", "élèves", "🙂"]
    byte = ours.encode("中")[0]
    assert ours.pieces([byte])[0].startswith("<0x")  # a part of a character
    ours = imported(sentencepiece())
    ids = ours.encode("The cat sat.")
    assert ours.pieces(ids)[0] == "▁The"
    assert [word.text for word in ours.words([1, *ids, 2])] == ["The", "cat", "sat."]
    ours = imported(wordpiece())
    ids = [2, *ours.encode("The cats zz"), 3]
    assert ours.pieces(ids) == ["[CLS]", "the", "cat", "##s", "[UNK]", "[SEP]"]
    assert [word.text for word in ours.words(ids)] == ["the", "cats", "[UNK]"]
    assert ours.decode(ids, unknown=["zebras"]) == "the catszebras"


@pytest.mark.parametrize("kind", ["byte level", "sentencepiece"])
def test_text_that_arrives_token_by_token(kind: str) -> None:
    """The parts are the whole text, and no part ends inside a character."""
    ours = imported(KINDS[kind]())
    prompt = ours.encode(LINES[0])
    for line in LINES:
        tokens = ours.encode(f" {line}")
        parts = list(new_text(ours, tokens, after=prompt))
        assert "".join(parts) == ours.decode([*prompt, *tokens])[len(ours.decode(prompt)) :]
        assert not any("\ufffd" in part for part in parts)


def test_what_is_refused() -> None:
    content = json.loads(byte_level().to_str())

    def refused(change: dict[str, Any], message: str) -> None:
        with pytest.raises(ModelError, match=message):
            ImportedTokenizer(json.dumps({**content, **change}).encode())

    evil = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    refused({"pre_tokenizer": evil}, "has the regular expression .*none of a known model")
    nested = {"type": "Sequence", "pretokenizers": [{"type": "Sequence", "pretokenizers": [evil]}]}
    refused({"pre_tokenizer": nested}, "has the regular expression")
    refused({"normalizer": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "y"}}, "the regular expression")
    refused({"normalizer": {"type": "Sequence"}}, "a Sequence without parts")
    refused({"decoder": {"type": "CTC"}}, "unknown decoder 'CTC'")
    refused({"model": {"type": "Markov"}}, "unknown kind of tokenizer 'Markov'")
    refused({"model": 3}, "the model is missing")
    refused({"program": "rm"}, "unknown part 'program'")
    refused({"added_tokens": [{"id": 10**9}]}, "cannot read it")
    refused({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}, "cannot read it")
    deep: dict[str, Any] = {"type": "NFC"}
    for _ in range(20):
        deep = {"type": "Sequence", "normalizers": [deep]}
    refused({"normalizer": deep}, "its normalizer is damaged")
    with pytest.raises(ModelError, match="not valid JSON"):
        ImportedTokenizer(b"\xff")
