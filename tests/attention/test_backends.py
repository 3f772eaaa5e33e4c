"""The reference against a triple loop, and every backend against the reference.

    B batch   H heads   G key-value heads   m queries   n keys   d_k key width   d_v value width

The oracle of each comparison is the reference in float64 on the same inputs, rounded to the dtype under test.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch import Tensor

from regard import attend, masks
from regard.attention.masks.algebra import Mask

# dtype: (absolute, relative) tolerance of outputs and gradients, the same for every backend.
TOLERANCES = {
    torch.float64: (1e-12, 1e-10),
    torch.float32: (1e-5, 1e-5),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}
CPU_BACKENDS = ("auto", "reference", "sdpa", "flash", "math")
CUDA_BACKENDS = (*CPU_BACKENDS, "efficient", "cudnn")
NO_KEY = float("-inf")
by_dtype = pytest.mark.parametrize("dtype", TOLERANCES, ids=lambda dtype: str(dtype).removeprefix("torch."))


@dataclass(frozen=True)
class Sizes:
    B: int = 2
    G: int = 2
    group: int = 1
    m: int = 3
    n: int = 3
    d_k: int = 4
    d_v: int = 4

    @property
    def H(self) -> int:
        return self.G * self.group


@dataclass
class Looks:
    """Who may look at whom, twice: as arguments of attend and as a rule of plain Python."""

    may: Callable[[int, int, int, int], bool] = lambda b, h, i, j: True  # of sentence, head, query and key number
    mask: Mask | Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False


def looks(kind: str, s: Sizes) -> Looks:
    """The mask of that kind for those sizes. The last query is opposite the last key."""
    random = torch.Generator().manual_seed(s.m * 31 + s.n)
    lengths = torch.randint(0, s.n + 1, (s.B,), generator=random)  # 0 hides a whole sentence
    ids = torch.randint(0, 2, (s.B, s.n), generator=random)
    arbitrary = torch.rand(s.B, 1, s.m, s.n, generator=random) < 0.5
    per_head = torch.rand(s.H, s.m, s.n, generator=random) < 0.5
    bias = torch.randn(s.B, s.H, s.m, s.n, generator=random, dtype=torch.float64)
    shared_bias = bias[:1, :, :, :].clone() if s.B else torch.zeros(1, s.H, s.m, s.n, dtype=torch.float64)
    back = s.n - s.m  # how far behind its own number a query stands

    def past(b: int, h: int, i: int, j: int) -> bool:
        return j <= i + back

    def real(b: int, h: int, i: int, j: int) -> bool:
        return j < int(lengths[b])

    def near(b: int, h: int, i: int, j: int) -> bool:
        return -1 <= j - (i + back) <= 2

    def together(b: int, h: int, i: int, j: int) -> bool:
        return i + back >= 0 and bool(ids[b, i + back] == ids[b, j])

    padding = masks.padding(lengths)
    return {
        "none": lambda: Looks(),
        "causal": lambda: Looks(past, causal=True),
        "causal mask": lambda: Looks(past, masks.causal()),
        "padding": lambda: Looks(real, padding),
        "causal and padding": lambda: Looks(lambda *at: past(*at) and real(*at), padding, causal=True),
        "bool": lambda: Looks(lambda b, h, i, j: bool(arbitrary[b, 0, i, j]), arbitrary),
        "bool per head": lambda: Looks(lambda b, h, i, j: bool(per_head[h, i, j]), per_head),
        "bias": lambda: Looks(bias=bias),
        "bias and causal": lambda: Looks(past, bias=shared_bias, causal=True),
        "bias and padding": lambda: Looks(real, padding, bias=shared_bias),
        "bias that forbids": lambda: Looks(
            lambda b, h, i, j: bool(arbitrary[b, 0, i, j]), bias=bias.masked_fill(~arbitrary, NO_KEY)
        ),
        "window": lambda: Looks(near, masks.window(1, 2)),
        "document": lambda: Looks(together, masks.document(ids)),
        "combination": lambda: Looks(
            lambda b, h, i, j: past(b, h, i, j) and (real(b, h, i, j) or bool(arbitrary[b, 0, i, j])),
            masks.causal() & (padding | arbitrary),
        ),
    }[kind]()


KINDS = (
    "none",
    "causal",
    "causal mask",
    "padding",
    "causal and padding",
    "bool",
    "bool per head",
    "bias",
    "bias and causal",
    "bias and padding",
    "bias that forbids",
    "window",
    "document",
    "combination",
)
by_kind = pytest.mark.parametrize("kind", KINDS)
sizes = st.builds(
    Sizes,
    B=st.integers(1, 3),
    G=st.integers(1, 2),
    group=st.integers(1, 3),
    m=st.integers(1, 7),
    n=st.integers(1, 7),
    d_k=st.integers(1, 9),
    d_v=st.integers(1, 9),
)


def edge_cases(test: Callable) -> Callable:
    """The shapes that must always be tried, whatever hypothesis draws."""
    edges = [
        Sizes(),
        Sizes(m=2, n=5),
        Sizes(m=5, n=2),
        Sizes(m=1, n=7),  # one new token behind a cache
        Sizes(m=1, n=1),
        Sizes(B=0),
        Sizes(m=0),
        Sizes(n=0),
        Sizes(m=0, n=0),
        Sizes(m=7, n=13, d_k=5, d_v=5),  # odd
        Sizes(d_k=4, d_v=6),
        Sizes(G=2, group=2),
        Sizes(G=1, group=4, m=5, n=7, d_k=3, d_v=5),
    ]
    for edge in edges:
        test = example(s=edge)(test)
    return test


def inputs(s: Sizes, dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(s.m + 10 * s.n)
    shapes = ((s.B, s.H, s.m, s.d_k), (s.B, s.G, s.n, s.d_k), (s.B, s.G, s.n, s.d_v))
    q, k, v = (torch.randn(shape, generator=random, dtype=torch.float64).to(device, dtype) for shape in shapes)
    return q, k, v


def allowed(may: Callable[[int, int, int, int], bool], s: Sizes) -> Tensor:
    grid = [[[[may(b, h, i, j) for j in range(s.n)] for i in range(s.m)] for h in range(s.H)] for b in range(s.B)]
    return torch.tensor(grid, dtype=torch.bool).reshape(s.B, s.H, s.m, s.n)


def by_hand(q: Tensor, k: Tensor, v: Tensor, look: Looks, s: Sizes) -> tuple[Tensor, Tensor]:
    """The definition of D1 and D9, one number at a time."""
    y, weights = torch.zeros(s.B, s.H, s.m, s.d_v).double(), torch.zeros(s.B, s.H, s.m, s.n).double()
    for b in range(s.B):
        for h in range(s.H):
            for i in range(s.m):
                scores = []
                for j in range(s.n):
                    dot = sum(float(q[b, h, i, c]) * float(k[b, h // s.group, j, c]) for c in range(s.d_k))
                    plus = 0.0 if look.bias is None else float(look.bias.expand(s.B, s.H, s.m, s.n)[b, h, i, j])
                    scores.append(dot / math.sqrt(s.d_k) + plus if look.may(b, h, i, j) else NO_KEY)
                total = sum(math.exp(score) for score in scores)
                for j in range(s.n):
                    if total > 0:
                        weights[b, h, i, j] = math.exp(scores[j]) / total
                    for c in range(s.d_v):
                        y[b, h, i, c] += weights[b, h, i, j] * v[b, h // s.group, j, c]
    return y, weights


@by_kind
@settings(max_examples=5)
@given(s=sizes)
@edge_cases
def test_the_reference_is_the_definition(kind: str, s: Sizes) -> None:
    look = looks(kind, s)
    q, k, v = inputs(s, torch.float64)
    y, weights = attend(q, k, v, mask=look.mask, bias=look.bias, causal=look.causal, return_weights=True)
    want_y, want_weights = by_hand(q, k, v, look, s)
    torch.testing.assert_close(weights, want_weights, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(y, want_y, atol=1e-12, rtol=1e-12)


def forward_backward(
    q: Tensor, k: Tensor, v: Tensor, look: Looks, upstream: Tensor, run: Callable[..., Tensor]
) -> dict[str, Tensor]:
    """The output and the gradients of q, k, v and the bias."""
    leaves = {"q": q, "k": k, "v": v} | ({} if look.bias is None else {"bias": look.bias})
    leaves = {name: x.detach().clone().requires_grad_() for name, x in leaves.items()}
    y = run(leaves["q"], leaves["k"], leaves["v"], mask=look.mask, bias=leaves.get("bias"), causal=look.causal)
    # A kernel may leave an empty result without a graph: its gradients are zeros.
    grads = torch.autograd.grad(y, list(leaves.values()), upstream.to(y), materialize_grads=True)
    return {"y": y.detach()} | {f"grad of {name}": grad for name, grad in zip(leaves, grads, strict=True)}


def on(look: Looks, dtype: torch.dtype, device: str) -> Looks:
    """The same mask with its tensors on that device and its bias in that dtype."""
    mask = look.mask.to(device) if isinstance(look.mask, Tensor) else look.mask
    return Looks(look.may, mask, None if look.bias is None else look.bias.to(device, dtype), look.causal)


def check_backend(
    kind: str, s: Sizes, dtype: torch.dtype, device: str, run: Callable[..., Tensor]
) -> dict[str, Tensor]:
    """Compare outputs and gradients with the reference in float64; rows without keys are zeros, exactly."""
    q, k, v = inputs(s, dtype, device)
    rounded = on(looks(kind, s), dtype, device)
    upstream = torch.randn(s.B, s.H, s.m, s.d_v, generator=torch.Generator().manual_seed(1)).to(device, dtype)

    def reference(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
        return attend(q, k, v, backend="reference", **options)

    exact = on(rounded, torch.float64, "cpu" if device == "cpu" else device)
    want = forward_backward(q.double(), k.double(), v.double(), exact, upstream, reference)
    got = forward_backward(q, k, v, rounded, upstream, run)
    atol, rtol = TOLERANCES[dtype]
    assert got.keys() == want.keys()
    for name in want:
        assert got[name].dtype == dtype, name
        close = torch.allclose(got[name].double(), want[name], atol=atol, rtol=rtol)
        assert close, f"{name} of {kind}, {s}: got\n{got[name]}\nwant\n{want[name]}"
    empty = ~allowed(rounded.may, s).any(-1).to(device)
    assert not got["y"][empty].any()
    assert not got["grad of q"][empty].any()
    return got


def run_or_refuse(backend: str, may_refuse: bool) -> Callable[..., Tensor]:
    """attend with that backend; one that cannot do the work must say so, and then auto has to do it."""

    def run(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch explains each refusal in a warning of its own
            try:
                return attend(q, k, v, backend=backend, **options)
            except ValueError as error:
                refusal = rf"SDPA's kernel '{backend}' cannot do this on .*: use backend='auto'"
                if not may_refuse or not re.fullmatch(refusal, str(error)):
                    raise
        return attend(q, k, v, **options)

    return run


def check_on_cpu(backend: str, kind: str, s: Sizes, dtype: torch.dtype) -> None:
    # Only flash is choosy: one width for keys and values, and no gradient of a bias.
    refuses = backend == "flash" and (s.d_k != s.d_v or looks(kind, s).bias is not None)
    check_backend(kind, s, dtype, "cpu", run_or_refuse(backend, refuses))


@by_kind
@pytest.mark.parametrize("backend", CPU_BACKENDS)
@settings(max_examples=2)
@given(s=sizes)
@edge_cases
def test_every_backend_is_the_reference(backend: str, kind: str, s: Sizes) -> None:
    check_on_cpu(backend, kind, s, torch.float32)


@by_dtype
@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_every_backend_is_the_reference_in_every_dtype(backend: str, dtype: torch.dtype) -> None:
    for kind in KINDS:
        for s in (Sizes(m=2, n=5), Sizes(m=5, n=2, d_k=4, d_v=6), Sizes(G=2, group=2, n=0)):
            check_on_cpu(backend, kind, s, dtype)


@by_dtype
def test_flash_takes_a_bias_that_needs_no_gradient(dtype: torch.dtype) -> None:
    s = Sizes(m=5, n=7)
    q, k, v = inputs(s, dtype)
    bias = torch.randn(s.H, s.m, s.n).to(dtype)
    want = attend(q.double(), k.double(), v.double(), bias=bias.double(), backend="reference")
    atol, rtol = TOLERANCES[dtype]
    torch.testing.assert_close(attend(q, k, v, bias=bias, backend="flash").double(), want, atol=atol, rtol=rtol)


@pytest.mark.parametrize("kernel", ["efficient", "cudnn"])
def test_kernels_of_other_devices_say_so(kernel: str) -> None:
    q, k, v = inputs(Sizes(), torch.float32)
    with pytest.raises(ValueError, match=rf"kernel '{kernel}' cannot do this on cpu with torch.float32.*'auto'"):
        attend(q, k, v, backend=kernel)


# The same on an NVIDIA GPU, with the kernels that only live there.

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
CUDA_SIZES = (
    Sizes(m=64, n=64, d_k=32, d_v=32),
    Sizes(m=33, n=77, d_k=16, d_v=16),
    Sizes(m=77, n=33, d_k=16, d_v=16),
    Sizes(m=1, n=65, d_k=64, d_v=64),
    Sizes(G=2, group=2, m=17, n=17, d_k=8, d_v=8),
    Sizes(m=5, n=7, d_k=4, d_v=6),
    Sizes(B=0),
    Sizes(m=0),
    Sizes(n=0),
)


@needs_cuda
@by_dtype
@pytest.mark.parametrize("backend", CUDA_BACKENDS)
def test_every_backend_is_the_reference_cuda(backend: str, dtype: torch.dtype) -> None:
    for kind in KINDS:
        for s in CUDA_SIZES:
            check_backend(kind, s, dtype, "cuda", run_or_refuse(backend, backend in ("flash", "efficient", "cudnn")))


@needs_cuda
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "causal mask"])
def test_flex_is_the_reference_cuda(kind: str) -> None:
    torch.compiler.reset()
    flex = torch.compile(partial(attend, backend="flex"), fullgraph=True, dynamic=False)
    square, behind = Sizes(m=200, n=200, d_k=32, d_v=32), Sizes(G=1, group=2, m=40, n=200, d_k=16, d_v=16)
    for s, dtype in ((square, torch.float32), (behind, torch.bfloat16), (square, torch.float16)):
        check_backend(kind, s, dtype, "cuda", flex)


@needs_cuda
@pytest.mark.parametrize("kind", ["window", "document", "by head"])
def test_auto_is_right_where_it_picks_flex_cuda(kind: str) -> None:
    """Long block-sparse masks, one beside a tensor that differs by sentence and head."""
    torch.compiler.reset()
    s = Sizes(m=1100, n=1100, d_k=32, d_v=32)
    by_head = torch.zeros(2, 2, 1, 1100, dtype=torch.bool, device="cuda")
    by_head[0, 0, :, :300] = by_head[0, 1, :, 300:] = by_head[1, 0, :, 700:] = by_head[1, 1, :, :900] = True
    mask = masks.window(100) & by_head if kind == "by head" else looks(kind, s).mask
    q, k, v = inputs(s, torch.float32, "cuda")
    upstream = torch.randn_like(q)
    want, got = (
        forward_backward(q, k, v, Looks(mask=mask), upstream, run)
        for run in (partial(attend, backend="reference"), torch.compile(attend, fullgraph=True))
    )
    for name in want:
        assert torch.allclose(got[name], want[name], atol=1e-5, rtol=1e-5), name
