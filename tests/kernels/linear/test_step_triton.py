"""The kernel that takes a decoder's step by random features, against the operations that do the same.

By Triton's interpreter in a process of its own, since it is chosen when a kernel is defined; on a GPU the real one.

    B batch   G heads of keys   r queries' heads to each   d, e widths   F features
"""

from __future__ import annotations

import itertools
import platform
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch

from regard.attention.linear import step
from regard.attention.linear.feature_maps import MAPS
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.state import FeatureState, empty_state
from regard.kernels.linear.capabilities import why_not_step
from regard.kernels.linear.fused_layers import take_step

linux = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
B, G, r, e, F = 2, 2, 2, 32, 32
PARTS = ("S", "z", "log_scale", "log_decay")


def check(device: str, map: str, *, gated: bool, learned: bool, normalize: bool, d: int = 16) -> None:
    """Three tokens from an empty state on, each step from the same state by both ways."""
    torch.manual_seed(0)
    more: dict[str, Any] = {} if map == "elu" else {"features": F, "learned_scale": learned, "normalize": normalize}
    features = RandomFeatures(dim=d, heads=G, map=map, **more).to(device)
    if features.sigma is not None:
        features.sigma.data.uniform_(0.5, 1.5)
    state = empty_state(torch.zeros(B, G, 0, e, device=device), features.features)
    for _ in range(3):
        x, v = torch.randn(B, G, r + 1, d).to(device), torch.randn(B, G, 1, e).to(device)
        gate = 2 * torch.randn(B, G, 1).to(device) if gated else None
        other = state.fork()
        assert why_not_step(x, v, features, state) is None
        y = take_step(x, v, features=features, gate=gate, state=state)
        wanted = step.take_step(x, v, features=features, gate=gate, state=other)
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)
        for part in PARTS:
            torch.testing.assert_close(getattr(state, part), getattr(other, part), rtol=1e-4, atol=1e-5)
    assert state.S.abs().max() > 0.1 and y.std() > 0.1


def check_all(device: str) -> None:
    with torch.no_grad():
        for map, gated in itertools.product(MAPS, (False, True)):
            check(device, map, gated=gated, learned=gated, normalize=not gated)
        check(device, "hyperbolic", gated=True, learned=False, normalize=True, d=64)


def test_the_kernel_takes_the_step(interpret: Callable[..., None]) -> None:
    interpret(__file__, "the kernel takes the step")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_the_kernel_takes_the_step_cuda() -> None:
    check_all("cuda")


def test_a_cpu_does_without() -> None:
    features, state = RandomFeatures(dim=16, features=F), empty_state(torch.zeros(1, 1, 0, e), F)
    reason = why_not_step(torch.zeros(1, 1, 2, 16), torch.zeros(1, 1, 1, e), features, state)
    assert reason is not None and "NVIDIA GPUs" in reason


def test_what_the_kernel_can_do() -> None:
    class OnGPU:
        device, dtype = torch.device("cuda"), torch.bfloat16

    def can(*, dim: int = 64, map: str = "hyperbolic", many: int = 128, width: int = 64, exact: bool = False) -> bool:
        features = RandomFeatures(dim=dim, features=None if map == "elu" else many, map=map)
        v = torch.zeros(1, 1, 1, width, dtype=torch.float64 if exact else torch.float32)
        state = empty_state(v[:, :, :0], features.features)
        with patch("regard.kernels.devices.HAVE_TRITON", True):
            return why_not_step(OnGPU(), v, features, state) is None  # type: ignore[arg-type]

    assert all(can(map=map) for map in MAPS) and can(many=256) and can(width=128)
    assert not can(dim=48) and not can(many=96) and not can(width=24) and not can(many=256, width=128)
    assert not can(exact=True)
    features, v = RandomFeatures(dim=64), torch.zeros(2, 1, 1, 64)
    state = empty_state(v[:, :, :0], 128)
    turned = FeatureState(state.S.mT.contiguous().mT, state.z, state.log_scale, state.log_decay, None)
    with patch("regard.kernels.devices.HAVE_TRITON", True):
        assert why_not_step(OnGPU(), v, features, turned) == "the state must be contiguous"  # type: ignore[arg-type]


@pytest.mark.slow
@linux
def test_the_kernel_compiles_for_a_gpu(compiled_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.kernels.linear import step_triton

    monkeypatch.setattr(step_triton, "step", compiled_kernel(step_triton.step))
    for map, learned in (("hyperbolic", True), ("optimal", False), ("elu", False)):
        more: dict[str, Any] = {} if map == "elu" else {"features": 128, "learned_scale": learned}
        features = RandomFeatures(dim=64, map=map, **more)
        v = torch.zeros(2, 2, 1, 64, dtype=torch.bfloat16)
        gate = torch.zeros(2, 2, 1, dtype=torch.bfloat16) if learned else None
        state = empty_state(v[:, :, :0].float(), features.features)
        x = torch.zeros(2, 2, 2, 64, dtype=torch.bfloat16)
        step_triton.take_step_fused(x, v, features=features, gate=gate, state=state)
    assert step_triton.step.count == 3


if __name__ == "__main__":
    check_all("cpu")
    print("the kernel takes the step")
