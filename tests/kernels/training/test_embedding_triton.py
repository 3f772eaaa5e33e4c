"""The kernel from tokens to the first block's input, run by Triton's interpreter, against the modules in float64.

The interpreter is chosen when a kernel is defined, so a process of its own runs this file as a script; on a GPU it is
the kernel itself.

    B batch   T length   V vocabulary   p width
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from regard.kernels import fuse
from regard.kernels.training import fused_input
from regard.layers.embedding import Embedding
from regard.models.stack import TokenInput
from regard.positions import Learned, Sinusoidal

ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 2**-7}
SHARE = 0.3


def mask_of(seed: Tensor, B: int, T: int, p: int) -> Tensor:
    """What the kernel multiplies by: ones, through the kernel."""
    from regard.kernels.training.embedding_triton import embed_dropped

    zeros, ones = torch.zeros(B, T, dtype=torch.long, device=seed.device), torch.ones(1, p, device=seed.device)
    return embed_dropped(zeros, ones, None, seed, 1.0, SHARE, -1, torch.float32)


class Drop(nn.Module):
    """Dropout with the kernel's mask of one seed."""

    p = SHARE

    def __init__(self, seed: Tensor) -> None:
        super().__init__()
        self.seed = seed

    def forward(self, x: Tensor) -> Tensor:
        return x * mask_of(self.seed, *x.shape).to(x.dtype)


def check_input(device: str, *, p: int, placed: bool, pad_id: int | None, half: bool = False) -> None:
    """A model's input in training: result and gradient, with the mask laid on by hand."""
    seed, dtype = torch.tensor([p], device=device), torch.bfloat16 if half else torch.float32
    embedding = Embedding(vocabulary=11, dim=p, pad_id=pad_id, scale=True)
    model = fuse(TokenInput(embedding=embedding, position=Sinusoidal(dim=p) if placed else None, dropout=SHARE))
    model.to(device)
    tokens = torch.randint(11, (3, 5), device=device)
    tokens[0, :3] = 4  # one that is there more often
    with (
        patch.object(fused_input, "draw_seed", lambda _: seed),
        torch.autocast(device, torch.bfloat16, enabled=half),
    ):
        found = model(tokens)
        assert torch.equal(found, model(tokens.int()))
    assert found.dtype == dtype
    upstream = torch.randn(3, 5, p, device=device).to(dtype)
    (gradient,) = torch.autograd.grad(found, model.parameters(), upstream)
    assert gradient.dtype == torch.float32

    exact = TokenInput(embedding=embedding, position=model.position, dropout=SHARE).double()
    exact.dropout = Drop(seed)  # type: ignore[assignment]
    wanted = exact(tokens)
    (other,) = torch.autograd.grad(wanted, exact.parameters(), upstream.double())
    for one, two in ((found, wanted), (gradient, other)):
        torch.testing.assert_close(one.double(), two, rtol=ROUNDING[dtype], atol=8 * ROUNDING[dtype])
    if pad_id is not None:
        assert not gradient[pad_id].any()


def check_mask(device: str) -> None:
    one, other = (mask_of(torch.tensor([seed], device=device), 4, 9, 48) for seed in (1, 2))
    torch.testing.assert_close(one.unique(), torch.tensor([0.0, 1 / (1 - SHARE)], device=device), rtol=1e-4, atol=0.0)
    for dropped, share in ((one == 0, SHARE), (one != other, 2 * SHARE * (1 - SHARE)), (one[:3] != one[1:], 0.42)):
        assert abs(dropped.double().mean() - share) < 4 * (share * (1 - share) / dropped.numel()) ** 0.5


def check_unknown(device: str) -> None:
    """A token without a row is told by what comes of it, and nothing else's memory is read."""
    from regard.kernels.training.embedding_triton import embed_dropped

    tokens, seed = torch.tensor([[0, 3, -1, 2]], device=device), torch.tensor([1], device=device)
    found = embed_dropped(tokens, torch.ones(3, 64, device=device), None, seed, 1.0, SHARE, -1, torch.float32)
    assert found[0].isnan().any(-1).tolist() == [False, True, True, False]


def check_compiled(device: str) -> None:
    model = TokenInput(embedding=Embedding(vocabulary=9, dim=16), position=Sinusoidal(dim=16), dropout=SHARE).to(device)
    fuse(model)
    tokens, found = torch.randint(9, (2, 4), device=device), []
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(3)
        y = run(tokens)
        found.append((y, *torch.autograd.grad(y.square().sum(), model.parameters())))
    torch.testing.assert_close(*found)


def check_all(device: str) -> None:
    from regard.kernels.training.embedding_triton import embed_dropped

    check_input(device, p=16, placed=True, pad_id=None)
    check_input(device, p=20, placed=True, pad_id=4)
    check_input(device, p=600, placed=False, pad_id=None)
    check_input(device, p=64, placed=True, pad_id=None, half=True)
    check_mask(device)
    check_unknown(device)
    check_compiled(device)
    tokens, seed = torch.randint(7, (2, 3), device=device), torch.tensor([3], device=device)
    table, places = torch.randn(7, 16, device=device, requires_grad=True), torch.randn(3, 16, device=device)
    torch.library.opcheck(embed_dropped, (tokens, table, places, seed, 2.0, SHARE, -1, torch.float32))


def test_the_kernel_is_the_input(interpret: Callable[..., None]) -> None:
    interpret(__file__, "the kernel is the input")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_the_kernel_is_the_input_cuda() -> None:
    check_all("cuda")
    check_input("cuda", p=512, placed=True, pad_id=None, half=True)


@pytest.mark.slow
@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
def test_the_kernel_compiles_for_a_gpu(compiled_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes much that the compiler does not."""
    from regard.kernels.training import embedding_triton

    for name in ("_embed", "_embed_back"):
        monkeypatch.setattr(embedding_triton, name, compiled_kernel(getattr(embedding_triton, name)))
    seed, tokens = torch.tensor([3]), torch.zeros(2, 3, dtype=torch.long)
    for width in (20, 512, 4096):
        table = torch.zeros(5, width)
        given = embedding_triton.embed_dropped(tokens, table, table[:3], seed, 2.0, SHARE, -1, torch.bfloat16)
        embedding_triton.embed_dropped_back(torch.zeros_like(given), tokens, seed, 5, torch.float32, 2.0, SHARE, -1)
    assert embedding_triton._embed.count == embedding_triton._embed_back.count == 3


def test_who_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training with dropout, and positions that are constants; never on a CPU."""
    for position, fits in ((Sinusoidal(dim=8), True), (None, True), (Learned(max_length=9, dim=8), False)):
        model = fuse(TokenInput(embedding=Embedding(vocabulary=9, dim=8), position=position, dropout=SHARE))
        assert model.why_not() is not None  # on a CPU
        with monkeypatch.context() as everywhere:
            everywhere.setattr("regard.kernels.training.fused_dropout.runs_triton", lambda device: True)
            assert (model.why_not() is None) is fits
            assert model.eval().why_not() is not None
            model.train().dropout.p = 0.0
            assert model.why_not() is not None


if __name__ == "__main__":
    from regard.kernels.training import embedding_triton

    embedding_triton.NUMBERS_PER_WARP = 64  # several rows for a program
    check_all("cpu")
    print("the kernel is the input")
