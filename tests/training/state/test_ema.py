"""The exponential mean of the weights against its recursion, written out in float64."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, strategies as st
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from regard.training.state.ema import Ema


def named(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return {
        f"w{i}": nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))
        for i, shape in enumerate(shapes)
    }


def step(parameters: dict[str, nn.Parameter], seed: int) -> None:
    """New weights, as an optimizer would leave them."""
    with torch.no_grad():
        for name, fresh in named(*(p.shape for p in parameters.values()), seed=seed).items():
            parameters[name].copy_(fresh)


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@given(decay=st.sampled_from([0.0, 0.1, 0.9, 0.99]), steps=st.integers(0, 30))
def test_the_mean_is_the_recursion(decay: float, steps: int) -> None:
    parameters = named((2, 3), (4,), ())
    mean = copies(parameters)
    ema = Ema(parameters, decay)
    for t in range(1, steps + 1):
        step(parameters, seed=t)
        d = min(decay, (1 + t) / (10 + t))
        mean = {name: d * mean[name] + (1 - d) * weight.detach() for name, weight in parameters.items()}
        ema.update(ema.next_weight())
    torch.testing.assert_close(ema.weights, mean, rtol=1e-12, atol=1e-12)
    assert ema.updates == steps


def test_the_first_weights_are_forgotten_soon() -> None:
    """With a plain decay of 0.999, 100 steps would leave 90% of the first weights in the mean; so it is a millionth."""
    parameters = {"w": nn.Parameter(torch.tensor(1.0, dtype=torch.float64))}
    ema = Ema(parameters, 0.999)
    with torch.no_grad():
        parameters["w"].zero_()
    for _ in range(100):
        ema.update(ema.next_weight())
    assert 0 < float(ema.weights["w"]) < 1e-6


def test_swapped_and_back_bit_for_bit() -> None:
    parameters = named((3, 2), (5,), dtype=torch.float32)
    ema = Ema(parameters, 0.9)
    step(parameters, seed=1)
    ema.update(ema.next_weight())
    raw, mean = copies(parameters), copies(ema.weights)
    places = [parameter.data_ptr() for parameter in parameters.values()]
    assert not torch.equal(raw["w0"], mean["w0"])
    with ema.swapped():
        torch.testing.assert_close(copies(parameters), mean, rtol=0, atol=0)
    torch.testing.assert_close(copies(parameters), raw, rtol=0, atol=0)
    torch.testing.assert_close(ema.weights, mean, rtol=0, atol=0)
    assert [parameter.data_ptr() for parameter in parameters.values()] == places  # the optimizer still knows them
    with pytest.raises(RuntimeError, match="stop"), ema.swapped():
        raise RuntimeError("stop")
    torch.testing.assert_close(copies(parameters), raw, rtol=0, atol=0)


def test_a_restored_mean_goes_on_bit_for_bit() -> None:
    parameters = named((3, 2), (), dtype=torch.float32)
    ema = Ema(parameters, 0.99)
    for t in range(1, 6):
        step(parameters, seed=t)
        ema.update(ema.next_weight())
    saved, updates = copies(ema.weights), ema.updates
    again = Ema(parameters, 0.99)
    again.load(saved, updates)
    for t in range(6, 12):
        step(parameters, seed=t)
        ema.update(ema.next_weight())
        again.update(again.next_weight())
    torch.testing.assert_close(again.weights, ema.weights, rtol=0, atol=0)
    assert again.updates == ema.updates == 11
    assert not torch.equal(saved["w0"], ema.weights["w0"])  # what was saved is not what goes on


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"w0": torch.zeros(3)}, r"the average of 'w0' must have shape \(2, 3\), and has \(3,\)"),
        ({}, r"the average of 'w0' must have shape \(2, 3\), and has none"),
        ({"w0": torch.zeros(2, 3), "w1": torch.zeros(1)}, r"the average of 'w1' must have shape none, and has \(1,\)"),
    ],
)
def test_another_mean_is_refused(weights: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ema(named((2, 3)), 0.9).load(weights, 1)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_decay_out_of_range(decay: float) -> None:
    with pytest.raises(ValueError, match=f"decay must be at least 0 and below 1, got {decay}"):
        Ema({}, decay)


def test_the_mean_of_bf16_is_float32() -> None:
    """1 and 1 + 2^-7 are neighbours in bfloat16: their mean has no place between them there."""
    parameters = {"w": nn.Parameter(torch.ones(2, dtype=torch.bfloat16))}
    ema = Ema(parameters, 0.5)
    ema.updates = 1000
    with torch.no_grad():
        parameters["w"].fill_(1 + 2**-7)
    ema.update(ema.next_weight())
    assert ema.weights["w"].dtype == torch.float32
    assert ema.weights["w"].tolist() == [1 + 2**-8] * 2
    with ema.swapped():
        assert parameters["w"].dtype == torch.bfloat16
    assert parameters["w"].tolist() == [1 + 2**-7] * 2


def test_the_mean_has_no_gradient_and_shares_no_memory() -> None:
    parameters = named((2, 2))
    ema = Ema(parameters, 0.5)
    assert not ema.weights["w0"].requires_grad
    assert ema.weights["w0"].data_ptr() != parameters["w0"].data_ptr()
    parameters["w0"].sum().backward()
    ema.update(ema.next_weight())
    assert parameters["w0"].requires_grad


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[DeviceMesh]:
    """One process that is a whole group, as FSDP2 wants it."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "meeting"), 1), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def test_parameters_that_are_spread_over_processes(mesh: DeviceMesh) -> None:
    plain = named((4, 3), (5,))
    spread = {name: nn.Parameter(distribute_tensor(p.detach(), mesh, [Shard(0)])) for name, p in plain.items()}
    emas = [Ema(plain, 0.9), Ema(spread, 0.9)]
    for t in range(1, 4):
        step(plain, seed=t)
        with torch.no_grad():
            for name, parameter in spread.items():
                parameter.copy_(distribute_tensor(plain[name].detach(), mesh, [Shard(0)]))
        for ema in emas:
            ema.update(ema.next_weight())
    assert all(isinstance(mean, DTensor) for mean in emas[1].weights.values())
    means = {name: mean.full_tensor() for name, mean in emas[1].weights.items()}
    torch.testing.assert_close(means, emas[0].weights, rtol=0, atol=0)
    with emas[1].swapped():
        torch.testing.assert_close({name: p.detach().full_tensor() for name, p in spread.items()}, means)
    for name, parameter in spread.items():
        assert torch.equal(parameter.detach().full_tensor(), plain[name])
    again = Ema(spread, 0.9)
    again.load(means, 3)  # a checkpoint holds whole weights
    torch.testing.assert_close({name: mean.full_tensor() for name, mean in again.weights.items()}, means)
