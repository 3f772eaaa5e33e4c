"""Traits: every module says what it computes, and what says nothing is reported by its class name."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from regard.attention.multihead import MultiHeadAttention
from regard.attention.scores import DotScore
from regard.attention.single_head import ContentAttention, KeyValueAttention
from regard.kernels import fuse
from regard.kernels.fused_modules import FUSED
from regard.layers.block import Block
from regard.layers.cells import GRUCell
from regard.layers.embedding import Embedding
from regard.layers.feedforward import FeedForward
from regard.layers.normalization import LayerNorm, RMSNorm
from regard.layers.recurrent import GRU, LSTM, RNN
from regard.models.config import EncoderConfig, RecurrentLMConfig, RecurrentTranslatorConfig, TransformerConfig
from regard.models.presets import make_model
from regard.positions import Alibi, Learned, LlamaScaling, Position, Rotary, Sinusoidal
from regard.training.loop.torch_compile import compile_parts
from regard.traits import own_traits, replaced_methods, traits_of, why_unknown

ROOT = Path(__file__).parents[2]
SIZES = {"dim": 8, "heads": 2}
ATTENTION = {"attention", "attention-bias"}


@pytest.mark.parametrize(
    ("module", "traits"),
    [
        (MultiHeadAttention(**SIZES), ATTENTION),
        (MultiHeadAttention(**SIZES, bias=False), {"attention"}),
        (MultiHeadAttention(**SIZES, kv_heads=1), {*ATTENTION, "grouped-query"}),
        (MultiHeadAttention(**SIZES, d_k=3), {*ATTENTION, "head-widths"}),
        (MultiHeadAttention(**SIZES, d_k=3, d_v=3), {*ATTENTION, "head-widths"}),
        (MultiHeadAttention(**SIZES, key_dim=5), {*ATTENTION, "input-widths"}),
        (MultiHeadAttention(**SIZES, form="slice"), {*ATTENTION, "slice"}),
        (MultiHeadAttention(**SIZES, qk_norm=True), {*ATTENTION, "qk-norm", "module RMSNorm"}),
        (MultiHeadAttention(**SIZES, window=3), {*ATTENTION, "window"}),
        (MultiHeadAttention(**SIZES, output=False), {*ATTENTION, "no-output"}),
        (MultiHeadAttention(**SIZES, position="rotary"), {*ATTENTION, "position Rotary"}),
        (Rotary(head_dim=8, layout="interleaved"), {"position Rotary", "rotary-interleaved"}),
        (Rotary(head_dim=8, fraction=0.5), {"position Rotary", "rotary-fraction"}),
        (Rotary(head_dim=8, scaling=LlamaScaling()), {"position Rotary", "rotary-scaling"}),
        (Learned(max_length=4, dim=8, mode="concat", width=2), {"position Learned", "learned-concat"}),
        (Sinusoidal(dim=8), {"position Sinusoidal"}),
        (Alibi(heads=2), {"position Alibi"}),
        (FeedForward(dim=4, hidden=8), {"feed-forward", "activation relu", "feed-forward-bias"}),
        (FeedForward(dim=4, hidden=8, activation="swiglu", bias=False), {"feed-forward", "activation swiglu"}),
        (LayerNorm(4), {"LayerNorm"}),
        (RMSNorm(4), {"RMSNorm"}),
        (Embedding(vocabulary=5, dim=4), {"embedding"}),
        (Embedding(vocabulary=5, dim=4, scale=True, pad_id=0), {"embedding", "scaled-embedding", "padding-row"}),
        (KeyValueAttention(score=DotScore()), {"key-value-attention", "score dot"}),
        (ContentAttention(outputs=1, dim=4), {"content-attention"}),
        (RNN(3, 4, nonlinearity="relu"), {"RNN", "relu-recurrence"}),
        (GRU(3, 4, bidirectional=True), {"GRU", "bidirectional"}),
        (LSTM(3, 4, proj_size=2, bias=False), {"LSTM", "projected-state", "recurrent-no-bias"}),
        (GRUCell(3, 4), {"GRUCell"}),
    ],
)
def test_the_options_in_use_are_reported(module: nn.Module, traits: set[str]) -> None:
    assert traits_of(module) == traits


SIDES = {"source_vocabulary": 11, "target_vocabulary": 11}
STACK = {"layers": 1, "dim": 8, "heads": 2, "hidden": 12}


@pytest.mark.parametrize(
    ("config", "traits"),
    [
        (
            TransformerConfig(**STACK, **SIDES),
            {"Transformer", "cross-attention", "block", "stack", "token-input", "position Sinusoidal"},
        ),
        (EncoderConfig(**STACK, vocabulary=11, pooling="max"), {"SentenceEncoder", "pooling max", "feed-forward"}),
        (RecurrentLMConfig(vocabulary=11, embedding=6, hidden=8, cell="lstm"), {"RecurrentLM", "LSTM", "embedding"}),
        (
            RecurrentTranslatorConfig(**SIDES, embedding=6, hidden=8, attention="additive", style="luong"),
            {"RecurrentTranslator", "RecurrentDecoder", "luong", "key-value-attention", "score additive"},
        ),
    ],
)
def test_a_model_has_the_traits_of_all_its_parts(config, traits: set[str]) -> None:
    reported = traits_of(make_model(config))
    assert traits <= reported
    assert not {trait for trait in reported if trait.startswith("module ")}


def test_every_module_of_the_lesson_declares_traits() -> None:
    """Read from the source, so that a class that nobody builds above is seen too."""
    silent = []
    for part in ("attention", "layers", "models", "positions"):
        for path in sorted((ROOT / "regard" / part).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if not isinstance(node, ast.ClassDef):
                    continue
                bases = {ast.unparse(base) for base in node.bases}
                if any(base.startswith("nn.") for base in bases) and "traits" not in {
                    getattr(item, "name", None) for item in node.body
                }:
                    silent.append(f"{path.name}: {node.name}")
    assert silent == []


class Doubled(nn.Module):
    """A user's module."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Backwards(Position):
    """A user's position scheme."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x - positions[..., None]


def test_a_module_without_traits_is_reported_by_its_class_name() -> None:
    block = Block(self_attention=MultiHeadAttention(**SIZES), feed_forward=Doubled(), norm=lambda: LayerNorm(8))
    assert traits_of(block) == {"block", "post-norm", "LayerNorm", *ATTENTION, "module Doubled"}
    assert why_unknown(block, traits_of(block) - {"module Doubled"}) == "not implemented here: module Doubled"
    assert why_unknown(block, traits_of(block)) is None
    assert block(torch.zeros(1, 2, 8)).shape == (1, 2, 8)


class Louder(FeedForward):
    """A user's subclass that changes what is computed."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Tagged(FeedForward):
    """A user's subclass that computes the same."""

    tag = "mine"


def test_a_subclass_with_its_own_forward_is_reported_by_its_class_name() -> None:
    assert traits_of(Louder(dim=4, hidden=8)) == {"module Louder"}
    assert traits_of(Tagged(dim=4, hidden=8)) == traits_of(FeedForward(dim=4, hidden=8))


class OwnActivation(FeedForward):
    """A helper of the parent's forward."""

    def _activate(self, h: Tensor) -> Tensor:
        return h.tanh()


class OwnScores(MultiHeadAttention):
    def _attend(self, q: Tensor, *args: Any) -> Tensor:
        return q


class OwnResidual(Block):
    def _sublayer(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return norm(sublayer(x))


class OwnSize(FeedForward):
    @property
    def dim(self) -> int:
        return 4

    @dim.setter
    def dim(self, value: int) -> None:
        pass


class OwnStatic(FeedForward):
    _activate = staticmethod(torch.tanh)


class Activates:
    def _activate(self, h: Tensor) -> Tensor:
        return h.tanh()


class MixedIn(Activates, FeedForward):
    pass


class CallsTwice(nn.Module):
    def __call__(self, *args: Any) -> Any:
        return 2 * super().__call__(*args)


class MixedInBehind(FeedForward, CallsTwice):
    """Looks up `__call__` behind FeedForward, and before nn.Module."""


class Below(OwnActivation):
    """Adds nothing to a class that is unknown."""


@pytest.mark.parametrize(
    "module",
    [
        *(kind(dim=4, hidden=8) for kind in (OwnActivation, OwnSize, OwnStatic, MixedIn, MixedInBehind, Below)),
        OwnScores(dim=8, heads=2),
        OwnResidual(self_attention=Doubled(), feed_forward=Doubled(), norm=lambda: LayerNorm(8)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_a_subclass_with_any_method_of_its_own_is_reported_by_its_class_name(module: nn.Module) -> None:
    assert own_traits(module) == {f"module {type(module).__name__}"}


class Described(FeedForward):
    """A user's subclass with methods that change nothing."""

    tag: str = "mine"

    def __init__(self) -> None:
        super().__init__(dim=4, hidden=8)

    def extra_repr(self) -> str:
        return self.tag

    def __repr__(self) -> str:
        return self.tag


class Declared(OwnActivation):
    """A user's subclass that says what it computes."""

    traits = frozenset({"activation tanh"})


def test_a_subclass_may_describe_itself_or_declare_traits() -> None:
    assert own_traits(Described()) == own_traits(FeedForward(dim=4, hidden=8))
    assert own_traits(Declared(dim=4, hidden=8)) == {"activation tanh"}


@pytest.mark.parametrize(
    ("module", "method"),
    [(FeedForward(dim=4, hidden=8), "_activate"), (nn.Linear(4, 4), "forward"), (Sinusoidal(dim=4), "rows")],
)
def test_a_method_replaced_on_an_instance_is_reported(module: Any, method: str) -> None:
    before = own_traits(module)
    setattr(module, method, torch.tanh)
    assert own_traits(module) == before | {f"module {type(module).__name__}"}


def test_a_sharded_module_has_the_traits_of_the_module() -> None:
    layer = FeedForward(dim=4, hidden=8)
    layer.__class__ = type("FSDPFeedForward", (FSDPModule, FeedForward), {})
    assert own_traits(layer) == own_traits(FeedForward(dim=4, hidden=8))


def test_every_fused_class_declares_its_traits() -> None:
    for group in FUSED.values():
        for plain, fused in group.items():
            assert vars(fused)["traits"] is vars(plain)["traits"]


def test_fused_modules_have_the_traits_of_the_plain_ones() -> None:
    model = make_model(TransformerConfig(**STACK, **SIDES))
    assert traits_of(fuse(copy.deepcopy(model))) == traits_of(model)


def test_a_position_scheme_is_reported_by_its_class_name() -> None:
    assert traits_of(Backwards()) == {"position tests.repository.test_traits.Backwards"}
    assert traits_of(type("Plain", (Sinusoidal,), {})(dim=4)) == {"position tests.repository.test_traits.Plain"}


def test_a_users_scheme_is_not_taken_for_one_of_the_package() -> None:
    ours, other = Rotary(head_dim=8), type("Rotary", (Position,), {"rotate": lambda self, x, positions: -x})()
    assert type(ours).__name__ == type(other).__name__
    assert traits_of(ours) == {"position Rotary"}
    assert traits_of(other) == {"position tests.repository.test_traits.Rotary"}


@pytest.mark.parametrize("again", [fuse, lambda block, only: compile_parts(block, dynamic=True)])
@pytest.mark.parametrize("replaced", ["attention", "dropout", "norm"])
def test_a_replaced_method_is_noticed_before_compiling(replaced: str, again: Any, monkeypatch: Any) -> None:
    """In compiled code the traits do not show it, so no kernel may be left that would ignore it."""
    groups = ("residual", "attention")
    attention = MultiHeadAttention(**SIZES, dropout=0.1 if replaced == "attention" else 0.0)
    feed_forward = FeedForward(dim=8, hidden=8)
    plain = Block(self_attention=attention, feed_forward=feed_forward, norm=lambda: LayerNorm(8), dropout=0.1)
    block = fuse(plain.bfloat16(), only=groups)
    part: Any = {"attention": attention, "dropout": block.dropout, "norm": block.self_norm}[replaced]
    called = []
    setattr(
        part,
        "_attend" if replaced == "attention" else "forward",
        lambda x, *_: (called.append(True), torch.full_like(x, 7.0))[1],
    )
    again(block, only=groups)
    block._compiled_call_impl = None  # compiled below, for a backend that needs no compiler

    monkeypatch.setattr("regard.kernels.training.fused_dropout.runs_triton", lambda device: True)
    for kernel in ("fused_attention.attend_short", "fused_block.draw_seed"):
        monkeypatch.setattr(f"regard.kernels.training.{kernel}", MagicMock(side_effect=AssertionError("a kernel ran")))
    torch._dynamo.reset()
    torch.compile(block, backend="eager")(torch.randn(1, 3, 8, dtype=torch.bfloat16))
    assert called


def test_a_compiled_method_is_not_a_replaced_one() -> None:
    layer = GRU(4, 4)
    compile_parts(layer, dynamic=True)
    assert "step" in vars(layer) and replaced_methods(layer) == []
    layer.step = lambda *_: None
    assert replaced_methods(layer) == ["step"]


@pytest.mark.filterwarnings("error")
def test_compiled_code_reads_traits_without_a_warning() -> None:
    layer = LayerNorm(4)

    def known(x: Tensor) -> Tensor:
        return x + 1 if own_traits(layer) == {"LayerNorm"} else x - 1

    wanted = known(torch.zeros(2))
    torch.testing.assert_close(torch.compile(known, backend="eager", fullgraph=True)(torch.zeros(2)), wanted)
