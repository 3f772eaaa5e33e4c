"""Tiny models of every kind that writes text, in float64, with sharp distributions in which END comes up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.models.config import (
    Config,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.presets import make_model
from regard.text.tokenizers.special_tokens import START

from ..repeats import by_default

STACK: dict[str, Any] = {"layers": 2, "dim": 8, "heads": 2, "hidden": 12, "tie_output": False, "dropout": 0.3}
CELL: dict[str, Any] = {"layers": 2, "embedding": 6, "hidden": 8, "dropout": 0.3}
SIDES: dict[str, Any] = {"source_vocabulary": 11, "target_vocabulary": 9}
MODERN: dict[str, Any] = {"order": "pre", "norm": "rms", "activation": "swiglu", "position": "rotary", "kv_heads": 1}

CONFIGS: dict[str, Config] = {
    "transformer": TransformerConfig(**STACK, **SIDES),
    "transformer modern": TransformerConfig(**STACK, **MODERN, **SIDES),
    "transformer learned": TransformerConfig(**STACK, **SIDES, position="learned", max_length=24, order="pre"),
    "sutskever": RecurrentTranslatorConfig(**CELL, **SIDES, cell="lstm", attention="none", bidirectional=False),
    "bahdanau": RecurrentTranslatorConfig(**CELL, **SIDES, cell="gru"),
    "luong": RecurrentTranslatorConfig(
        **CELL, **SIDES, cell="lstm", attention="bilinear", style="luong", input_feeding=True
    ),
    "transformer lm": TransformerLMConfig(**STACK, vocabulary=9, position="alibi"),
    "transformer lm modern": TransformerLMConfig(**STACK, **MODERN, vocabulary=9),
    "rnn lm": RecurrentLMConfig(**CELL, vocabulary=9, cell="gru"),
    "lstm lm": RecurrentLMConfig(**CELL, vocabulary=9, cell="lstm"),
}
# Seeds whose greedy texts differ in words and length, with END at once, later and not at all: see test_engine.
SEEDS = {
    "transformer": 20,
    "transformer modern": 11,
    "transformer learned": 7,
    "sutskever": 0,
    "bahdanau": 8,
    "luong": 16,
    "transformer lm": 19,
    "transformer lm modern": 16,
    "rnn lm": 29,
    "lstm lm": 29,
}
SOURCES = [[5, 6, 7, 3], [8, 3], [4, 5, 6, 7, 9, 10, 4, 3], [3], [9, 9, 1, 3], [6, 7, 3], [10, 4, 3]]
PROMPTS = [[5, 6, 7], [], [4, 5, 6, 7, 8, 4, 8], [8], [1, 7, 7], [6, 3, 7], [4, 4]]


class Case:
    """A model and inputs of different lengths for it; `prompts` are what a language model goes on from."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(SEEDS[name])
        self.model: Any = make_model(CONFIGS[name]).double().eval()
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.dim() > 1:
                    parameter.add_(torch.randn_like(parameter))
        self.translates = hasattr(self.model, "encode")
        self.source = SOURCES if self.translates else None
        self.prefixes = None if self.translates else PROMPTS

    def inputs(self, rows: list[int]) -> dict[str, Any]:
        """The arguments of generate_tokens for these inputs, in this order."""
        return {
            "source": None if self.source is None else [self.source[i] for i in rows],
            "prefixes": None if self.prefixes is None else [self.prefixes[i] for i in rows],
        }

    def logps(self, row: int, text: list[int], prefix: list[int] | None = None) -> Tensor:
        """log p(next token) (V,) after prefix and text, by the model's plain forward pass; the decoder's start is 2."""
        if self.source is not None:
            source = torch.tensor([self.source[row]])
            logits = self.model(source, torch.tensor([[2, *(prefix or []), *text]]))
        else:
            prompt = (self.prefixes[row] if prefix is None else prefix) or [2]
            logits = self.model(torch.tensor([[*prompt, *text]]))
        return logits[0, -1].log_softmax(-1)


# A pre-norm and a post-norm Transformer, each recurrent style, and both kinds of language models.
SOME = {"transformer", "transformer modern", "bahdanau", "luong", "transformer lm", "lstm lm"}


@pytest.fixture(params=by_default(SOME, CONFIGS))
def case(request: pytest.FixtureRequest) -> Case:
    """Every kind of model that writes text, one after the other."""
    return Case(request.param)


@pytest.fixture(params=[name for name, config in CONFIGS.items() if hasattr(config, "source_vocabulary")])
def translator(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


@pytest.fixture(params=[name for name, config in CONFIGS.items() if hasattr(config, "vocabulary")])
def language_model(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


@pytest.fixture(scope="session")
def make_case() -> Callable[[str], Case]:
    return Case


class Automaton(nn.Module):
    """A language model of tables: reading token x in state s leads to state `to[s, x]`, which predicts by `logits`.

    Everything it will say can be counted out by hand, and all of the text so far may matter.
    """

    def __init__(self, logits: Tensor, to: Tensor | None = None) -> None:
        super().__init__()
        self.table = nn.Parameter(logits)  # (S, V)
        states, vocabulary = logits.shape
        # Without a table of its own: the state is the last token.
        self.to_state = torch.arange(vocabulary).repeat(states, 1) if to is None else to  # (S, V)
        self.config = self

    pad_id = 0

    class State:
        def __init__(self, at: Tensor) -> None:
            self.at = at  # (R,)

        def select(self, rows: Tensor) -> Automaton.State:
            return Automaton.State(self.at[rows])

        def repeat(self, times: int) -> Automaton.State:
            return Automaton.State(self.at.repeat_interleave(times))

        def keep(self, rows: Tensor, inputs: Tensor | None) -> Automaton.State:
            return self.select(rows)

    def start(self, batch: int, capacity: int) -> Automaton.State:
        return Automaton.State(torch.zeros(batch, dtype=torch.long))

    def decode(self, tokens: Tensor, *, state: Automaton.State | None = None) -> Tensor:
        state = self.start(len(tokens), 0) if state is None else state
        states = []
        for token in tokens.unbind(1):
            state.at = self.to_state[state.at, token]
            states.append(state.at)
        return torch.stack(states, 1)  # (R, m)

    def reader(self) -> Callable[[list[int]], list[float]]:
        """log p(next) after a text that begins with START, for searches that are written without tensors."""
        table, to = self.table.detach().log_softmax(-1).tolist(), self.to_state.tolist()

        def after(text: list[int]) -> list[float]:
            at = to[0][START]
            for token in text:
                at = to[at][token]
            return table[at]

        return after

    def project(self, states: Tensor) -> Tensor:
        return self.table[states]


@pytest.fixture(scope="session")
def make_automaton() -> Callable[..., Automaton]:
    def make(*, states: int = 12, vocabulary: int = 7, seed: int = 0, sharp: float = 2.0) -> Automaton:
        """Random tables; padding and start are as good as impossible."""
        generator = torch.Generator().manual_seed(seed)
        logits = sharp * torch.randn(states, vocabulary, generator=generator, dtype=torch.float64)
        logits[:, [0, 2]] = -1e9
        to = torch.randint(states, (states, vocabulary), generator=generator)
        return Automaton(logits, to)

    return make


@pytest.fixture(scope="session")
def automaton_of() -> Callable[..., Automaton]:
    """An automaton from probabilities: {last token: {token: p}}, START is 2."""

    def make(probabilities: dict[int, dict[int, float]], vocabulary: int = 7) -> Automaton:
        logits = torch.full((vocabulary, vocabulary), -1e9, dtype=torch.float64)
        for last, following in probabilities.items():
            for token, p in following.items():
                logits[last, token] = torch.tensor(p, dtype=torch.float64).log()
        return Automaton(logits)

    return make
