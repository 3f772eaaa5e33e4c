"""The settings of models for images and series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from regard.layers.block import ORDERS
from regard.layers.feedforward import Activation
from regard.models.config.base import COUNT, Config, vocabulary_of
from regard.models.config.stack import StackConfig
from regard.positions import SCHEMES
from regard.settings import SHARE, SettingError, ValueRule, choice, number
from regard.text.tokenizers.special_tokens import SPECIAL_TOKENS

IMAGE_POOLINGS = ("class", "mean")
IMAGE_STEMS = ("patches", "convolutions", "pooled-convolutions")
PIXELS = ValueRule(least=1, most=2**12)  # on a side
POINTS = ValueRule(least=1, most=2**16)  # in time


def refuse_scaling(config: StackConfig) -> None:
    """Raise SettingError if vectors that are no embeddings of tokens shall be scaled as those are."""
    if config.scale_embedding:
        raise SettingError("scale_embedding", "scale_embedding is for tokens, and this model has none")


def check_stem(stem: str, *, patch: int, dim: int) -> None:
    """Raise an error if convolutions cannot halve an image until a patch is a pixel."""
    if stem != "patches" and (patch < 2 or patch & (patch - 1) or dim % patch):
        message = f"convolutions halve the image until a patch is a pixel: patch={patch} must be 2, 4, 8 …, and divide"
        raise SettingError("stem", f"{message} dim={dim}", "patch", "dim")


@dataclass(frozen=True, kw_only=True)
class ImageClassifierConfig(StackConfig):
    """The Vision Transformer. Sizes of images and patches: Dosovitskiy et al. 2021."""

    activation: str = choice("gelu", get_args(Activation))
    order: str = choice("pre", ORDERS)
    position: str = choice("learned", SCHEMES)
    vocabulary: int = vocabulary_of("target")  # the labels, and the special tokens before them
    height: int = number(224, rule=PIXELS)
    width: int = number(224, rule=PIXELS)
    channels: int = number(3, rule=ValueRule(least=1, most=4))
    patch: int = number(16, rule=PIXELS)  # pixels on a side
    stem: str = choice("patches", IMAGE_STEMS)  # what turns pixels into vectors: one linear layer, or convolutions
    scale_embedding: bool = False
    pooling: str = choice("class", IMAGE_POOLINGS)  # the state of a class token, or the mean of all patches
    position_axes: int = number(2, rule=ValueRule(least=1, most=2))  # of sinusoids: row and column, or the number

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_scaling(self)
        for name in ("height", "width"):
            if (size := getattr(self, name)) % self.patch:
                raise SettingError("patch", f"patch={self.patch} does not divide {name}={size}", name)
        check_stem(self.stem, patch=self.patch, dim=self.dim)
        if self.classes < 1:
            message = f"vocabulary={self.vocabulary} leaves no label beside the special tokens"
            raise SettingError("vocabulary", message)
        if self.position_axes == 1 and self.position != "sinusoidal":
            message = f"position_axes is a setting of position = 'sinusoidal', and position is {self.position!r}"
            raise SettingError("position_axes", message, "position")
        if self.two_axes and self.dim % 4:
            message = f"sinusoids of two axes need a dim that is a multiple of 4, got {self.dim}: set position_axes = 1"
            raise SettingError("dim", message, "position")
        if self.two_axes and (self.position_start or self.frequency_start):
            message = "position_start and frequency_start are for sinusoids of one axis: set position_axes = 1"
            raise SettingError("position_axes", message, "position_start", "frequency_start")
        if SCHEMES[self.position].limited and self.tokens > self.max_length:
            message = f"max_length={self.max_length} is less than the {self.tokens} tokens of an image"
            raise SettingError("max_length", message)

    @property
    def kind(self) -> str:
        return "image-classifier"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers}

    @property
    def classes(self) -> int:
        """The number of labels."""
        return self.vocabulary - len(SPECIAL_TOKENS)

    @property
    def grid(self) -> tuple[int, int]:
        """The rows and columns of patches."""
        return self.height // self.patch, self.width // self.patch

    @property
    def tokens(self) -> int:
        """The patches of an image, and the class token if there is one."""
        return self.grid[0] * self.grid[1] + (self.pooling == "class")

    @property
    def two_axes(self) -> bool:
        """Whether a patch is marked with its row and its column."""
        return self.position == "sinusoidal" and self.position_axes == 2


@dataclass(frozen=True, kw_only=True)
class ForecasterConfig(StackConfig):
    """A Transformer encoder over patches of a series. Patches and lengths: Nie et al. 2023, PatchTST/42."""

    activation: str = choice("gelu", get_args(Activation))
    order: str = choice("pre", ORDERS)
    position: str = choice("learned", SCHEMES)
    lookback: int = number(336, rule=POINTS)  # points in time that are read
    horizon: int = number(96, rule=POINTS)  # points that are forecast
    patch: int = number(16, rule=POINTS)  # points of a patch
    stride: int = number(8, rule=POINTS)  # points between the starts of two patches
    scale_embedding: bool = False
    instance_norm: bool = True  # each window is standardised, and its forecast scaled back (Kim et al. 2022)
    head_dropout: float = number(0.0, rule=SHARE)  # before the last layer
    shortcut: bool = False  # a linear forecast, fitted by least squares, is added to the Transformer's
    shortcut_dropout: float = number(0.0, rule=SHARE)  # share of the points that are dropped when it is fitted

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_scaling(self)
        if self.patch > self.lookback:
            message = f"a patch of {self.patch} points is longer than lookback={self.lookback}"
            raise SettingError("patch", message, "lookback")
        if self.stride > self.patch:
            message = f"with stride={self.stride}, points between patches of {self.patch} would not be read"
            raise SettingError("stride", message, "patch")
        if self.shortcut_dropout and not self.shortcut:
            raise SettingError("shortcut_dropout", "shortcut_dropout is a setting of shortcut = true", "shortcut")
        if SCHEMES[self.position].limited and self.patches > self.max_length:
            message = f"max_length={self.max_length} is less than the {self.patches} patches of a window"
            raise SettingError("max_length", message)

    @property
    def kind(self) -> str:
        return "forecaster"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers}

    @property
    def patches(self) -> int:
        """The patches of a window, which is extended by one stride at its end."""
        return (self.lookback - self.patch) // self.stride + 2


@dataclass(frozen=True, kw_only=True)
class LinearForecasterConfig(Config):
    """DLinear: one linear layer for the trend of a series and one for the rest."""

    lookback: int = number(336, rule=POINTS)  # points in time that are read
    horizon: int = number(96, rule=POINTS)  # points that are forecast
    window: int = number(25, rule=COUNT)  # points of the moving average that is the trend
    dropout: float = number(0.0, rule=ValueRule(least=0, most=0))  # a linear model has none

    @property
    def kind(self) -> str:
        return "dlinear"

    @property
    def patches(self) -> int:
        """The tokens of a column; it is not cut."""
        return 1

    @property
    def width(self) -> int:
        return self.lookback
