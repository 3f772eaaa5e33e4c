"""What a family of foreign models must say: the settings of ours, and the table of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regard.interop.files.settings_file import SettingsFile
from regard.interop.weight_table import Part, Row
from regard.models.config import Config

# Keys of config.json that do not change what a model computes.
HARMLESS = (
    *(
        "architectures",
        "model_type",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "_name_or_path",
        "_model_name_or_path",
    ),
    *("_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "use_cache", "initializer_range"),
    *("output_attentions", "output_hidden_states", "return_dict", "return_dict_in_generate", "torchscript"),
    *("gradient_checkpointing", "task_specific_params", "problem_type", "finetuning_task", "tokenizer_class"),
    *("prefix", "id2label", "label2id", "num_labels", "use_bfloat16", "transformers.js_config", "license"),
    *("is_llama_config", "attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "unsloth_version"),
)


class TokenIds(NamedTuple):
    """The special tokens of a folder, from its tokenizer and its settings for generation."""

    start: int | None
    ends: tuple[int, ...]
    pad: int | None
    unknown: int | None
    size: int  # tokens of the tokenizer
    before: tuple[int, ...]  # what stands before a text
    after: tuple[int, ...]

    def settings(self, vocabulary: int) -> dict[str, object]:
        """Return the settings of our config."""
        end = self.ends[0]
        start = next((token for token in (*self.before[:1], self.start) if token is not None), end)
        return {
            "pad_id": end if self.pad is None else self.pad,
            "unknown_id": self.unknown,
            "start_id": start,
            "end_ids": self.ends,
            "barred_ids": (),
            "tokenizer_size": self.size if self.size < vocabulary else None,
        }


@dataclass(frozen=True)
class Plan:
    """How a model of theirs becomes one of ours."""

    config: Config
    rows: list[Row]
    prefix: str  # of the names of their weights, in some files
    unused: str = ""  # a pattern of weights that the model does not need
    copies: Mapping[str, str] = field(default_factory=dict)  # weights that must equal another one if they are there
    context: int | None = None
    notes: Sequence[str] = ()  # for the model card
    excluded: Sequence[int] = ()  # tokens of the output whose probability is 0: their bias becomes EXCLUDED


def check_common(settings: SettingsFile, architectures: Sequence[str], *, encoder_decoder: bool = False) -> None:
    """Check the keys that every family has, and refuse what no family supports."""
    settings.must_be("quantization_config", why="regard reads only weights that are not quantized")
    settings.must_be("auto_map", why="the model has code of its own, which regard does not run")
    settings.must_be("is_encoder_decoder", encoder_decoder)
    settings.must_be("is_decoder", *([False] if encoder_decoder else [True, False]))
    settings.must_be("add_cross_attention", False)
    settings.must_be("chunk_size_feed_forward", 0)
    settings.must_be("pruned_heads", {})
    settings.must_be("architectures", *([name] for name in architectures), why=f"not one of {', '.join(architectures)}")
    settings.ignore("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", *HARMLESS)


def linear_rows(ours: str, theirs: str, rows: int) -> list[Row]:
    """Return the rows of a weight and a bias with the same names on both sides."""
    return [Row(f"{ours}.{what}", (Part(f"{theirs}.{what}", rows),)) for what in ("weight", "bias")]
