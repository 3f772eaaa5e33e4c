"""Tiny models of every kind, in float64, so that "the same" can mean to 1e-10.

B batch   n source tokens   m target tokens   V vocabulary
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention.scores import SCORES
from regard.models.config import (
    CELLS,
    Config,
    EncoderConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.presets import make_model
from regard.positions import POSITIONS

from ..repeats import by_default

STACK: dict[str, Any] = {"layers": 2, "dim": 8, "heads": 2, "hidden": 12, "max_length": 16}
CELL: dict[str, Any] = {"layers": 2, "embedding": 6, "hidden": 8}
SIDES: dict[str, Any] = {"source_vocabulary": 11, "target_vocabulary": 13}
MODERN: dict[str, Any] = {  # what newer models chose, all at once
    "order": "pre",
    "norm": "rms",
    "activation": "swiglu",
    "position": "rotary",
    "kv_heads": 1,
    "qk_norm": True,
    "bias": False,
    "scale_embedding": False,
}


def random(**settings: Any) -> dict[str, Any]:
    """Settings of a model with random features."""
    return {"attention": "random-features", "random_features": {"features": 8, **settings}}


MIXED: dict[str, Any] = {
    **random(exact_heads=["decoder.*.self:0", "decoder.0.cross", "decoder.1.cross:1"], gate=True),
    "window": 3,
}
# A fraction needs the length of the whole sentence, so it cannot be decoded step by step (B5).
STEPWISE = [position for position in POSITIONS if position != "fraction"]

TRANSLATORS: dict[str, Config] = {
    **{f"transformer {p}": TransformerConfig(**STACK, **SIDES, position=p) for p in STEPWISE},
    "transformer modern": TransformerConfig(**{**STACK, **MODERN, "decoder_layers": 1, "tie_output": False}, **SIDES),
    "transformer slices": TransformerConfig(**STACK, **SIDES, form="slice", order="pre", activation="gelu"),
    "transformer random": TransformerConfig(**STACK, **SIDES, **random(), position="rotary"),
    "transformer mixed": TransformerConfig(**STACK, **SIDES, **MIXED, attention_dropout=0.1),
    **{f"{cell} none": RecurrentTranslatorConfig(**CELL, **SIDES, cell=cell, attention="none") for cell in CELLS},
    **{f"{cell} bahdanau": RecurrentTranslatorConfig(**CELL, **SIDES, cell=cell) for cell in CELLS},
    **{
        f"{cell} luong fed": RecurrentTranslatorConfig(
            **CELL, **SIDES, cell=cell, attention="bilinear", style="luong", input_feeding=True
        )
        for cell in CELLS
    },
    **{
        f"gru {style} {score}": RecurrentTranslatorConfig(**CELL, **SIDES, attention=score, style=style)
        for style, score in zip(cycle(("bahdanau", "luong")), SCORES, strict=False)
    },
    "one way": RecurrentTranslatorConfig(**CELL, **SIDES, bidirectional=False, encoder_hidden=5, attention_hidden=3),
    "tied": RecurrentTranslatorConfig(**{**CELL, "embedding": 8}, **SIDES, tie_output=True),
}
LANGUAGE_MODELS: dict[str, Config] = {
    **{f"lm {p}": TransformerLMConfig(**STACK, vocabulary=13, position=p) for p in ("learned", "relative", "alibi")},
    "lm modern": TransformerLMConfig(**{**STACK, **MODERN}, vocabulary=13, tie_output=False),
    "lm random": TransformerLMConfig(**STACK, **random(gate=True), vocabulary=13, position="rotary", kv_heads=1),
    "lm mixed": TransformerLMConfig(
        **STACK, **random(exact_heads=["decoder.*.self:1"]), window=3, vocabulary=13, position="learned", bias=False
    ),
    "lm window": TransformerLMConfig(**STACK, vocabulary=13, position="alibi", window=3),
    **{f"{cell} lm": RecurrentLMConfig(**CELL, vocabulary=13, cell=cell) for cell in CELLS},
    "tied lm": RecurrentLMConfig(**{**CELL, "embedding": 8}, vocabulary=13, tie_output=True),
}
ENCODERS: dict[str, Config] = {
    **{p: EncoderConfig(**STACK, vocabulary=11, pooling=p) for p in ("mean", "max", "first", "learned")},
    "random": EncoderConfig(**STACK, **random(), vocabulary=11),
}

SOURCE = torch.tensor([[5, 6, 7, 3, 0, 0], [3, 4, 5, 6, 7, 9], [8, 2, 1, 0, 0, 0]])
TARGET = torch.tensor([[2, 5, 6, 7, 12], [2, 8, 9, 1, 4], [2, 3, 3, 10, 11]])


class Case:
    """A model with the one way in which all of them are called."""

    def __init__(self, config: Config, *, dtype: torch.dtype = torch.float64) -> None:
        self.config: Any = config
        self.model: Any = make_model(config).to(dtype).eval()
        self.translates = hasattr(self.model, "encode")
        self.recurrent = hasattr(config, "cell")
        # Sums, windows and recurrent states have one size, whatever they have read.
        self.capacity = not self.recurrent and self.config.attention == "softmax" and self.config.window is None

    def full(self, target: Tensor, source: Tensor) -> Tensor:
        """Logits of a whole target (B, m, V); a language model has no use for the source."""
        return self.model(source, target) if self.translates else self.model(target)

    def start(self, source: Tensor, capacity: int = 8, *, static: bool = False) -> Any:
        first = self.model.encode(source) if self.translates else len(source)
        return self.model.start(first, capacity, static=static)

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        return self.model.project(self.model.decode(tokens, state=state))

    @property
    def target_embedding(self) -> nn.Module:
        """The layer that looks up target tokens."""
        if self.recurrent:
            return self.model.decoder.embedding if self.translates else self.model.embedding
        return self.model.target.embedding if self.translates else self.model.input.embedding


def case_of(configs: dict[str, Config], name: str) -> Case:
    torch.manual_seed(1)
    return Case(configs[name])


# Every position scheme, cell, style and option once or more; their other combinations are slow.
SOME = {
    "transformer learned",
    "transformer relative",
    "transformer t5",
    "transformer modern",
    "transformer slices",
    "transformer mixed",
    "lstm none",
    "rnn bahdanau",
    "gru luong fed",
    f"gru luong {[*SCORES][1]}",
    "one way",
    "tied",
    "lm alibi",
    "lm modern",
    "lm random",
    "lm window",
    "lstm lm",
    "tied lm",
}


@pytest.fixture(params=by_default(SOME, [*TRANSLATORS, *LANGUAGE_MODELS]))
def case(request: pytest.FixtureRequest) -> Case:
    """Every model that writes text, one after the other."""
    return case_of({**TRANSLATORS, **LANGUAGE_MODELS}, request.param)


@pytest.fixture(params=by_default(SOME, TRANSLATORS))
def translator(request: pytest.FixtureRequest) -> Case:
    return case_of(TRANSLATORS, request.param)


@pytest.fixture(params=[name for name in TRANSLATORS if name.startswith("transformer")])
def transformer(request: pytest.FixtureRequest) -> Case:
    return case_of(TRANSLATORS, request.param)


@pytest.fixture(params=ENCODERS)
def encoder(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(1)
    return make_model(ENCODERS[request.param]).double().eval()


@pytest.fixture(params=by_default(SOME | {"mean", "first", "learned"}, [*TRANSLATORS, *LANGUAGE_MODELS, *ENCODERS]))
def any_config(request: pytest.FixtureRequest) -> Config:
    return {**TRANSLATORS, **LANGUAGE_MODELS, **ENCODERS}[request.param]


@pytest.fixture
def source() -> Tensor:
    """Three sentences (3, 6), two of them padded."""
    return SOURCE.clone()


@pytest.fixture
def target() -> Tensor:
    """(3, 5), each behind the start token."""
    return TARGET.clone()
