"""Training with products of 8-bit numbers, emulated on a CPU; see test_fp8_triton.py for the kernels.

R rows   C columns
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

import regard
from regard.attention.projections import StackedProjection
from regard.errors import UsageError
from regard.kernels import fuse, unfuse
from regard.kernels.fp8 import enable
from regard.kernels.fp8.casts import E4M3, E5M2, Format, cast_by_torch
from regard.kernels.fp8.enable import all_scales, output_scales, why_not_fp8
from regard.kernels.fp8.linear import Fp8Linear, fp8_linear
from regard.kernels.fp8.output import fp8_token_loss
from regard.kernels.fp8.scales import Fp8Scales
from regard.kernels.training import cross_entropy
from regard.kernels.training.fused_attention import FusedStackedProjection
from regard.kernels.training.fused_feed_forward import FusedFeedForward
from regard.layers.feedforward import FeedForward
from regard.models.presets import make_model, preset
from regard.recipes.tables import TrainingRecipe
from regard.settings import SettingError
from regard.tasks.objective import objective
from regard.text.batches.batch import Batch
from regard.training.run.prepare import check_precision
from regard.training.state.train_state import TrainState

CPU = torch.device("cpu")


def amax_of(*matrices: Tensor) -> Tensor:
    return torch.tensor([[matrix.abs().max().item(), 0.0] for matrix in matrices])


@pytest.mark.parametrize(("form", "bits"), [(E4M3, 3), (E5M2, 2)])
@pytest.mark.parametrize("magnitude", [1e-6, 1.0, 3e4])
def test_a_cast_rounds_to_the_nearest_number(form: Format, bits: int, magnitude: float) -> None:
    """The error is half a unit of the last of `bits` at most, for numbers above 2^-10 of the largest."""
    x = (torch.randn(40, 24) * magnitude).bfloat16()
    amax = amax_of(x)[0]
    cast = cast_by_torch(x, amax, form)
    error = (cast.straight.view(form.dtype).double() * cast.inverse - x.double()).abs()
    half_unit = 2.0 ** (x.double().abs().log2().floor() - bits - 1)
    assert (error <= half_unit)[x.abs() > x.abs().max() / 2**10].all()
    assert torch.equal(cast.transposed[:, :40], cast.straight.T) and not cast.transposed[:, 40:].any()
    assert amax[1] == x.abs().max() and torch.frexp(cast.inverse)[0] == 0.5  # a power of two


def test_too_large_numbers_become_the_largest_one() -> None:
    x = torch.tensor([[1.0, -100.0, float("inf"), float("nan")]])
    cast = cast_by_torch(x, torch.tensor([1.0, 0.0]), E4M3)
    numbers = (cast.straight.view(E4M3.dtype).float() * cast.inverse)[0]
    assert numbers[:3].tolist() == [1.0, -3.5, 3.5] and numbers[3].isnan()


def rounded(matrix: Tensor, amax: Tensor, form: Format) -> Tensor:
    cast = cast_by_torch(matrix.flatten(0, -2), amax.clone(), form)
    return cast.straight.view(form.dtype).float() * cast.inverse


def test_the_products_of_a_layer() -> None:
    """The three products are exact for the rounded factors; the bias gets its gradient."""
    x, weight, bias, g = torch.randn(2, 5, 32), torch.randn(48, 32), torch.randn(48), torch.randn(2, 5, 48)
    leaves = [part.requires_grad_() for part in (x.clone(), weight.clone(), bias.clone())]
    amax = amax_of(x, weight, g)
    y = fp8_linear(*leaves, amax)[0]
    y.backward(g.bfloat16())

    x_rounded, w_rounded, g_rounded = (
        rounded(x, amax[0], E4M3),
        rounded(weight, amax[1], E4M3),
        rounded(g, amax[2], E5M2),
    )
    close: dict[str, Any] = {"rtol": 1e-2, "atol": 2e-2}
    torch.testing.assert_close(y.float().flatten(0, 1), x_rounded @ w_rounded.T + bias, **close)
    to_x, to_weight, to_bias = (leaf.grad for leaf in leaves)
    assert to_x is not None and to_weight is not None and to_bias is not None
    torch.testing.assert_close(to_x.flatten(0, 1), g_rounded @ w_rounded, **close)
    torch.testing.assert_close(to_weight, g_rounded.T @ x_rounded, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(to_bias, g.bfloat16().float().sum((0, 1)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_of_the_output_layer(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two parts: the large entries of the true tokens are exact, and both terms use the same rounded factors."""
    monkeypatch.setattr(cross_entropy, "MAX_CPU_SCORES", 48 * 128)
    draw = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(200, 32, generator=draw), torch.randn(48, 32, generator=draw) / 8
    hidden = hidden.bfloat16().float()
    labels, keep = torch.randint(48, (200,), generator=draw), torch.rand(200, generator=draw) < 0.9
    amax = amax_of(hidden, weight, weight)
    x_rounded, w_rounded = rounded(hidden, amax[0], E4M3).double(), rounded(weight, amax[1], E4M3).double()
    x, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    total, nll = fp8_token_loss(x, labels, weight=w, smoothing=smoothing, keep=keep, amax=amax)
    to_x, to_weight = torch.autograd.grad(total, (x, w))

    log_p = (hidden.double() @ weight.double().T).log_softmax(-1)
    wanted = (1 - smoothing) * one_hot(labels, 48) + smoothing / 48
    g = (log_p.exp() - wanted) * keep[:, None]
    expected_total = -(wanted * log_p * keep[:, None]).sum()
    expected_nll = -(log_p.gather(-1, labels[:, None])[:, 0] * keep).sum()
    for actual, expected, bound in (
        (total, expected_total, 3e-3), (nll, expected_nll, 3e-3),
        (to_x, g @ w_rounded, 0.02), (to_weight, g.T @ x_rounded, 0.02),
    ):  # fmt: skip
        assert (actual.double() - expected).norm() < bound * expected.norm()


def test_the_output_layer_is_not_always_of_8_bits() -> None:
    """Neither in validation nor for a vocabulary that is no multiple of 16."""
    model = fuse(gpt(), fp8=True)
    assert output_scales(model) is not None and output_scales(model.eval()) is None
    odd = preset("gpt2", vocabulary=60, layers=1, dim=32, heads=2, hidden=64, max_length=16, dropout=0.0)
    assert output_scales(fuse(make_model(odd), fp8=True)) is None


def gpt(dim: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return make_model(
        preset("gpt2", vocabulary=64, layers=2, dim=dim, heads=2, hidden=2 * dim, max_length=16, dropout=0.0)
    )


def train(model: nn.Module, steps: int) -> list[float]:
    """The losses of a model that learns that each token is followed by the third after it."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=3e-3), []
    first = torch.arange(32)[:, None]
    tokens = (first + 3 * torch.arange(17)[None, :]) % 64
    batch = Batch(list(range(32)), None, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), 32 * 16)
    for _ in range(steps):
        if (scales := all_scales(model)) is not None:
            scales.start_step()
        with torch.autocast("cpu", torch.bfloat16):
            loss = objective(model)(model, batch).total / batch.tokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_training_follows_that_in_bf16() -> None:
    plain, eight = train(fuse(gpt()), 30), train(fuse(gpt(), fp8=True), 30)
    assert plain[-1] < plain[0] / 3  # it learns something
    assert max(abs(a - b) for a, b in zip(plain, eight, strict=True)) < 0.1
    assert plain != eight


def test_scales_follow_the_step_before() -> None:
    model = fuse(gpt(), fp8=True)
    scales = all_scales(model)
    assert scales is not None
    before = scales.amax.clone()
    train(model, 1)
    assert torch.equal(scales.amax[..., 0], before[..., 0])  # the guesses
    collected = scales.amax[..., 1].clone()
    assert (collected > 0).sum() == collected.numel() - 1  # the gradient of the scores has a constant scale
    train(model, 1)
    assert torch.equal(scales.amax[:-1, :, 0], collected[:-1])


def test_scales_fall_again_and_last_without_a_cast() -> None:
    scales = Fp8Scales(1, torch.device("cpu"))
    for magnitude in (100.0, 0.5):
        cast_by_torch(torch.full((16, 16), magnitude), scales.amax[0, 0], E4M3)
        scales.start_step()
        assert scales.amax[0, 0].tolist() == [magnitude, 0.0]
    scales.start_step()  # after a step in which the layer was not used
    assert scales.amax[0, 0, 0] == 0.5


def test_a_checkpoint_has_the_scales() -> None:
    states = []
    for _ in range(2):
        model = fuse(gpt(), fp8=True)
        states.append(TrainState(model, TrainingRecipe(precision="fp8", optimizer="adamw", lr=1e-3), device=CPU))
    train(states[0].model, 2)
    states[1].load_state_dict(states[0].state_dict())
    assert torch.equal(all_scales(states[1].model).amax, all_scales(states[0].model).amax)  # type: ignore[union-attr]
    assert train(states[0].model, 1) == train(states[1].model, 1)


def test_validation_is_in_16_bits() -> None:
    model, tokens = fuse(gpt(), fp8=True), torch.randint(64, (2, 8))
    plain = fuse(gpt())
    assert torch.equal(model.eval()(tokens), plain.eval()(tokens))
    with torch.no_grad():
        assert torch.equal(model.train()(tokens), plain.train()(tokens))


def test_which_layers_and_back() -> None:
    """The wide layers of the blocks; `unfuse` undoes it."""
    model = fuse(gpt(), fp8=True)
    scales = all_scales(model)
    assert scales is not None and len(scales.amax) == 2 * 3 + 1  # blocks x (q k v, up, down), and the output layer
    block = model.decoder.blocks[0]  # type: ignore[union-attr, index]
    assert type(block.feed_forward.up) is Fp8Linear and type(block.self_attention.output) is nn.Linear
    assert list(model.state_dict()) == list(gpt().state_dict())
    unfuse(model)
    assert all_scales(model) is None and type(block.feed_forward.up) is nn.Linear
    assert not any(hasattr(module, "fp8_amax") for module in model.modules())


def test_an_invented_trait_leaves_the_work_to_the_plain_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new option of the projection or the feed-forward net would change its plain forward, so that must run."""
    model = fuse(gpt(), fp8=True)
    for plain, fused in ((StackedProjection, FusedStackedProjection), (FeedForward, FusedFeedForward)):
        traits, forward = plain.traits, plain.forward
        invented = property(lambda module, traits=traits: traits.fget(module) | {"invented"})  # type: ignore[attr-defined]
        calls = Mock()
        for kind in (plain, fused):
            monkeypatch.setattr(kind, "traits", invented)
        monkeypatch.setattr(plain, "forward", lambda *args, f=forward, calls=calls: (calls(), f(*args))[1])
        train(model, 1)
        assert calls.call_count == len(model.decoder.blocks)  # type: ignore[union-attr, arg-type]


def test_a_model_without_such_layers_is_refused() -> None:
    for model in (gpt(dim=24), nn.Linear(16, 16)):
        with pytest.raises(UsageError, match="no layer of this model"):
            fuse(model, fp8=True)


def test_other_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "NVIDIA" in (why_not_fp8(torch.device("cpu")) or "")
    for capability, word in (((8, 0), "Hopper"), ((9, 0), None), ((10, 0), None)):
        monkeypatch.setattr(enable, "compute_capability", lambda device, capability=capability: capability)
        monkeypatch.setattr(enable, "runs_triton", lambda device: True)
        reason = why_not_fp8(torch.device("cuda"))
        assert reason is None if word is None else word in (reason or "")
    monkeypatch.setattr(enable, "runs_triton", lambda device: False)
    assert "Triton" in (why_not_fp8(torch.device("cuda")) or "")


def test_a_recipe_with_fp8_is_refused_on_a_cpu(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two three\n" * 200)
    (tmp_path / "recipe.toml").write_text('[data]\ntext = "text.txt"\n[training]\nprecision = "fp8"\ndevice = "cpu"\n')
    with pytest.raises(UsageError, match='"fp8" is not possible here: it needs an NVIDIA GPU, and the device is cpu'):
        regard.train(tmp_path / "recipe.toml", out=tmp_path / "run", quiet=True)


def test_settings_that_exclude_fp8() -> None:
    with pytest.raises(SettingError, match="needs the fused layers"):
        TrainingRecipe(precision="fp8", kernels="off")

    class TwoProcesses:
        world = 2

    recipe = TrainingRecipe(precision="fp8", parallel="fsdp")
    with pytest.raises(UsageError, match="works with fp32 and bf16"):
        TrainState(gpt(), recipe, device=torch.device("cpu"), group=TwoProcesses())  # type: ignore[arg-type]


def test_bf16_is_not_refused() -> None:
    class Asked:
        training = TrainingRecipe(precision="bf16")

    check_precision(Asked(), torch.device("cpu"))  # type: ignore[arg-type]
