"""Fused modules: what is replaced, what stays, and that whatever a kernel does not know runs plainly."""

from __future__ import annotations

import copy
import sys
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from regard import Block, Embedding, FeedForward, LayerNorm, MultiHeadAttention, record
from regard.attention.projections import StackedProjection
from regard.errors import UsageError
from regard.kernels import fuse, unfuse
from regard.kernels.fused_modules import FUSED
from regard.kernels.training import fused_dropout
from regard.kernels.training.fused_feed_forward import FusedFeedForward
from regard.models.config import TransformerConfig
from regard.models.folder import save_model
from regard.models.presets import make_model
from regard.models.stack import Stack, TokenInput
from regard.positions import Sinusoidal

SIZES: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 2, "hidden": 24, "dropout": 0.1}
CONFIG = TransformerConfig(source_vocabulary=11, target_vocabulary=11, **SIZES)
KERNELS = {
    "embedding_triton": ("embed_dropped",),
    "feed_forward_triton": ("activated",),
    "residual_triton": ("add_norm", "add_dropped"),
    "short_attention_triton": ("attend_short",),
    "split_heads_triton": ("CutHeads",),
}


class KernelCalledError(Exception):
    pass


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Let the fused modules believe that Triton runs here, and note which kernel they call; no kernel returns."""
    called = Mock(side_effect=KernelCalledError)
    for module, names in KERNELS.items():
        stand_in = ModuleType(module)
        for name in names:
            kernel = Mock(side_effect=lambda *_, name=name: called(name))
            kernel.apply = kernel
            setattr(stand_in, name, kernel)
        path = f"regard.kernels.training.{module}"
        monkeypatch.setitem(sys.modules, path, stand_in)
        monkeypatch.setattr(f"regard.kernels.training.{module}", stand_in, raising=False)
    monkeypatch.setattr(fused_dropout, "runs_triton", lambda device: True)
    return called


def block(**options: Any) -> Block:
    return Block(
        self_attention=MultiHeadAttention(dim=16, heads=2, dropout=0.1),
        feed_forward=FeedForward(dim=16, hidden=24, dropout=0.1),
        norm=lambda: LayerNorm(16),
        dropout=0.1,
        **options,
    )


def token_input() -> TokenInput:
    return TokenInput(embedding=Embedding(vocabulary=11, dim=16), position=Sinusoidal(dim=16), dropout=0.1)


X = torch.randn(2, 3, 16, dtype=torch.float16)
TOKENS = torch.randint(11, (2, 3))
CASES = {
    "block": (block, X, ["residual"]),
    "pre-norm block": (lambda: block(order="pre"), X, ["residual"]),
    "stack": (lambda: Stack(blocks=[block()]), X, ["residual"]),
    "feed-forward": (lambda: FeedForward(dim=16, hidden=24, dropout=0.1), X, ["hidden"]),
    "attention": (lambda: MultiHeadAttention(dim=16, heads=2, dropout=0.1), X, ["attention"]),
    "projection": (lambda: MultiHeadAttention(dim=16, heads=2), X, ["heads"]),
    "input": (token_input, TOKENS, ["input"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fused_module_calls_its_kernel(case: str, kernels: Mock) -> None:
    """Without this the next tests would pass with fused modules that never call a kernel."""
    make, x, only = CASES[case]
    with pytest.raises(KernelCalledError):
        fuse(make().half(), only=only)(x)


INVENTED = [
    ("block", Block),
    ("pre-norm block", Block),
    ("stack", Block),
    ("feed-forward", FeedForward),
    ("attention", MultiHeadAttention),
    ("projection", StackedProjection),
    ("input", TokenInput),
    ("input", Embedding),
    ("input", Sinusoidal),
]


def invent(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a trait to a class, and to the fused class, which holds the same property."""
    plain = owner.traits
    invented = property(lambda module: plain.fget(module) | {"invented"})
    for group in FUSED.values():
        if owner in group:
            monkeypatch.setattr(group[owner], "traits", invented)
    monkeypatch.setattr(owner, "traits", invented)


def count_calls(owner: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Note the calls of a method of a class."""
    plain = getattr(owner, method)
    calls = Mock()
    monkeypatch.setattr(owner, method, lambda *args, **options: (calls(), plain(*args, **options))[1])
    return calls


@pytest.mark.parametrize(("case", "owner"), INVENTED)
def test_an_invented_trait_leaves_the_work_to_the_plain_module(
    case: str, owner: Any, kernels: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain method itself must run, because a new option would change it."""
    invent(owner, monkeypatch)
    plain_calls = count_calls(owner, "embed" if owner is Sinusoidal else "forward", monkeypatch)
    make, x, only = CASES[case]
    module = fuse(make().half(), only=only)
    torch.manual_seed(1)
    found = module(x)
    assert plain_calls.called and not kernels.called
    torch.manual_seed(1)
    assert torch.equal(found, unfuse(module)(x))


def test_an_invented_trait_of_a_norm(kernels: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The norm runs as it is; only the seeds were drawn for kernels."""
    invent(LayerNorm, monkeypatch)
    assert fuse(block(), only=["residual"])(X.float()).shape == X.shape
    assert not kernels.called


@pytest.mark.parametrize("case", CASES)
def test_evaluation_and_inference_are_plain(case: str, kernels: Mock) -> None:
    make, x, only = CASES[case]
    module = fuse(make().half(), only=only)
    with torch.no_grad():
        module(x)
    module.eval()(x)
    assert not kernels.called


def test_parameters_are_the_same_objects() -> None:
    model = make_model(CONFIG)
    parameters, names = [*model.parameters()], [*model.state_dict()]
    assert fuse(model) is model
    assert all(one is two for one, two in zip(model.parameters(), parameters, strict=True))
    assert [*model.state_dict()] == names
    exact = [group for name, group in FUSED.items() if name != "random-features"]
    fused = {type(module) for module in model.modules()}
    assert fused >= {fused for group in exact for fused in group.values()}
    assert not fused & {plain for group in exact for plain in group}
    unfuse(model)
    assert {type(module) for module in model.modules()} >= {plain for group in exact for plain in group}


def test_only_some_groups() -> None:
    model = fuse(make_model(CONFIG), only=["hidden"])
    types = {type(module).__name__ for module in model.modules()}
    assert "FusedFeedForward" in types and "Block" in types
    with pytest.raises(UsageError, match="unknown group of modules to fuse 'residuals'; did you mean 'residual'"):
        fuse(model, only=["residuals"])


class LoudBlock(Block):
    """A user's subclass."""

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        return 2 * super().forward(x, **options)


def test_a_subclass_stays_as_it_is() -> None:
    loud = LoudBlock(
        self_attention=MultiHeadAttention(dim=16, heads=2),
        feed_forward=FeedForward(dim=16, hidden=24),
        norm=lambda: LayerNorm(16),
    )
    assert type(fuse(Stack(blocks=[loud])).blocks[0]) is LoudBlock


def test_a_fused_model_on_a_cpu_is_the_plain_model(tmp_path: Any) -> None:
    """Results, gradients and random numbers, also of a copy and of a saved folder."""
    torch.manual_seed(0)
    model = make_model(CONFIG)
    source, target = torch.randint(1, 11, (2, 2, 5))
    results = []
    for one in (model, fuse(copy.deepcopy(model)), copy.deepcopy(fuse(copy.deepcopy(model)))):
        torch.manual_seed(1)
        logits = one(source, target)
        results.append((logits, *torch.autograd.grad(logits.sum(), [*one.parameters()]), torch.rand(1)))
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))
    save_model(fuse(model), tmp_path / "model")
    with record(model.eval()) as recording:
        model(source, target)
    assert recording["decoder.1.cross"].shape == (2, 2, 5, 5)


def test_a_replaced_part_is_not_bypassed(kernels: Mock) -> None:
    """Modules that somebody put in place of torch's run as they are."""

    class Halved(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) / 2

    layer = FeedForward(dim=16, hidden=24, dropout=0.1)
    layer.up = Halved(16, 24)
    fuse(layer)(X.float())
    assert not kernels.called


def test_hooks_of_parts_run(kernels: Mock) -> None:
    seen = []
    layer = FeedForward(dim=16, hidden=24)
    layer.up.register_forward_hook(lambda *_: seen.append("up"))
    fuse(layer)(X.float())
    assert seen == ["up"] and not kernels.called


HOOKS = {
    "forward": "register_forward_hook",
    "forward pre": "register_forward_pre_hook",
    "backward": "register_full_backward_hook",
    "backward pre": "register_full_backward_pre_hook",
}


@pytest.fixture
def sums(kernels: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernels of a block return something of the right shape."""
    residual, attention = (f"regard.kernels.training.{name}_triton" for name in ("residual", "short_attention"))
    monkeypatch.setattr(sys.modules[residual], "add_norm", lambda x, past, h, *_: (x + h, past + h))
    monkeypatch.setattr(sys.modules[attention], "attend_short", lambda q, k, v, *_: q + k + v)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("part", ["self_attention.input", "self_attention.output", "feed_forward.down"])
def test_hooks_inside_the_sublayers_of_a_block_run(part: str, hook: str, sums: None) -> None:
    seen: list[str] = []
    module = fuse(block().half(), only=["residual", "attention"])
    module.feed_forward = fuse(FeedForward(dim=16, hidden=24).half())
    module.feed_forward.activation = "gelu"  # which no kernel computes
    getattr(module.get_submodule(part), HOOKS[hook])(lambda *_: seen.append(part))
    module(X.clone().requires_grad_()).sum().backward()
    assert seen == [part]


@pytest.mark.parametrize("part", ["self_attention.output", "feed_forward.down"])
def test_a_replaced_forward_inside_a_block_is_called(part: str, sums: None) -> None:
    module = fuse(block().half(), only=["residual", "attention"])
    module.feed_forward = fuse(FeedForward(dim=16, hidden=24, activation="gelu").half())
    last = module.get_submodule(part)
    last.forward = Mock(wraps=last.forward)
    module(X)
    assert last.forward.called


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_on_a_block_of_a_stack_sees_tensors(hook: str, sums: None) -> None:
    """A stack passes a pair from block to block, unless somebody watches them."""
    seen: list[Any] = []
    stack = fuse(Stack(blocks=[block().half(), block().half()]), only=["residual"])
    getattr(stack.blocks[1], HOOKS[hook])(lambda module, *arguments: seen.extend(arguments))
    stack(X.clone().requires_grad_()).sum().backward()
    values = [value for item in seen for value in (item if isinstance(item, tuple) else (item,))]
    assert values and all(isinstance(value, Tensor) for value in values)
    assert all(len(item) == 1 for item in seen if isinstance(item, tuple))


def test_a_compiled_block_of_a_stack_is_given_the_pair(kernels: Mock) -> None:
    stack = fuse(Stack(blocks=[block().half()]), only=["residual"])
    stack.blocks[0].compile(backend="eager")
    assert stack._order(stack.blocks[0], X) == "post"


class Tanh(FusedFeedForward):
    """A user's subclass of a fused module."""

    def _activate(self, h: Tensor) -> Tensor:
        return h.tanh()


def test_a_changed_helper_is_not_bypassed(kernels: Mock) -> None:
    patched, plain = fuse(FeedForward(dim=16, hidden=24)), FeedForward(dim=16, hidden=24)
    subclass = Tanh(dim=16, hidden=24)
    patched._activate = torch.tanh
    for layer in (patched, subclass):
        layer.load_state_dict(plain.state_dict())
        assert torch.equal(layer(X.float()), plain.down(plain.up(X.float()).tanh()))
    assert not kernels.called


def test_a_fused_class_may_refuse_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = FeedForward(dim=16, hidden=24)
    model = nn.ModuleList([refused, FeedForward(dim=16, hidden=24)])
    monkeypatch.setattr(
        FusedFeedForward, "why_not_fuse", lambda module: "it is the first" if module is refused else None
    )
    assert [type(layer) for layer in fuse(model)] == [FeedForward, FusedFeedForward]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_which_tensors_the_kernels_take(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, known = FeedForward(dim=16, hidden=24), torch.zeros(1, dtype=dtype), FeedForward(dim=4, hidden=4).traits
    assert fused_dropout.why_not_train(layer, known, x, 0.1) is not None  # on a CPU
    monkeypatch.setattr(fused_dropout, "runs_triton", lambda device: True)
    assert (fused_dropout.why_not_train(layer, known, x, 0.1) is None) is (dtype != torch.float64)
    assert fused_dropout.why_not_train(layer, known, x, 1.0) is not None
    with torch.no_grad():
        assert fused_dropout.why_not_train(layer, known, x, 0.1) is not None


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.kernels import devices

    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.setattr(devices, "HAVE_TRITON", True)
    for ampere in (True, False):
        monkeypatch.setattr("regard.kernels.gpu.AMPERE", ampere)
        assert devices.runs_triton(cuda) is ampere
    for interpreted in (True, False):
        monkeypatch.setattr(devices, "INTERPRETED", interpreted)
        assert devices.runs_triton(cpu) is interpreted
    monkeypatch.setattr(devices, "HAVE_TRITON", False)
    assert not devices.runs_triton(cuda) and not devices.runs_triton(cpu)
