"""The tables of a recipe: frozen dataclasses that are checked when they are made.

None means "choose for me". regard.training.recipe.schema puts the tables together to a whole recipe; tasks see it as
`RecipeTables`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from regard.errors import UsageError, unknown_name
from regard.recipes.schedule import SCHEDULES, check_schedule
from regard.settings import SHARE, SettingError, ValueRule, check_fields, choice, number

# The keys of [data] that name files.
FILES = tuple(f"{part}{kind}" for part in ("", "validation_") for kind in ("source", "target", "pairs", "text"))
TOKENIZERS = ("unigram", "bpe", "characters")
OPTIMIZERS = ("adam", "adamw")
PRECISIONS = ("fp32", "bf16", "fp16")
PARALLEL = ("ddp", "fsdp")
KERNELS = ("auto", "off")
FAULTS = ("stop", "skip")
LEAST_ALPHA = 0.1  # of unigram sampling: below it a model learns to spell, and meets words whole only when it is used
SHARES = ("copy", "invent", "typed", "join", "bare")  # of the pairs that are changed in training
DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


COUNT = ValueRule(least=1)
WHOLE = ValueRule(least=0)
PART = ValueRule(least=0, most=1)
POSITIVE = ValueRule(above=0)


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """What is learnt from: parallel files, files of pairs, plain text, or the demo corpus; one kind of them."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    columns: tuple[str | int, str | int] | None = None  # of `pairs`: column numbers from 0, or keys of JSON lines
    demo: int | None = number(None, rule=COUNT)  # sentence pairs; for a language model, characters
    validation_source: tuple[str, ...] = ()
    validation_target: tuple[str, ...] = ()
    validation_pairs: tuple[str, ...] = ()
    validation_text: tuple[str, ...] = ()
    validation: int | None = number(None, rule=COUNT)  # held out when there are no such files; unit as `demo`
    source_language: str | None = None
    target_language: str | None = None
    max_length: int | None = number(None, rule=COUNT)  # tokens a side; longer pairs are left out
    context: int | None = number(None, rule=COUNT)  # tokens a window of a language model
    # Shares of the pairs that are changed, others in each epoch; PairData says how.
    copy: float = number(0.0, rule=SHARE)
    invent: float = number(0.0, rule=SHARE)
    typed: float = number(0.0, rule=SHARE)
    join: float = number(0.0, rule=SHARE)
    bare: float = number(0.0, rule=SHARE)
    names: int | None = number(None, rule=COUNT)  # with a capital, met less often than that: copied, not spelled out
    placeholders: bool = False  # numbers, dates, addresses and names are carried over as placeholders
    faults: str = choice("stop", FAULTS)  # what happens at a line that cannot be read

    def __post_init__(self) -> None:
        check_fields(self, "data")
        for key in ("", "validation_"):
            self._check_sides(key)
        if (files := self._form("validation_")) is not None:
            if files != self.form:
                raise SettingError(
                    f"data.validation_{files}",
                    f"validation_{files} does not go with {self.form}: validation files have the form of the training "
                    f"files",
                )
            if self.validation is not None:
                raise SettingError("data.validation", "validation holds samples out, but validation files are given")
        if self.columns is not None and self.form != "pairs":
            raise SettingError("data.columns", f"columns belongs to pairs, and the data is given as {self.form}")

    @property
    def form(self) -> str:
        """How the data is given: "source" (and target), "pairs", "text" or "demo"."""
        form = self._form("")
        if form is None:
            raise SettingError("data", "no training data: give source and target, or pairs, or text, or demo")
        return form

    def _form(self, prefix: str) -> str | None:
        given = [key for key in ("source", "pairs", "text", "demo") if getattr(self, prefix + key, None)]
        if len(given) > 1:
            raise SettingError(
                f"data.{prefix}{given[1]}",
                f"{prefix}{given[0]} and {prefix}{given[1]} are both given: one kind of data a recipe",
            )
        return given[0] if given else None

    def _check_sides(self, prefix: str) -> None:
        source, target = getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target")
        if len(source) != len(target):
            side = "source" if source else "target"
            raise SettingError(
                f"data.{prefix}{side}",
                f"{prefix}source and {prefix}target have {len(source)} and {len(target)} files: they go side by side, "
                f"the first with the first",
            )
        for left, right in zip(source, target, strict=True):
            if left == right:
                raise SettingError(f"data.{prefix}target", f"{left} is both {prefix}source and {prefix}target")


@dataclass(frozen=True, kw_only=True)
class TokenizerRecipe:
    """How text becomes tokens."""

    kind: str | None = choice(None, TOKENIZERS)
    size: int | None = number(None, rule=ValueRule(least=5, most=2**20))  # with the four special tokens
    shared: bool | None = None  # one vocabulary for source and target
    sampling: float = number(0.0, rule=PART)  # 0: always the best pieces (Kudo 2018's alpha)
    tokenised: bool = False  # the text is split at its marks already, so pieces may hold letters and marks

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer")
        if self.kind == "characters" and self.size is not None:
            raise SettingError("tokenizer.size", "a character tokenizer has the characters of the data: leave size out")
        if self.kind == "characters" and self.sampling:
            raise SettingError("tokenizer.sampling", "characters cannot be cut in several ways: leave sampling out")
        if self.kind in (None, "unigram") and 0 < self.sampling < LEAST_ALPHA:
            raise SettingError(
                "tokenizer.sampling",
                f"{self.sampling} makes all ways to cut a word almost equally likely, most letter by letter: "
                "for unigram it is the power that likelihoods are raised to, 0 for none, 0.3 for some, 1 for little",
            )
        if self.kind == "characters" and self.tokenised:
            raise SettingError("tokenizer.tokenised", "tokenised is for pieces of words, and kind is characters")


@dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """How the weights are found."""

    steps: int | None = number(None, rule=COUNT)  # updates of the weights
    batch_tokens: int | None = number(None, rule=COUNT)  # rows times the longest, of one micro-batch
    lr: float | None = number(None, rule=POSITIVE)  # the peak of the schedule
    warmup: int | None = number(None, rule=WHOLE)
    schedule: str | None = choice(None, SCHEDULES)
    precision: str | None = choice(None, PRECISIONS)
    device: str | None = None
    validate_every: int | None = number(None, rule=COUNT)
    save_every: int | None = number(None, rule=COUNT)
    seed: int = number(1, rule=ValueRule(least=0, below=2**63))
    accumulate: int | None = number(None, rule=COUNT)  # micro-batches an update
    optimizer: str = choice("adamw", OPTIMIZERS)
    betas: tuple[float, float] = number((0.9, 0.98), rule=SHARE)
    eps: float = number(1e-9, rule=POSITIVE)
    weight_decay: float = number(0.0, rule=WHOLE)
    floor: float = number(0.0, rule=PART)  # of the schedule, as a share of lr
    label_smoothing: float | None = number(None, rule=SHARE)
    clip: float = number(1.0, rule=WHOLE)  # the gradient's norm; 0: off
    r_drop: float = number(0.0, rule=WHOLE)  # the weight of R-Drop's agreement of two passes; 0: one pass
    ema: float = number(0.0, rule=SHARE)  # decay of the exponential mean of the weights; 0: no mean
    parallel: str = choice("ddp", PARALLEL)  # with several processes: each holds the whole model, or a part
    kernels: str = choice("auto", KERNELS)  # "off" trains with the plain modules on every device
    compile: bool = False
    capture: bool | None = None  # on a GPU: steps of each shape are recorded once and repeated without Python
    deterministic: bool = False
    log_every: int = number(50, rule=COUNT)
    keep: int = number(2, rule=COUNT)  # checkpoints that stay
    average: int = number(1, rule=COUNT)  # the model is the mean of this many last checkpoints
    patience: int = number(0, rule=WHOLE)  # validations without gain before the end; 0: never
    freeze: tuple[str, ...] = ()  # names of parts that keep their weights
    temperature: float = number(0.05, rule=POSITIVE)  # of a sentence encoder's loss
    samples: int = number(4, rule=WHOLE)  # validation sentences shown

    def __post_init__(self) -> None:
        check_fields(self, "training")
        if self.device is not None and not DEVICE.fullmatch(self.device):
            known = ("auto", "cpu", "cuda", "cuda:0", "mps")
            raise SettingError("training.device", unknown_name("training.device", self.device, known))
        if self.capture and self.precision == "fp16":
            raise SettingError(
                "training.capture", "training.capture goes with fp32 and bf16: fp16 scales its loss by itself"
            )
        if self.ema and self.average > 1:
            raise SettingError("training.ema", "training.ema and training.average are two means: choose one")
        if self.schedule is not None:
            try:  # with stand-ins for what is still open, or known only with the model
                check_schedule(
                    kind=self.schedule,
                    peak=self.lr or 1.0,
                    warmup=1 if self.warmup is None else self.warmup,
                    steps=self.steps or sys.maxsize,
                    dim=1,
                    floor=self.floor,
                )
            except UsageError as error:
                raise SettingError("training.schedule", f"training.schedule: {error}") from error

    @property
    def fixed_shapes(self) -> bool:
        """Whether batches come in few shapes, filled up with padding: each shape is compiled or recorded once."""
        return self.compile or bool(self.capture)


@dataclass(frozen=True, kw_only=True)
class DecodingRecipe:
    """How validation sentences are translated."""

    beam: int = number(1, rule=COUNT)
    length_penalty: float = number(1.0, rule=ValueRule(least=0, most=10))
    sentences: int = number(500, rule=WHOLE)  # how many of them; 0: none, so no BLEU
    max_tokens: int | None = number(None, rule=COUNT)

    def __post_init__(self) -> None:
        check_fields(self, "decoding")


class RecipeTables(Protocol):
    """All tables of a recipe, as a task sees them."""

    @property
    def kind(self) -> str:
        """The kind of model."""

    @property
    def data(self) -> DataRecipe: ...

    @property
    def tokenizer(self) -> TokenizerRecipe: ...

    @property
    def model(self) -> Mapping[str, Any]: ...

    @property
    def training(self) -> TrainingRecipe: ...

    @property
    def decoding(self) -> DecodingRecipe: ...
