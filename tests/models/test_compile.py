"""torch.compile: Transformers and single steps as whole graphs, one graph for all lengths.

B batch   n source tokens   m target tokens
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from regard import (
    EncoderConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
    make_model,
)
from regard.positions import POSITIONS

from ..repeats import by_default

STACK: dict[str, Any] = {"layers": 1, "dim": 8, "heads": 2, "hidden": 12, "dropout": 0.0}
CELL: dict[str, Any] = {"embedding": 6, "hidden": 8, "dropout": 0.0}
SIDES = {"source_vocabulary": 11, "target_vocabulary": 11}
CELLS = ("rnn", "gru", "lstm")


@pytest.fixture(params=["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def counter(request: pytest.FixtureRequest) -> Iterator[CompileCounterWithBackend]:
    """A backend that counts the graphs it is given; starts and ends without any compiled code.

    "eager" runs the graph as it was traced. "aot_eager" also traces the backward pass, which takes as long again.
    """
    torch.compiler.reset()
    yield CompileCounterWithBackend(request.param)
    torch.compiler.reset()


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(1, 11, (batch, length))


MODERN: dict[str, Any] = {"order": "pre", "norm": "rms", "activation": "swiglu", "position": "rotary"}
WHOLE = {
    **{f"transformer {name}": TransformerConfig(**STACK, **SIDES, position=name) for name in POSITIONS},
    "lm modern": TransformerLMConfig(**STACK, **MODERN, vocabulary=11),
    "lm relative": TransformerLMConfig(**STACK, vocabulary=11, position="relative"),
    "encoder mean": EncoderConfig(**STACK, vocabulary=11, position="learned"),
    "encoder learned": EncoderConfig(**STACK, vocabulary=11, pooling="learned", position="t5"),
}


# tests/positions compiles the positions
@pytest.mark.parametrize("name", by_default({"transformer sinusoidal", "lm modern"}, WHOLE))
def test_transformers(name: str, counter: CompileCounterWithBackend) -> None:
    """Two lengths without a second recompilation: the first graph is for its length, the second for any."""
    trained = name.startswith("lm")  # a backward pass costs seconds
    if trained:
        counter.backend = "aot_eager"
    model = make_model(WHOLE[name])
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for n, m in ((5, 4), (7, 6)):
        inputs = (tokens(2, n), tokens(2, m)) if WHOLE[name].kind == "transformer" else (tokens(2, n),)
        inputs[0][0, -1] = 0  # padding
        with torch.set_grad_enabled(trained):
            want, got = model(*inputs), compiled(*inputs)
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
        if trained:
            upstream = torch.randn_like(want)
            wants, gots = (torch.autograd.grad(y, list(model.parameters()), upstream) for y in (want, got))
            torch.testing.assert_close(gots, wants, atol=1e-4, rtol=1e-3)
    assert counter.frame_count <= 2


STEPS = {
    **{f"{cell} none": RecurrentTranslatorConfig(**CELL, **SIDES, cell=cell, attention="none") for cell in CELLS},
    **{f"{cell} bahdanau": RecurrentTranslatorConfig(**CELL, **SIDES, cell=cell) for cell in CELLS},
    **{
        f"{cell} luong": RecurrentTranslatorConfig(
            **CELL, **SIDES, cell=cell, attention="bilinear", style="luong", input_feeding=True
        )
        for cell in CELLS
    },
    **{f"{cell} lm": RecurrentLMConfig(**CELL, vocabulary=11, cell=cell, layers=2) for cell in CELLS},
}


@pytest.mark.parametrize("name", by_default({"gru bahdanau", "lstm luong"}, STEPS))
@torch.no_grad()
def test_one_step_of_a_recurrent_decoder(name: str, counter: CompileCounterWithBackend) -> None:
    """One graph for all steps, and at most one more for sources of all other lengths."""
    model: Any = make_model(STEPS[name]).eval()
    step = torch.compile(lambda y, s: model.project(model.decode(y, state=s)), fullgraph=True, backend=counter)
    for n in (5, 7):
        source = tokens(2, n)
        one, other = (model.start(model.encode(source) if "lm" not in name else 2) for _ in range(2))
        for _ in range(3):
            y = tokens(2, 1)
            torch.testing.assert_close(step(y, one), model.project(model.decode(y, state=other)))
        if n == 5:
            assert counter.frame_count == 1
    assert counter.frame_count <= 2


@pytest.mark.parametrize("position", by_default({"t5"}, ["sinusoidal", "rotary", "t5"]))
@torch.no_grad()
def test_one_compiled_step_serves_many(position: str, counter: CompileCounterWithBackend) -> None:
    """With a static cache no number of the step is in the graph: one graph for a whole text, rows apart or not."""
    model: Any = make_model(TransformerConfig(**STACK, **SIDES, position=position)).eval()
    encoded = model.encode(tokens(2, 7))
    fixed, growing = model.start(encoded, 16, static=True), model.start(encoded, 16)
    step = torch.compile(lambda y, s: model.project(model.decode(y, state=s)), fullgraph=True, backend=counter)
    for _ in range(6):
        y = tokens(2, 1)
        torch.testing.assert_close(step(y, fixed), model.project(model.decode(y, state=growing)))
    assert counter.frame_count == 1


@torch.no_grad()
def test_a_growing_cache_compiles_too(counter: CompileCounterWithBackend) -> None:
    model: Any = make_model(TransformerLMConfig(**STACK, vocabulary=11, position="rotary")).eval()
    text = tokens(2, 6)
    state = model.start(2, 8)
    step = torch.compile(lambda y, s: model.project(model.decode(y, state=s)), fullgraph=True, backend=counter)
    got = torch.cat([step(y, state) for y in text.split(1, dim=1)], dim=1)
    torch.testing.assert_close(got, model(text), atol=1e-5, rtol=1e-5)
    assert counter.frame_count <= 3


WHOLE_RECURRENT = {
    "bahdanau": RecurrentTranslatorConfig(**CELL, **SIDES, cell="gru"),
    "luong": RecurrentTranslatorConfig(**CELL, **SIDES, cell="lstm", attention="dot", style="luong"),
    "none": RecurrentTranslatorConfig(**CELL, **SIDES, cell="rnn", attention="none"),
    "lm": RecurrentLMConfig(**CELL, vocabulary=11, cell="gru"),
}


@pytest.mark.parametrize("name", by_default({"lm"}, WHOLE_RECURRENT))
@torch.no_grad()
def test_recurrent_models_as_a_whole_compile(name: str, counter: CompileCounterWithBackend) -> None:
    counter.backend = "eager"  # the loop over tokens is unrolled, and "aot_eager" takes seconds for it
    model = make_model(WHOLE_RECURRENT[name])
    compiled = torch.compile(model, backend=counter)
    inputs = (tokens(2, 3),) if name == "lm" else (tokens(2, 3), tokens(2, 2))
    torch.testing.assert_close(compiled(*inputs), model(*inputs), atol=1e-5, rtol=1e-5)
    assert counter.frame_count > 0
