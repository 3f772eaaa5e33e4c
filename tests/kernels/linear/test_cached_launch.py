"""Launches that skip Triton's analysis of the arguments: when they may, and what they launch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard import RandomFeatures
from regard.kernels.linear.attend import attend_features
from regard.kernels.linear.cached_launch import CachedLaunch


class Compiled:
    """What Triton returns of a launch: a compiled kernel, which takes every argument in order."""

    packed_metadata = ()

    def __init__(self, launched: list[Any]) -> None:
        self.launched = launched

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        return lambda *arguments: self.launched.append((grid, arguments))


class Kernel:
    """A kernel with two tensors, two numbers and two constants, of which Triton notes each compilation."""

    arg_names = ("x", "y", "rows", "factor", "WIDTH", "MAP")

    def __init__(self) -> None:
        self.analysed: list[Any] = []
        self.direct: list[Any] = []
        self.returned: Any = Compiled(self.direct)

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **constants: Any) -> Any:
            self.analysed.append((grid, arguments, constants))
            return self.returned

        return launch


@pytest.fixture(autouse=True)
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachedLaunch, "enabled", True)


X, Y = torch.zeros(8), torch.zeros(8)
CONSTANTS = {"MAP": "trig", "num_warps": 4, "WIDTH": 16}  # in another order than the kernel's


def test_the_second_launch_is_direct() -> None:
    kernel = Kernel()
    launch = CachedLaunch(kernel)
    launch((3, 2), (X, Y), (5, 0.5), CONSTANTS)
    assert kernel.analysed == [((3, 2), (X, Y, 5, 0.5), CONSTANTS)] and not kernel.direct
    other = torch.zeros(8)
    launch((4,), (other, Y), (5, 0.5), CONSTANTS)
    ((grid, arguments),) = kernel.direct
    assert grid == (4, 1, 1) and arguments[0] is other and arguments[2:] == (5, 0.5, 16, "trig")
    assert len(kernel.analysed) == 1


@pytest.mark.parametrize(
    ("tensors", "numbers", "constants"),
    [
        ((X.bfloat16(), Y), (5, 0.5), CONSTANTS),
        ((torch.zeros(9)[1:], Y), (5, 0.5), CONSTANTS),  # an address that is no multiple of 16
        ((X, Y), (16, 0.5), CONSTANTS),
        ((X, Y), (5, 0.5), CONSTANTS | {"WIDTH": 32}),
        ((X, Y), (5, 0.5), CONSTANTS | {"num_warps": 8}),
    ],
)
def test_what_triton_would_compile_anew_is_analysed(tensors: Any, numbers: Any, constants: Any) -> None:
    kernel = Kernel()
    launch = CachedLaunch(kernel)
    launch((1,), (X, Y), (5, 0.5), CONSTANTS)
    launch((1,), tensors, numbers, constants)
    assert len(kernel.analysed) == 2 and not kernel.direct


def test_an_interpreter_returns_nothing_to_launch() -> None:
    kernel = Kernel()
    kernel.returned = None
    launch = CachedLaunch(kernel)
    for _ in range(2):
        launch((1,), (X, Y), (5, 0.5), CONSTANTS)
    assert len(kernel.analysed) == 2


def test_another_triton_is_launched_the_usual_way() -> None:
    """One warning, and no launch is lost."""

    class Other(Compiled):
        def __getitem__(self, grid: Any) -> Any:
            def refuse(*arguments: Any) -> None:
                raise TypeError("launch() missing 1 required argument")

            return refuse

    kernel = Kernel()
    kernel.returned = Other([])
    launch = CachedLaunch(kernel)
    launch((1,), (X, Y), (5, 0.5), CONSTANTS)
    with pytest.warns(UserWarning, match="cannot be launched directly: launch"):
        launch((1,), (X, Y), (5, 0.5), CONSTANTS)
    launch((1,), (X, Y), (5, 0.5), CONSTANTS)
    assert len(kernel.analysed) == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@pytest.mark.parametrize("length", [300, 20_000])
def test_direct_launches_give_the_same_bits_cuda(length: int) -> None:
    features = RandomFeatures(dim=64, features=128).cuda()
    texts = [torch.randn(3, 1, length, 4, 64, device="cuda").bfloat16().transpose(2, 3) for _ in range(3)]
    CachedLaunch.enabled = False
    wanted = [attend_features(*text, features=features, causal=True, backend="triton") for text in texts]
    CachedLaunch.enabled = True
    for _ in range(2):
        for text, y in zip(texts, wanted, strict=True):
            assert torch.equal(attend_features(*text, features=features, causal=True, backend="triton"), y)
    with_gradient = [part.clone().requires_grad_() for part in texts[0]]  # through PyTorch's operator
    y = attend_features(*with_gradient, features=features, causal=True, backend="triton")
    assert torch.equal(y, wanted[0]) and CachedLaunch.enabled
