"""Every fast decoder refuses a model with a trait that it does not know, and the plain modules write the text."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from copy import deepcopy
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from regard.attention.multihead import MultiHeadAttention
from regard.decoding.cpu import c_decoder
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.engine import generate_tokens
from regard.decoding.gpu import captured_search, captured_step, support
from regard.decoding.model_step import encode, prefill
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.models.config import TransformerConfig
from regard.models.presets import make_model
from regard.traits import traits_of

from ..repeats import some

SIZES: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 2, "hidden": 24, "position": "rotary", "order": "pre"}
SOURCES = [[5, 6, 7, 3], [8, 9, 3]]
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")


def make(device: str = "cpu") -> Any:
    torch.manual_seed(3)
    config = TransformerConfig(**SIZES, source_vocabulary=20, target_vocabulary=20)
    return make_model(config).eval().to(device)


def texts(model: Any) -> list[list[int]]:
    return [
        best.tokens
        for search in (Greedy(), Beam(3))
        for best, *_ in generate_tokens(model, SOURCES, search=search, max_tokens=7)
    ]


def ask_captured_search(model: Any) -> str | None:
    return captured_search.why_not(model, Greedy())


def ask_captured_step(model: Any) -> str | None:
    state = prefill(model, torch.tensor([[2]]), encode(model, SOURCES[:1]), capacity=4)[1]
    return captured_step.why_not(model, state, torch.tensor([[5]]))


def ask_c_decoder(model: Any) -> str | None:
    """Asked of a model that was packed; weights that are packed already stay as they are."""
    return c_decoder.why_not(pack_weights(model, "packed"))


ENGINES: dict[str, Callable[[Any], str | None]] = {
    "captured search": ask_captured_search,
    "captured step": ask_captured_step,
    "C decoder": ask_c_decoder,
}
PLACES: dict[str, Callable[[Any], nn.Module]] = {
    "attention": lambda model: model.decoder.blocks[1].self_attention,
    "cross-attention": lambda model: model.decoder.blocks[0].cross_attention,
    "feed-forward": lambda model: model.decoder.blocks[1].feed_forward,
    "norm": lambda model: model.decoder.blocks[0].feed_norm,
    "final norm": lambda model: model.decoder.norm,
    "position scheme": lambda model: model.decoder.blocks[0].self_attention.position,
    "block": lambda model: model.decoder.blocks[1],
    "model": lambda model: model,
}


def accepted() -> Any:
    """Return a model that the GPU decoder has accepted: it must notice what changes afterwards."""
    model = make()
    assert ask_captured_search(model) is None
    return model


def add_trait(module: nn.Module, trait: str) -> None:
    """Give this one module another trait, as a new option of its class would."""
    kind = type(module)
    module.__class__ = type(
        kind.__name__, (kind,), {"traits": property(lambda self: kind.traits.__get__(self) | {trait})}
    )


@pytest.fixture(autouse=True)
def on_this_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the GPU decoder about models on the CPU, as if that captured graphs."""
    monkeypatch.setattr(support, "DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(support, "has_triton", lambda: True)
    monkeypatch.setenv("REGARD_GRAPHS", "1")


@pytest.fixture
def modules_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine see that the GPU decoder is not for this device; the questions are asked before."""
    monkeypatch.setattr(support, "DEVICES", ("cuda",))


needs_c = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: the C decoder refuses everything without one")


@needs_c
@pytest.mark.parametrize("engine", ENGINES)
def test_a_known_model_is_accepted(engine: str) -> None:
    assert ENGINES[engine](make()) is None


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_invented_trait_is_refused_by_name(engine: str, place: str) -> None:
    model = accepted()
    add_trait(PLACES[place](model), "invented")
    assert "invented" in traits_of(model)
    reason = ENGINES[engine](model)
    assert reason is not None and "invented" in reason


def test_an_accepted_model_can_be_forgotten() -> None:
    model = accepted()
    assert ask_captured_search(model) is None  # remembered
    gone = ref(model)
    del model
    gc.collect()
    assert gone() is None


@needs_c
@pytest.mark.parametrize("place", some(PLACES, 3))
def test_the_modules_write_the_same_text(place: str, modules_decode: None) -> None:
    """With the C decoder, and after it refuses: before packing and after it."""
    plain, packed = make(), pack_weights(make(), "packed")
    assert packed.c_decoder is not None
    want = texts(plain)
    assert texts(packed) == want
    add_trait(PLACES[place](packed), "invented")
    state = prefill(packed, torch.tensor([[2]]), encode(packed, SOURCES[:1]), capacity=4)[1]
    assert "invented" in (packed.c_decoder.why_not(state, torch.tensor([[5]])) or "")
    assert texts(packed) == want
    late = make()
    add_trait(PLACES[place](late), "invented")
    assert pack_weights(late, "packed").c_decoder is None and texts(late) == want


class TwiceAttention(MultiHeadAttention):
    """A user's own attention, which declares no traits of its own."""

    def forward(self, *args: Any, **options: Any) -> Any:
        return 2 * super().forward(*args, **options)


class OwnAttention(nn.Module):
    """A user's own module around an attention layer."""

    def __init__(self, inner: MultiHeadAttention) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        return 2 * self.inner(x, **options)

    def new_cache(self, *args: Any, **options: Any) -> Any:
        return self.inner.new_cache(*args, **options)


def replace_class(model: Any) -> None:
    model.decoder.blocks[1].self_attention.__class__ = TwiceAttention


def replace_module(model: Any) -> None:
    block = model.decoder.blocks[1]
    block.self_attention = OwnAttention(block.self_attention)


def replace_forward(model: Any) -> None:
    attention = model.decoder.blocks[1].self_attention
    forward = attention.forward
    attention.forward = lambda *args, **options: 2 * forward(*args, **options)


class TwiceHeads(MultiHeadAttention):
    """A user's own attention, which overrides a helper of the forward pass."""

    def _heads(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        heads, weights = super()._heads(*args, **options)
        return 2 * heads, weights


def replace_helper(model: Any) -> None:
    model.decoder.blocks[1].self_attention.__class__ = TwiceHeads


def replace_helper_on_the_instance(model: Any) -> None:
    feed_forward = model.decoder.blocks[1].feed_forward
    activate = feed_forward._activate
    feed_forward._activate = lambda h: -20 * activate(h)


def replace_forward_of_a_part(model: Any) -> None:
    down = model.decoder.blocks[1].feed_forward.down
    forward = down.forward
    down.forward = lambda h: -20 * forward(h)


REPLACEMENTS = {
    "subclass": replace_class,
    "module": replace_module,
    "forward": replace_forward,
    "helper": replace_helper,
    "helper on the instance": replace_helper_on_the_instance,
    "forward of a part": replace_forward_of_a_part,
}


@pytest.mark.parametrize("replacement", REPLACEMENTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_users_own_computation_is_refused(engine: str, replacement: str) -> None:
    model = accepted()
    REPLACEMENTS[replacement](model)
    reason = ENGINES[engine](model)
    assert reason is not None and "module " in reason


@needs_c
@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_a_users_own_computation_writes_its_text(replacement: str, modules_decode: None) -> None:
    plain, before, after = make(), make(), pack_weights(make(), "packed")
    for model in (plain, before, after):
        REPLACEMENTS[replacement](model)
    want = texts(plain)
    assert want != texts(make())  # it does change something
    assert texts(pack_weights(before, "packed")) == want
    assert after.c_decoder is not None and texts(after) == want


def two_head_counts(model: Any) -> None:
    block, other = (
        model.decoder.blocks[1],
        make_model(TransformerConfig(**{**SIZES, "heads": 4}, source_vocabulary=20, target_vocabulary=20)),
    )
    block.self_attention = other.decoder.blocks[1].self_attention


def no_final_norm(model: Any) -> None:
    model.decoder.norm = None


def other_activation(model: Any) -> None:
    model.decoder.blocks[1].feed_forward.activation = "gelu"


@pytest.mark.parametrize("change", [two_head_counts, no_final_norm, other_activation])
@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_that_differ_are_refused(engine: str, change: Callable[[Any], None]) -> None:
    """Each option is known, but one description would not serve all blocks."""
    model = accepted()
    change(model)
    assert ENGINES[engine](model) is not None


@GPU
@pytest.mark.parametrize("place", PLACES)
def test_a_gpu_writes_the_same_text(place: str) -> None:
    model = make("cuda")
    want = texts(deepcopy(model))
    add_trait(PLACES[place](model), "invented")
    assert captured_search.why_not(model, Greedy()) is not None
    assert texts(model) == want
