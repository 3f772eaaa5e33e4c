"""The settings of word vectors: the method that trains them, and its sizes."""

from __future__ import annotations

from dataclasses import dataclass

from regard.models.config.base import COUNT, SIZE, Config, vocabulary_of
from regard.settings import SettingError, ValueRule, choice, number

METHODS = ("skip-gram", "cbow", "glove", "imported")
ONLY_FOR = {"negatives": ("skip-gram", "cbow"), "subsample": ("skip-gram", "cbow"), "max_count": ("glove",)}


@dataclass(frozen=True, kw_only=True)
class WordVectorConfig(Config):
    """Vectors of words; "imported" ones come from a file and cannot be trained further."""

    vocabulary: int = vocabulary_of("target")
    dropout: float = number(0.0, rule=ValueRule(least=0, most=0))  # there is nothing to drop out
    method: str = choice("skip-gram", METHODS)
    dim: int = number(100, rule=SIZE)
    window: int = number(5, rule=COUNT)  # words on each side that count as context
    negatives: int = number(5, rule=COUNT)  # words of the noise distribution for each true one
    subsample: float = number(1e-3, rule=ValueRule(above=0, most=1))  # more frequent words are partly left out
    max_count: float = number(100.0, rule=ValueRule(above=0))  # from this count on, the weight of GloVe's loss is 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, methods in ONLY_FOR.items():
            if self.method not in methods and getattr(self, name) != getattr(type(self), name):
                message = f"{name} is a setting of {' and '.join(methods)}, and method is {self.method!r}"
                raise SettingError(name, message, "method")

    @property
    def kind(self) -> str:
        return "word-vectors"

    @property
    def width(self) -> int:
        return self.dim
