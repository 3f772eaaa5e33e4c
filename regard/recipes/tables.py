"""The tables of a recipe: frozen dataclasses that check their values when they are created.

None means "choose for me". regard.training.recipe.schema combines the tables into a whole recipe; tasks receive it as
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
FILES = (
    *(
        f"{part}{kind}"
        for part in ("", "validation_")
        for kind in ("source", "target", "pairs", "text", "images", "speech")
    ),
    "series",
)
FORMS = ("source", "pairs", "text", "images", "series", "speech", "demo")  # how the data is given
# Of [data], for series, images and speech.
ARRAY_KEYS = (
    "variables",
    "rows",
    "shift",
    "flip",
    "erase",
    "mix",
    "scenes",
    "items",
    "joined",
    "growth",
    "speed",
    "gain",
    "noise",
    "masks",
)
TOKENIZERS = ("unigram", "bpe", "characters", "words")
OPTIMIZERS = ("adam", "adamw", "sgd", "adagrad")
CAPTURED_OPTIMIZERS = (None, "adam", "adamw")  # those whose steps can be captured as CUDA graphs
PRECISIONS = ("fp32", "bf16", "fp16", "fp8")
PARALLEL = ("ddp", "fsdp")
KERNELS = ("auto", "off")
MIXTURES = ("none", "mixup", "cutmix")
FAULTS = ("stop", "skip")
LEAST_ALPHA = 0.1  # of unigram sampling: below it, training shows mostly single letters, use mostly whole words
SHARES = ("copy", "invent", "typed", "join", "bare")  # shares of the pairs that training changes
DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


COUNT = ValueRule(least=1)
WHOLE = ValueRule(least=0)
PART = ValueRule(least=0, most=1)
POSITIVE = ValueRule(above=0)


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """The training data, in exactly one form: parallel files, pairs, text, images, a series, speech, or demo data."""

    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    images: tuple[str, ...] = ()  # folders with a folder per class or a captions.tsv, or IDX files
    series: tuple[str, ...] = ()  # one CSV file
    speech: tuple[str, ...] = ()  # folders of WAV files, or tables of paths and texts
    columns: tuple[str | int, str | int] | None = None  # of `pairs`: column numbers from 0, or keys of JSON lines
    variables: tuple[str, ...] = ()  # columns of a series; none: all
    rows: int | None = number(None, rule=COUNT)  # of a series, the first ones; None: all
    demo: int | None = number(None, rule=COUNT)  # sentence pairs, images or rows; for a language model, characters
    validation_source: tuple[str, ...] = ()
    validation_target: tuple[str, ...] = ()
    validation_pairs: tuple[str, ...] = ()
    validation_text: tuple[str, ...] = ()
    validation_images: tuple[str, ...] = ()
    validation_speech: tuple[str, ...] = ()
    validation: int | None = number(None, rule=COUNT)  # held out when there are no such files; unit as `demo`
    source_language: str | None = None
    target_language: str | None = None
    max_length: int | None = number(None, rule=COUNT)  # tokens per side; longer pairs are dropped
    context: int | None = number(None, rule=COUNT)  # tokens per window of a language model
    # Shares of the pairs that training changes, different pairs in each epoch; see PairData.
    copy: float = number(0.0, rule=SHARE)
    invent: float = number(0.0, rule=SHARE)
    typed: float = number(0.0, rule=SHARE)
    join: float = number(0.0, rule=SHARE)
    bare: float = number(0.0, rule=SHARE)
    shift: int = number(0, rule=WHOLE)  # pixels by which training moves an image, at most
    flip: bool = False  # training mirrors half of the images
    erase: float = number(0.0, rule=PART)  # share of the images of which training covers a rectangle
    mix: str = choice("none", MIXTURES)  # how training mixes each image with another one, whose class it has too
    joined: int = number(1, rule=ValueRule(least=1, most=64))  # recordings that are joined to one, at most
    growth: int = number(0, rule=WHOLE)  # epochs after which training joins one more; 0: as many from the start
    speed: float = number(0.0, rule=ValueRule(least=0, most=0.5))  # training plays them so much faster or slower
    gain: float = number(0.0, rule=ValueRule(least=0, most=60))  # decibels by which it makes them louder or quieter
    noise: float = number(0.0, rule=PART)  # share of the recordings that training adds noise to
    masks: int = number(0, rule=ValueRule(least=0, most=64))  # over time, and as many over bands (SpecAugment)
    scenes: int | None = number(None, rule=COUNT)  # captioned scenes that are composed of the images; None: none are
    items: tuple[str, ...] = ()  # of scenes: the nouns and the labels of the images that they name, "bag=8"; none: all
    names: int | None = number(
        None, rule=COUNT
    )  # capitalized words that occur less often are copied instead of spelled out
    placeholders: bool = False  # numbers, dates, addresses and names are carried over as placeholders
    faults: str = choice("stop", FAULTS)  # what to do with a line that cannot be read

    def __post_init__(self) -> None:
        check_fields(self, "data")
        for key in ("", "validation_"):
            self._check_sides(key)
        if (files := self._form("validation_")) is not None:
            if files != self.form:
                raise SettingError(
                    f"data.validation_{files}",
                    f"validation_{files} does not match {self.form}: validation files must have the same form as the "
                    f"training files",
                )
            if self.validation is not None:
                raise SettingError(
                    "data.validation",
                    "validation holds out training samples, but there are validation files: remove one of the two",
                )
        if self.columns is not None and self.form != "pairs":
            raise SettingError("data.columns", f"columns is for files of pairs, but the data is given as {self.form}")
        if len(self.series) > 1:
            raise SettingError("data.series", f"a model learns from one series, got {len(self.series)} files")

    @property
    def form(self) -> str:
        """How the data is given: one of FORMS; "source" comes with target."""
        form = self._form("")
        if form is None:
            raise SettingError(
                "data",
                "there is no training data: set source and target, or pairs, text, images, series, speech or demo",
            )
        return form

    def _form(self, prefix: str) -> str | None:
        forms = [key for key in FORMS if getattr(self, prefix + key, None)]
        if len(forms) > 1:
            raise SettingError(
                f"data.{prefix}{forms[1]}",
                f"{prefix}{forms[0]} and {prefix}{forms[1]} are both given: a recipe has one kind of data",
            )
        return forms[0] if forms else None

    def _check_sides(self, prefix: str) -> None:
        source, target = getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target")
        if len(source) != len(target):
            side = "source" if source else "target"
            raise SettingError(
                f"data.{prefix}{side}",
                f"{prefix}source and {prefix}target have {len(source)} and {len(target)} files: each source file needs "
                f"one target file, in the same order",
            )
        for left, right in zip(source, target, strict=True):
            if left == right:
                raise SettingError(f"data.{prefix}target", f"{left} is both {prefix}source and {prefix}target")


@dataclass(frozen=True, kw_only=True)
class TokenizerRecipe:
    """How text becomes tokens."""

    kind: str | None = choice(None, TOKENIZERS)
    size: int | None = number(None, rule=ValueRule(least=5, most=2**20))  # with the four special tokens
    min_count: int | None = number(None, rule=COUNT)  # of kind "words": rarer words are unknown
    shared: bool | None = None  # one vocabulary for source and target
    sampling: float = number(0.0, rule=PART)  # alpha of Kudo 2018; 0: always the most probable tokens
    tokenised: bool = False  # punctuation is already split off, so a token may contain letters and punctuation

    def __post_init__(self) -> None:
        check_fields(self, "tokenizer")
        if self.kind == "characters" and self.size is not None:
            raise SettingError("tokenizer.size", "a character tokenizer has all characters of the data: remove size")
        if self.kind == "characters" and self.sampling:
            raise SettingError("tokenizer.sampling", "characters cannot be split in several ways: remove sampling")
        if self.kind in (None, "unigram") and 0 < self.sampling < LEAST_ALPHA:
            raise SettingError(
                "tokenizer.sampling",
                f"with {self.sampling}, all ways to split a word are almost equally likely, most of them into letters: "
                "for unigram it is the power of the likelihoods, so 0 is no sampling, 0.3 is moderate, 1 is little",
            )
        if self.kind not in (None, "words") and self.min_count is not None:
            raise SettingError("tokenizer.min_count", f"min_count is for words, but kind is {self.kind}")
        if self.kind == "characters" and self.tokenised:
            raise SettingError("tokenizer.tokenised", "tokenised is for subwords, but kind is characters")


@dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """How the model is trained."""

    steps: int | None = number(None, rule=COUNT)  # updates of the weights
    batch_tokens: int | None = number(None, rule=COUNT)  # of one micro-batch: its rows times its longest row
    lr: float | None = number(None, rule=POSITIVE)  # the peak of the schedule
    warmup: int | None = number(None, rule=WHOLE)
    schedule: str | None = choice(None, SCHEDULES)
    precision: str | None = choice(None, PRECISIONS)
    device: str | None = None
    validate_every: int | None = number(None, rule=COUNT)
    save_every: int | None = number(None, rule=COUNT)
    seed: int = number(1, rule=ValueRule(least=0, below=2**63))
    accumulate: int | None = number(None, rule=COUNT)  # micro-batches per update
    optimizer: str | None = choice(None, OPTIMIZERS)
    betas: tuple[float, float] = number((0.9, 0.98), rule=SHARE)
    eps: float = number(1e-9, rule=POSITIVE)
    weight_decay: float = number(0.0, rule=WHOLE)
    floor: float = number(0.0, rule=PART)  # of the schedule, as a share of lr
    label_smoothing: float | None = number(None, rule=SHARE)
    clip: float = number(1.0, rule=WHOLE)  # maximum norm of the gradient; 0: off
    r_drop: float = number(0.0, rule=WHOLE)  # weight of R-Drop, the divergence between two passes; 0: one pass
    ema: float = number(0.0, rule=SHARE)  # decay of the exponential moving average of the weights; 0: off
    parallel: str = choice("ddp", PARALLEL)  # several processes: each has the whole model, or a shard
    kernels: str = choice("auto", KERNELS)  # "off" trains with the plain modules on every device
    compile: bool = False
    capture: bool | None = None  # on a GPU: capture the steps of each shape as CUDA graphs
    deterministic: bool = False
    log_every: int = number(50, rule=COUNT)
    keep: int = number(2, rule=COUNT)  # checkpoints to keep
    average: int = number(1, rule=COUNT)  # the model is the average of this many last checkpoints
    patience: int = number(0, rule=WHOLE)  # stop after this many validations without improvement; 0: never
    freeze: tuple[str, ...] = ()  # names of modules whose weights stay fixed
    temperature: float = number(0.05, rule=POSITIVE)  # of a sentence encoder's loss
    pointing: float = number(0.0, rule=WHOLE)  # weight of the loss of an answerer's pointer off the supporting sentence
    samples: int = number(4, rule=WHOLE)  # validation sentences shown

    def __post_init__(self) -> None:
        check_fields(self, "training")
        if self.device is not None and not DEVICE.fullmatch(self.device):
            known = ("auto", "cpu", "cuda", "cuda:0", "mps")
            raise SettingError("training.device", unknown_name("training.device", self.device, known))
        if self.optimizer in ("sgd", "adagrad") and self.betas != TrainingRecipe.betas:
            raise SettingError("training.betas", f"training.betas is for Adam, but optimizer is {self.optimizer}")
        if self.capture and self.precision == "fp16":
            raise SettingError(
                "training.capture",
                "training.capture needs fp32, bf16 or fp8: with fp16 the loss scale changes between steps",
            )
        if self.capture and self.optimizer not in CAPTURED_OPTIMIZERS:
            raise SettingError(
                "training.capture",
                f"training.capture needs adam or adamw, whose learning rate can change inside a captured step, "
                f"but optimizer is {self.optimizer}",
            )
        if self.precision == "fp8" and self.kernels == "off":
            raise SettingError(
                "training.precision",
                'training.precision = "fp8" needs the fused layers: leave out training.kernels = "off", or take "bf16"',
            )
        if self.ema and self.average > 1:
            raise SettingError(
                "training.ema", "training.ema and training.average are two ways to average the weights: choose one"
            )
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
        """Whether batches are padded to a few shapes, because each shape is compiled or captured once."""
        return self.compile or bool(self.capture)


@dataclass(frozen=True, kw_only=True)
class DecodingRecipe:
    """How validation sentences are translated."""

    beam: int = number(1, rule=COUNT)
    length_penalty: float = number(1.0, rule=ValueRule(least=0, most=10))
    sentences: int = number(500, rule=WHOLE)  # how many; 0: none, and no BLEU
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
