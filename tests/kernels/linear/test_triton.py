"""The kernels of random features, run by Triton's interpreter on a CPU, against the quadratic oracle in float64.

The interpreter is chosen when a kernel is defined, so a process of its own runs this file as a script; on a GPU it is
the kernels themselves.

    B batch   H heads   G heads of keys   m queries   n keys   d, e widths   F features
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from regard import masks
from regard.attention.linear.feature_maps import MAPS, Trig
from regard.attention.linear.features import RandomFeatures
from regard.kernels.linear.attend import attend_features, needs_log_scales
from regard.kernels.linear.capabilities import why_not_attend

linux = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
# Of the greatest number of each result. Half precision rounds every feature and every sum of a chunk once.
ROUNDING = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def features_for(
    device: str, map: Any, d: int, F: int, G: int, dtype: torch.dtype, learned: bool, **more: Any
) -> RandomFeatures:
    """W is rounded to the dtype, as the kernels do."""
    made = RandomFeatures(dim=d, features=None if map == "elu" else F, heads=G, map=map, learned_scale=learned, **more)
    made = made.to(device)
    made.W.copy_(made.W.to(dtype))
    if made.sigma is not None:
        made.sigma.data.uniform_(0.5, 1.5)
    return made


def close(what: str, found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    off = (found.double() - wanted.double()).abs().max() / wanted.double().abs().max()
    assert off < ROUNDING[dtype], f"{what}: off by {off:.1e} of the greatest number"


def check(
    device: str,
    *,
    map: str,
    m: int,
    n: int | None = None,
    B: int = 1,
    H: int = 1,
    G: int = 1,
    d: int = 16,
    e: int = 32,
    F: int = 32,
    causal: bool = True,
    gate: bool = False,
    padding: bool = False,
    learned: bool = False,
    normalize: bool | None = None,
    scale: float | None = None,
    longest: float = 1.0,
    log_scales: bool = True,
    programs: int = 2,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Output and all gradients; keys are up to `longest` times as long as others.

    With `log_scales` False the kernels must have chosen to do without, and are then made to do with them too.
    """
    from regard.kernels.linear import attend, launch_triton

    n = m if n is None else n
    torch.manual_seed(0)
    features = features_for(device, map, d, F, G, dtype, learned, normalize=normalize, scale=scale)
    assert needs_log_scales(dtype, features, torch.zeros(1) if gate else None) == log_scales
    shapes = ((B, m, H, d), (B, n, G, d), (B, n, G, e))
    q, k, v = (torch.randn(shape).to(device, dtype).transpose(1, 2) for shape in shapes)  # as a layer cuts them
    k = k * torch.linspace(1.0, longest, n, device=device)[:, None].to(dtype)
    leaves = [q, k, v] + [torch.randn(B, G, n, device=device) + 2] * gate
    for leaf in leaves:
        leaf.requires_grad_()
    leaves += [features.sigma] * learned
    keep = torch.rand(B, 1, 1, n, device=device) < 0.7 if padding else None
    if keep is not None:
        keep[..., :3] = False  # queries before the first key see nothing
    given: dict[str, Any] = {"features": features, "mask": keep, "causal": causal}
    given["gate"] = leaves[3] if gate else None
    upstream = torch.randn(B, m, H, e).to(device, dtype).transpose(1, 2)
    exact = [x.double() for x in (q, k, v)]
    wanted = attend_features(*exact, backend="reference", **given)
    results = (wanted, *torch.autograd.grad(wanted, leaves, upstream.double()))
    names = ["y", "dq", "dk", "dv"] + ["dgate"] * gate + ["dsigma"] * learned
    for way in {log_scales, True}:
        with (
            patch.object(launch_triton, "PROGRAMS", programs),
            patch.object(attend, "needs_log_scales", return_value=way),
        ):
            y = attend_features(q, k, v, backend="triton", **given)
            found = torch.autograd.grad(y, leaves, upstream)
        assert y.shape == (B, H, m, e) and y.dtype == dtype and y.transpose(1, 2).is_contiguous()
        for name, one, other in zip(names, (y, *found), results, strict=True):
            close(f"{name}, {map}, {m} x {n}, {dtype}, log_scales {way}", one, other, dtype)
        if keep is not None and causal:
            assert not y[:, :, :3].any() and not found[0][:, :, :3].any()  # exactly zero


def small(device: str, L: int = 130, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(1, 2, L, 16).to(device, dtype) for _ in range(3))
    return q, k, v


def check_state(device: str) -> None:
    """A text in two parts is the text; and the state between them is that of the other backend."""
    features = features_for(device, "hyperbolic", 16, 32, 1, torch.float32, False)
    q, k, v = small(device)
    for gate in (torch.randn(1, 2, 130).to(device) + 2, None):  # with and without log_scales
        whole = attend_features(q, k, v, features=features, causal=True, gate=gate, backend="chunked")
        ours = other = None
        for part in (slice(0, 70), slice(70, 130)):
            given: dict[str, Any] = {"features": features, "causal": True, "return_state": True}
            given["gate"] = None if gate is None else gate[..., part]
            cut = [x[:, :, part] for x in (q, k, v)]
            y, ours = attend_features(*cut, **given, state=other, backend="triton")  # from the other's state
            other = attend_features(*cut, **given, state=other, backend="chunked")[1]
            torch.testing.assert_close(y, whole[:, :, part], rtol=1e-5, atol=1e-5)
            shift = (ours.log_scale - other.log_scale).exp()
            torch.testing.assert_close(ours.S * shift[..., None, None], other.S, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours.z * shift[..., None], other.z, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours.log_decay, other.log_decay)
            assert ours.draw == other.draw


def check_zeros(device: str) -> None:
    """A vector of zeros cannot be brought to length 1, so a key of zeros has another weight e^{-|x|²/2}."""
    features = features_for(device, "hyperbolic", 16, 32, 1, torch.float32, False, scale=2.0)
    q, k, v = small(device, 20)
    q[:, :, 3] = k[:, :, ::2] = 0.0
    y = attend_features(q, k, v, features=features, causal=True, backend="triton")
    exact = [x.double() for x in (q, k, v)]
    close("zeros", y, attend_features(*exact, features=features, causal=True, backend="reference"), torch.float32)


def check_order(device: str) -> None:
    """Later keys change no output by a single bit, however large they are."""
    features = features_for(device, "positive", 16, 16, 1, torch.float32, False, normalize=False)
    q, k, v = small(device, 70)
    y = attend_features(q, k, v, features=features, causal=True, backend="triton")
    for at in (20, 66):
        other, values = k.clone(), v.clone()
        other[:, :, at:] *= 40.0
        values[:, :, at:] += 1.0
        again = attend_features(q, other, values, features=features, causal=True, backend="triton")
        assert torch.equal(y[:, :, :at], again[:, :, :at]) and not torch.equal(y[:, :, at:], again[:, :, at:])


def check_floor(device: str) -> None:
    """Denominators that are taken for the floor have no gradient, here many of them; the oracle knows no floor."""
    for normalize, floor in ((False, 0.2), (True, 2.0)):
        torch.manual_seed(0)  # and all is drawn on the CPU: how many these are is chance
        features = features_for(device, "trig", 16, 32, 1, torch.float32, False, normalize=normalize)
        leaves = [x.requires_grad_() for x in (*small(device, 20), torch.randn(1, 2, 20).to(device) + 1)]
        q, k, v, gate = leaves
        given: dict[str, Any] = {"features": features, "causal": True, "gate": None if normalize else gate}
        leaves = leaves[: 3 if normalize else 4]  # without a gate there are no log_scales
        upstream = torch.randn(v.shape).to(device)
        results = []
        with patch.object(Trig, "floor", floor):
            for backend, exact in (("triton", torch.float32), ("chunked", torch.float64)):
                y = attend_features(*(x.to(exact) for x in (q, k, v)), **given, backend=backend)
                results.append((y, *torch.autograd.grad(y, leaves, upstream.to(exact))))
        without = attend_features(q, k, v, **given, backend="chunked")
        assert 5 < (without - results[0][0]).abs().amax(-1).gt(0.01).sum() < 35  # rows of 40
        for one, other in zip(*results, strict=True):
            close("with a floor", one, other, torch.float32)


def check_compiled(device: str) -> None:
    """One graph, forward and backward, with gate, padding and learned scale."""
    features = features_for(device, "hyperbolic", 16, 32, 2, torch.float32, True)
    leaves = [*small(device, 20), torch.randn(1, 2, 20, device=device)]
    leaves = [x.requires_grad_() for x in leaves]

    def run(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
        mask = masks.causal() & masks.padding([15])
        return attend_features(q, k, v, features=features, mask=mask, gate=gate, backend="triton")

    results = []
    for way in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
        y = way(*leaves)
        results.append((y, *torch.autograd.grad(y.square().sum(), [*leaves, features.sigma])))
    torch.testing.assert_close(*results)


def check_operators(device: str, *, whole: bool = True) -> None:
    from regard.kernels.linear.operators import attend_walk, sum_up

    q, k, v = small(device, 20)
    q, k, v = q.requires_grad_(), k[:, :1].clone().requires_grad_(), v[:, :1].clone().requires_grad_()  # one group
    W, a = torch.randn(1, 16, 16, device=device), torch.ones(1, 16, device=device, requires_grad=True)
    c = torch.zeros(1, 1, 20, device=device, requires_grad=True)
    numbers = (-1.0, 0.2, 1.0, 0.0, 1e-20)
    rest = (W, a, c, None, None, None, None)
    for log_scales in (True, False) if whole else (True,):
        torch.library.opcheck(attend_walk, (q, k, v, *rest, True, True, True, log_scales, "hyperbolic", numbers, 64))
    alone = [None if x is None else x.detach() for x in (k, v, *rest)]
    torch.library.opcheck(sum_up, (*alone, True, True, True, "positive", numbers, 64))


CASES: list[dict[str, Any]] = [
    {"map": "hyperbolic", "m": 130, "H": 2, "gate": True, "padding": True, "learned": True, "programs": 4},
    {"map": "trig", "m": 100, "gate": True, "padding": True, "programs": 1},
    {"map": "optimal", "m": 70, "learned": True, "normalize": False},
    {"map": "positive", "m": 40, "n": 70, "causal": False, "padding": True, "learned": True, "H": 2},
    {"map": "elu", "m": 70, "F": 16, "padding": True, "log_scales": False},
    {"map": "plain", "m": 20, "n": 70, "causal": False, "log_scales": False},
    {"map": "hyperbolic", "m": 70, "scale": 4.0, "log_scales": False},  # as large as features may be without log_scales
    {"map": "hyperbolic", "m": 40, "scale": 5.0},
    {"map": "positive", "m": 70, "normalize": False, "longest": 30.0, "F": 16},  # weights from 1 to e^-100 or so
    {"map": "hyperbolic", "m": 70, "gate": True, "dtype": torch.float16},
]
OTHERS: list[dict[str, Any]] = [
    {"map": "hyperbolic", "m": 130, "H": 2, "padding": True, "log_scales": False, "programs": 4},
    {"map": "trig", "m": 100, "H": 2, "G": 2, "log_scales": False},
    {"map": "positive", "m": 40, "n": 70, "causal": False, "padding": True, "log_scales": False, "H": 2},
    {"map": "optimal", "m": 70, "log_scales": False},
]
PARTS = [check_state, check_zeros, check_order, check_floor, check_compiled, check_operators]


@pytest.mark.parametrize("extent", ["part", pytest.param("whole", marks=pytest.mark.slow)])
def test_the_kernels_are_the_oracle(extent: str, interpret: Callable[..., None]) -> None:
    interpret(__file__, "the kernels are the oracle", extent)


LARGE: list[dict[str, Any]] = [
    {"map": map, "m": 500, "B": 2, "H": 4, "G": 2, "d": 64, "e": 64, "F": F, "dtype": dtype}
    | more
    | ({"F": 64} if dtype == torch.float32 else {})  # there are kernels for no more
    for dtype in (torch.bfloat16, torch.float16, torch.float32)
    for map, F, more in (
        ("hyperbolic", 128, {"gate": True, "learned": True, "padding": True}),
        ("hyperbolic", 128, {"padding": True, "log_scales": dtype == torch.float16}),
        ("hyperbolic", 64, {"programs": 1, "log_scales": dtype == torch.float16}),
        ("hyperbolic", 256, {"causal": False, "n": 300, "padding": True, "log_scales": dtype == torch.float16}),
        ("positive", 128, {"gate": True}),
        ("trig", 128, {"gate": True, "padding": True}),
        ("trig", 128, {"padding": True, "log_scales": dtype == torch.float16}),
        ("optimal", 64, {"learned": True}),
        ("elu", 64, {"d": 64, "log_scales": dtype == torch.float16}),
    )
]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@pytest.mark.parametrize("case", [*CASES, *OTHERS, *LARGE], ids=str)
def test_the_kernels_are_the_oracle_cuda(case: dict[str, Any]) -> None:
    check("cuda", **case)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@pytest.mark.parametrize("part", PARTS)
def test_the_kernels_in_their_place_cuda(part: Callable[[str], None]) -> None:
    part("cuda")


class OnGPU:
    """As much of a tensor as is looked at."""

    requires_grad, device = False, torch.device("cuda:0")

    def __init__(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> None:
        self.shape, self.dtype = torch.Size(shape), dtype

    def numel(self) -> int:
        return self.shape.numel()


def test_levels_are_for_what_may_overflow() -> None:
    def needs(dtype: torch.dtype = torch.bfloat16, gate: Tensor | None = None, **more: Any) -> bool:
        return needs_log_scales(dtype, RandomFeatures(dim=64, **more), gate)

    for map in MAPS:
        assert not needs(map=map) and needs(torch.float16, map=map) and needs(gate=torch.zeros(1), map=map)
        assert map == "elu" or needs(map=map, learned_scale=True) == (map != "plain")
        assert map == "elu" or needs(map=map, normalize=False) == (map != "plain")
    assert not needs(scale=2.0) and needs(scale=3.0)
    for d in (16, 128):  # the rows are no longer than it takes them for
        assert RandomFeatures(dim=d, features=256, heads=16).W.norm(dim=-1).max() < d**0.5 + 5


@linux
def test_the_kernels_get_what_they_can_do() -> None:
    def why(
        *, map: Any = "hyperbolic", F: int = 128, d: int = 64, e: int = 64, m: int = 9, n: int = 9, **more: Any
    ) -> Any:
        features = RandomFeatures(dim=d, features=None if map == "elu" else F, map=map)
        given = {"gate": None, "causal": True, "state": None, "return_state": False} | {
            x: more.pop(x) for x in ("causal", "return_state") if x in more
        }
        return why_not_attend(
            OnGPU(2, 4, m, d, **more), OnGPU(2, 2, n, d, **more), OnGPU(2, 2, n, e), features, **given
        )

    for map in MAPS:
        assert why(map=map) is None
    assert why(m=5, n=9, causal=False) is None and why(F=256) is None and why(dtype=torch.float32) is None
    assert "in float32 64" in why(F=256, dtype=torch.float32)
    assert "as many queries as keys" in why(m=5) and "more than one" in why(m=1, n=1)
    assert "float64" in why(dtype=torch.float64)
    for sizes in ({"d": 48}, {"e": 24}, {"F": 96}, {"F": 512}, {"F": 256, "e": 128}):
        assert "rows of W" in why(**sizes)
    with patch("regard.kernels.gpu.AMPERE", False):
        assert "8.0" in why()
    learned = RandomFeatures(dim=64, learned_scale=True)
    x = OnGPU(2, 2, 9, 64)
    assert why_not_attend(x, x, x, learned, None, True, None, False) is None
    assert "gradients for a state" in why_not_attend(x, x, x, learned, None, True, None, True)
    with torch.no_grad():
        assert why_not_attend(x, x, x, learned, None, True, None, True) is None


def test_on_a_cpu_it_is_refused() -> None:
    q, k, v = small("cpu", 5)
    features = RandomFeatures(dim=16, features=32)
    with pytest.raises(ValueError, match=r"backend 'triton' cannot do this: it is for NVIDIA GPUs.*q is on cpu"):
        attend_features(q, k, v, features=features, causal=True, backend="triton")


@pytest.mark.slow
@linux
def test_the_kernels_compile_for_a_gpu(compiled_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes much that the compiler does not."""
    from regard.kernels.linear import launch_triton, operators as op_triton

    for name in ("sums", "scan", "mix", "deltas", "grad"):
        monkeypatch.setattr(launch_triton, name, compiled_kernel(getattr(launch_triton, name)))
    for map, M, d, gate in (("hyperbolic", 64, 64, True), ("trig", 16, 16, False), ("elu", 0, 16, False)):
        q, k, v = torch.zeros(3, 1, 2, 128, d, dtype=torch.bfloat16).unbind()
        c = torch.zeros(1, 2, 128) if gate else None
        rest = (torch.zeros(1, M, d), torch.ones(1, d), c, c, None, None, None)
        settings = (True, True, gate, gate, map, (-1.0, 0.1, 1.0, 0.0, 1e-20), 64)
        y, top, den = op_triton.attend_walk(q, k, v, *rest, *settings)
        op_triton.attend_walk_back(y, y.clone(), top, den, q, k, v, *rest, *settings, gate)
    assert launch_triton.grad.count == launch_triton.mix.count == 6
    for kernel in (launch_triton.sums, launch_triton.mix, launch_triton.grad):
        assert "mma.sync" in kernel.ptx and "wgmma" not in kernel.ptx  # see without_wgmma.py


if __name__ == "__main__":
    whole = "part" not in sys.argv
    for case in [*CASES, *OTHERS] if whole else CASES:
        check("cpu", **case)
    for part in PARTS[:-1]:
        part("cpu")
    check_operators("cpu", whole=whole)
    print("the kernels are the oracle")
