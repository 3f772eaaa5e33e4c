"""Make tokenizer.json of the merges or scores that other formats contain.

Byte-level BPE (Radford et al. 2019) has merges of letters that stand for bytes; sentencepiece's BPE (Kudo and
Richardson 2018) has a score for each token and merges the pair whose token has the highest one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

from regard.errors import ModelError
from regard.models.folder.config_file import shortened
from regard.text.tokenizers.imported import ImportedTokenizer
from regard.text.tokenizers.imported_file import LLAMA3_SPLIT, QWEN2_SPLIT
from regard.text.tokenizers.tokenizer import SPACE

# How texts are split before bytes are merged, by the name in GGUF files.
SPLITS = {
    "gpt-2": "gpt2",
    "default": "gpt2",
    "smollm": "smollm",
    "qwen2": "qwen2",
    "deepseek-r1-qwen": "qwen2",
    "llama-bpe": "llama3",
    "llama3": "llama3",
    "llama-v3": "llama3",
}


def byte_level_tokenizer(
    tokens: Sequence[str],
    merges: Sequence[str],
    *,
    split: str,
    special: Collection[int] = (),
    verbatim: Collection[int] = (),
    before: Sequence[int] = (),
) -> ImportedTokenizer:
    """Return a byte-level BPE; `split` is one of SPLITS, `verbatim` are tokens that a text contains as they are."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    kind = SPLITS[split]
    if not all(" " in merge for merge in merges):
        raise ModelError("a merge does not name two tokens")
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    model = _made(lambda: models.BPE(_table(tokens), pairs, ignore_merges=kind == "llama3"))
    library = Tokenizer(model)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if kind == "gpt2":
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif kind == "smollm":
        parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        library.pre_tokenizer = pre_tokenizers.Sequence(parts)
    else:
        pattern = QWEN2_SPLIT if kind == "qwen2" else LLAMA3_SPLIT
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), bytes_only])
    if kind == "qwen2":
        library.normalizer = normalizers.NFC()
    library.decoder = decoders.ByteLevel()
    return _finished(library, tokens, special, verbatim, before)


def scored_tokenizer(
    tokens: Sequence[str],
    scores: Sequence[float],
    *,
    unknown: int | None,
    special: Collection[int] = (),
    verbatim: Collection[int] = (),
    before: Sequence[int] = (),
    prefix: bool = True,
) -> ImportedTokenizer:
    """Return a BPE of sentencepiece: a space is ▁, a byte `<0x00>`; with `prefix`, a text begins with a space."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    table = _table(tokens)
    apart = {*special, *verbatim}
    usual = {token: number for token, number in table.items() if number not in apart}
    merges = []
    for token, number in usual.items():
        for cut in range(1, len(token)):
            left, right = usual.get(token[:cut]), usual.get(token[cut:])
            if left is not None and right is not None:
                merges.append((-scores[number], left, right, token[:cut], token[cut:]))
    merges.sort(key=lambda merge: merge[:3])
    pairs = [(left, right) for *_, left, right in merges]
    bytes_known = "<0x00>" in table
    name = None if unknown is None else tokens[unknown]
    library = Tokenizer(
        _made(lambda: models.BPE(table, pairs, unk_token=name, fuse_unk=True, byte_fallback=bytes_known))
    )
    replaced: list[Any] = [normalizers.Replace(" ", SPACE)]
    library.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), *replaced] if prefix else replaced)
    parts: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if prefix else parts)
    return _finished(library, tokens, special, verbatim, before)


def _finished(
    library: Any, tokens: Sequence[str], special: Collection[int], verbatim: Collection[int], before: Sequence[int]
) -> ImportedTokenizer:
    from tokenizers import AddedToken, processors

    library.add_special_tokens(
        [AddedToken(tokens[number], special=True, normalized=False) for number in sorted(special)]
    )
    library.add_tokens([AddedToken(tokens[number], normalized=False) for number in sorted(verbatim)])
    if before:
        names = [tokens[number] for number in before]
        numbers = [(tokens[number], number) for number in dict.fromkeys(before)]
        library.post_processor = processors.TemplateProcessing(single=[*names, "$A"], special_tokens=numbers)
    return ImportedTokenizer(library.to_str().encode())


def _table(tokens: Sequence[str]) -> dict[str, int]:
    table = {token: number for number, token in enumerate(tokens)}
    if len(table) < len(tokens):
        repeated = next(token for number, token in enumerate(tokens) if table[token] != number)
        raise ModelError(f"the token {shortened(repr(repeated))} occurs twice")
    return table


def _made(make: Any) -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        return make()
    except Exception as error:  # the library raises nothing more specific
        raise ModelError(f"the tokenizers library cannot use these tokens: {shortened(error)}") from error
