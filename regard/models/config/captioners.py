"""The settings of models that write captions of images and videos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from regard.layers.block import ORDERS
from regard.layers.feedforward import Activation
from regard.models.config.arrays import IMAGE_STEMS, PIXELS, check_stem
from regard.models.config.base import COUNT, SIZE, Config, vocabulary_of
from regard.models.config.recurrent import CELLS, RecurrentConfig
from regard.models.config.stack import StackConfig
from regard.settings import SettingError, ValueRule, choice, number


@dataclass(frozen=True, kw_only=True)
class FrameConfig(Config):
    """The sizes of an image, or of the frames of a video, and of the cells that a decoder attends to."""

    frames: int = number(1, rule=COUNT)  # of a video; 1: images
    height: int = number(224, rule=PIXELS)
    width: int = number(224, rule=PIXELS)
    channels: int = number(3, rule=ValueRule(least=1, most=4))
    patch: int = number(16, rule=PIXELS)  # pixels on a side of a cell

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("height", "width"):
            if (size := getattr(self, name)) % self.patch:
                raise SettingError("patch", f"patch={self.patch} does not divide {name}={size}", name)

    @property
    def grid(self) -> tuple[int, int, int]:
        """The frames, and the rows and columns of cells of each."""
        return self.frames, self.height // self.patch, self.width // self.patch

    @property
    def cells(self) -> int:
        """The cells of all frames."""
        frames, rows, columns = self.grid
        return frames * rows * columns


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig(FrameConfig, StackConfig):
    """A Transformer that reads patches and writes words. `position` is for the words of a caption."""

    activation: str = choice("gelu", get_args(Activation))
    order: str = choice("pre", ORDERS)
    stem: str = choice("patches", IMAGE_STEMS)  # what turns pixels into vectors: one linear layer, or convolutions
    decoder_layers: int | None = number(None, rule=COUNT)  # default: layers
    target_vocabulary: int = vocabulary_of("target")
    tie_output: bool = False  # the output layer is the embedding table (Press & Wolf 2017)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_stem(self.stem, patch=self.patch, dim=self.dim)

    @property
    def kind(self) -> str:
        return "captioner"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers, "decoder": self.decoder_layers or self.layers}


@dataclass(frozen=True, kw_only=True)
class RecurrentCaptionerConfig(FrameConfig, RecurrentConfig):
    """A convolutional network, and an LSTM with soft attention to its features. Xu et al. 2015."""

    cell: str = choice("lstm", CELLS)
    target_vocabulary: int = vocabulary_of("target")
    convolution: int = number(32, rule=SIZE)  # channels before the first pooling; each pooling doubles them
    attention_hidden: int | None = number(None, rule=SIZE)  # of the additive score; default hidden

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patch & (self.patch - 1) or self.patch < 2:
            message = f"patch={self.patch} is not a power of 2: each pooling halves the sides of an image"
            raise SettingError("patch", message)

    @property
    def kind(self) -> str:
        return "rnn-captioner"

    @property
    def stacks(self) -> dict[str, int]:
        return {"decoder": self.layers}

    @property
    def cross_layers(self) -> list[str]:
        return ["decoder.cross"]

    @property
    def poolings(self) -> int:
        """How often the sides of an image are halved."""
        return self.patch.bit_length() - 1
