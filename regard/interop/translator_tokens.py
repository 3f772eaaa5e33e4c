"""The special tokens of a translation model in the format of Hugging Face, and how its authors search.

generation_config.json has precedence over config.json, where older folders keep the same keys.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.errors import ModelError
from regard.interop.files.settings_file import SettingsFile
from regard.models.folder.config_file import MAX_BEAM, MAX_PENALTY, shortened

# Of generation_config.json and of older config.json: what has no effect on the search of a translator.
HARMLESS = (
    *("_from_model_config", "transformers_version", "output_attentions", "output_hidden_states", "use_cache"),
    *("return_dict_in_generate", "output_scores", "output_logits", "cache_implementation", "trust_remote_code"),
    *("bos_token_id", "max_length", "max_new_tokens", "temperature", "top_k", "top_p", "typical_p", "epsilon_cutoff"),
    *("eta_cutoff", "num_return_sequences", "min_p", "num_assistant_tokens", "assistant_early_exit"),
)


class TranslatorTokens(NamedTuple):
    """The special tokens of a folder, and what its authors say about the search."""

    start: int
    ends: tuple[int, ...]
    pad: int
    unknown: int | None
    barred: tuple[int, ...]  # never chosen
    renormalized: bool  # whether the probabilities leave out what is barred
    forced_first: int | None  # the token that every target begins with
    search: dict[str, Any]  # for config.json
    notes: tuple[str, ...]
    size: int  # tokens of the smaller tokenizer

    def settings(self, vocabulary: int) -> dict[str, object]:
        """Return the settings of our config for a model with so many rows."""
        return {
            "pad_id": self.pad,
            "unknown_id": self.unknown,
            "start_id": self.start,
            "end_ids": self.ends,
            "barred_ids": self.barred,
            "tokenizer_size": self.size if self.size < vocabulary else None,
        }


def read_tokens(
    settings: SettingsFile, generation: SettingsFile, *, unknown: int | None, size: int, start: int | None = None
) -> TranslatorTokens:
    """Return the tokens that both files name; `unknown` and `size` come from the tokenizers."""
    pair = _Pair(settings, generation)
    ends, pads, starts = (pair.tokens(key) for key in ("eos_token_id", "pad_token_id", "decoder_start_token_id"))
    starts = starts or (() if start is None else (start,))
    for key, tokens in (("eos_token_id", ends), ("pad_token_id", pads), ("decoder_start_token_id", starts)):
        if not tokens or (key != "eos_token_id" and len(tokens) > 1):
            raise ModelError(f"{settings.path}: there is no {key}, which a translation model needs")
    barred = _barred(pair)
    forced = pair.tokens("forced_bos_token_id")
    if wrong := [token for token in (*ends, *pads, *starts, *barred, *forced) if token >= size]:
        raise ModelError(f"{settings.path}: token {wrong[0]} is none of the {size} of the tokenizer")
    if {*ends} & {*barred}:
        raise ModelError(f"{settings.path}: bad_words_ids has the end token {ends[0]}")
    forced_end = pair.tokens("forced_eos_token_id")
    if not {*forced_end} <= {*ends}:
        raise ModelError(f"{settings.path}: forced_eos_token_id is {forced_end[0]}, and eos_token_id {ends[0]}")
    for key in ("suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids", "sequence_bias", "stop_strings"):
        pair.must_be(key, [])
    for key, values in (
        *(("no_repeat_ngram_size", (0,)), ("encoder_no_repeat_ngram_size", (0,)), ("min_length", (0,))),
        *(("repetition_penalty", (1.0, 1)), ("encoder_repetition_penalty", (1.0, 1)), ("diversity_penalty", (0.0, 0))),
        *(("num_beam_groups", (1,)), ("do_sample", (False,)), ("remove_invalid_values", (False,))),
        *(("guidance_scale", ()), ("exponential_decay_length_penalty", ()), ("penalty_alpha", ())),
    ):
        pair.must_be(key, *values)
    renormalized = bool(pair.take("renormalize_logits", bool, False))
    search, notes = _search(pair)
    generation.ignore(*HARMLESS)
    settings.ignore(*HARMLESS)
    generation.finish()
    return TranslatorTokens(
        starts[0], ends, pads[0], unknown, barred, renormalized, forced[0] if forced else None, search, notes, size
    )


class _Pair:
    """Takes a key from both files."""

    def __init__(self, settings: SettingsFile, generation: SettingsFile) -> None:
        self.files = (generation, settings)

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        values: list[Any] = [file.take(key, kind, None) for file in self.files]
        return next((value for value in values if value is not None), default)

    def tokens(self, key: str) -> tuple[int, ...]:
        values = [file.take_tokens(key) for file in self.files]
        return values[0] or values[1]

    def must_be(self, key: str, *values: Any) -> None:
        for file in self.files:
            file.must_be(key, *values)


def _barred(pair: _Pair) -> tuple[int, ...]:
    words = pair.take("bad_words_ids", list, [])
    if not all(isinstance(word, list) and len(word) == 1 and type(word[0]) is int and word[0] >= 0 for word in words):
        raise ModelError(
            f"{pair.files[1].path}: bad_words_ids is {shortened(words)}; regard takes lists of one token each"
        )
    return tuple(dict.fromkeys(word[0] for word in words))


def _search(pair: _Pair) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the usual search, and a note if it differs from what transformers does."""
    beam, penalty = pair.take("num_beams", int, 1), pair.take("length_penalty", float, 1.0)
    if not 1 <= beam <= MAX_BEAM or not 0 <= penalty <= MAX_PENALTY:
        raise ModelError(f"{pair.files[1].path}: num_beams is {beam} and length_penalty {penalty}, out of range")
    early: Any = [file.content.get("early_stopping") for file in pair.files]
    for file in pair.files:
        file.must_be("early_stopping", True, False, "never")
    stops = next((value for value in early if value is not None), False)
    notes = [f"The usual search is that of its authors: a beam of {beam} with length penalty {penalty:g}."]
    if beam > 1 and stops != "never":
        notes.append(
            f"transformers stops this search with early_stopping={stops}; regard's beam stops by its own rule "
            "(Beam.patience), so a few translations can differ. Beam(patience=None) is early_stopping='never'."
        )
    return {"beam": beam, "length_penalty": penalty}, tuple(notes)
