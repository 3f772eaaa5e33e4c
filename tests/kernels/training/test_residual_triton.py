"""The kernels of a block's residual and inner layer, run by Triton's interpreter, against the modules in float64.

The interpreter is chosen when a kernel is defined, so a process of its own runs this file as a script; on a GPU it is
the kernels themselves.

    B batch   m tokens   p width
"""

from __future__ import annotations

import copy
import platform
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from regard import Block, FeedForward, LayerNorm, MultiHeadAttention, RMSNorm, record
from regard.kernels import fuse, unfuse
from regard.kernels.training import fused_attention, fused_block, fused_dropout, fused_feed_forward
from regard.models.stack import Stack

ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 2**-6}
SHARE = 0.3


def mask_of(seed: Tensor, *shape: int) -> Tensor:
    """What the kernels multiply by: ones, through the kernel."""
    from regard.kernels.training.residual_triton import add_dropped

    ones = torch.ones(shape, device=seed.device)
    return add_dropped(torch.zeros_like(ones), ones, seed, SHARE)


def close(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(found.double(), wanted, rtol=ROUNDING[dtype], atol=4 * ROUNDING[dtype])


def check_norm(
    device: str,
    *,
    norm: type,
    rows: int,
    width: int,
    dtype: torch.dtype,
    both: bool,
    post: bool = False,
    shifted: bool = False,
    dropout: float = SHARE,
) -> None:
    """norm(x + dropout(h)), the sum if `both`, and all gradients, with the mask laid on by hand.

    If `post`, what comes back for the sum counts for the norm; if `shifted`, h has a bias, which gets its gradient.
    """
    from regard.kernels.training import residual_triton
    from regard.kernels.training.residual_triton import add_norm

    draw = torch.Generator().manual_seed(width)
    x, h, dy, ds = (torch.randn(rows, width, generator=draw).to(device, dtype) for _ in range(4))
    module = norm(width).to(device)
    nn.init.normal_(module.weight)
    bias = getattr(module, "bias", None)
    if bias is not None:
        nn.init.normal_(bias)
    shift = torch.randn(width, generator=draw).to(device) if shifted else None
    given = [x, h, *([] if shift is None else [shift]), *module.parameters()]
    for one in given:
        one.requires_grad_()
    seed = torch.tensor([width], device=device) if dropout else None
    y, s = add_norm(x.detach(), x, h, shift, module.weight, bias, seed, dropout, module.eps, norm is LayerNorm, post)
    assert y.dtype == s.dtype == dtype
    with patch.object(residual_triton, "add_norm_back", wraps=residual_triton.add_norm_back) as back:
        found = torch.autograd.grad([y, s] if both else y, given, [dy, ds] if both else dy)
    assert (back.call_args.args[1] is None) is not both  # no zeros are read for a sum that goes nowhere

    exact = norm(width).to(device).double()
    exact.load_state_dict(module.state_dict())
    inputs = [one.detach().double().requires_grad_() for one in given[: 3 if shifted else 2]]
    wide = [*inputs, *exact.parameters()]
    added = inputs[1] + sum(one - one.detach() for one in inputs[2:])
    total = inputs[0] + added * (1.0 if seed is None else mask_of(seed, rows, width).double())
    close(s, total, dtype)
    total = total + (s.double() - total).detach()  # the norm is of what was rounded
    wanted_y = exact(total)
    close(y, wanted_y, dtype)
    loss = (wanted_y * dy.double()).sum() + (((wanted_y if post else total) * ds.double()).sum() if both else 0.0)
    for one, other in zip(found, torch.autograd.grad(loss, wide), strict=True):
        close(one / rows**0.5, other / rows**0.5, dtype)


def check_sum_alone(device: str) -> None:
    """Where only the sum is used, its gradient is all there is, and the bias of h has its part."""
    from regard.kernels.training.residual_triton import add_norm

    x, h, ds = torch.randn(3, 7, 20, device=device)
    w, shift, seed = torch.ones(20, device=device), torch.zeros(20, device=device), torch.tensor([20], device=device)
    given = [one.requires_grad_() for one in (x, h, shift)]
    for dropout in (SHARE, 0.0):
        mask = mask_of(seed, 7, 20) if dropout else torch.ones(7, 20, device=device)
        _, s = add_norm(x.detach(), x, h, shift, w, None, seed if dropout else None, dropout, 1e-5, True, False)
        found = torch.autograd.grad(s, given, ds)
        torch.testing.assert_close(found, (ds, ds * mask, (ds * mask).sum(0)))


def check_mask(device: str) -> None:
    """The share, and what it hangs on."""
    seeds = [fused_dropout.draw_seed(torch.empty(0, device=device)) for _ in range(2)]
    one, other = (mask_of(seed, 48, 64) for seed in seeds)
    torch.testing.assert_close(one.unique(), torch.tensor([0.0, 1 / (1 - SHARE)], device=device), rtol=1e-4, atol=0.0)
    differ = 2 * SHARE * (1 - SHARE)  # as two masks do that know nothing of each other
    for dropped, share in ((one == 0, SHARE), (other == 0, SHARE), (one != other, differ)):
        assert abs(dropped.double().mean() - share) < 4 * (share * (1 - share) / dropped.numel()) ** 0.5
    for pairs in ((one[:, 1:], one[:, :-1]), (one[1:], one[:-1])):  # nor do neighbours
        assert abs(torch.corrcoef(torch.stack([pair.flatten() for pair in pairs]))[0, 1]) < 4 / one.numel() ** 0.5
    assert torch.equal(one, mask_of(seeds[0], 48, 64))
    drawn_again = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn_again.append([int(fused_dropout.draw_seed(one)), *fused_dropout.draw_seed(one, 3).tolist()])
    assert drawn_again[0] == drawn_again[1] and len(set(drawn_again[0])) == 4


def check_hidden(device: str, *, relu: bool, bias: bool, dtype: torch.dtype, dropout: float = SHARE) -> None:
    """dropout(f(h)): what stays is grown, and the gradients follow what stayed; that of h's bias too."""
    from regard.kernels.training.feed_forward_triton import activated

    h = (3 * torch.randn(21, 20, device=device)).to(dtype).requires_grad_()
    b = torch.randn(20, device=device, requires_grad=True) if bias else None
    seed = torch.tensor([3], device=device) if dropout else None
    y, _ = activated(h, b, seed, dropout, relu)
    whole = h.double() + (0 if b is None else (b - b.detach()).double())
    whole = torch.relu(whole) if relu else nn.functional.gelu(whole, approximate="tanh")
    stays = activated(torch.ones_like(h), None, seed, dropout, relu)[0] > 0
    mask = stays.double() * 65536 / (65536 - round(65536 * dropout))
    close(y, whole * mask, dtype)
    assert abs((mask == 0).double().mean() - dropout) < 0.07
    assert not dropout or not torch.equal(mask[:, :4], mask[:, 16:])
    dy = torch.randn_like(y)
    given = [one for one in (h, b) if one is not None]
    found, wanted = (torch.autograd.grad(one, given, g) for one, g in ((y, dy), (whole * mask, dy.double())))
    for one, other in zip(found, wanted, strict=True):
        close(one, other.double(), dtype)
    h = torch.full((1, 24), torch.nan, device=device)
    assert activated(h, None, seed, dropout, relu)[0].isnan().any()  # a fault is not hidden


def check_sums(device: str) -> None:
    from regard.kernels.training.row_sums_triton import add_up

    for shape in ((1, 3), (2100, 2, 20), (70, 16)):
        parts = torch.randn(shape, device=device)
        torch.testing.assert_close(add_up(parts).double(), parts.double().sum(0), rtol=1e-5, atol=1e-4)


class Drop(nn.Module):
    """Dropout with the kernel's mask of one seed."""

    p = SHARE

    def __init__(self, seed: Tensor) -> None:
        super().__init__()
        self.seed = seed

    def forward(self, x: Tensor) -> Tensor:
        return x * mask_of(self.seed, *x.shape).to(x.dtype)


def block_of(
    order: str, norm: Callable[[], nn.Module], dim: int = 16, dropout: float = SHARE, activation: Any = "relu"
) -> Block:
    return Block(
        self_attention=MultiHeadAttention(dim=dim, heads=2),
        cross_attention=MultiHeadAttention(dim=dim, heads=2),
        feed_forward=FeedForward(dim=dim, hidden=24, activation=activation),
        norm=norm,
        order=order,  # type: ignore[arg-type]
        dropout=dropout,
    )


def check_blocks(device: str) -> None:
    """A fused block is the plain block with the kernels' mask: results and all gradients."""
    seed = torch.tensor([11], device=device)
    for order, norm in (("post", LayerNorm), ("pre", LayerNorm), ("pre", RMSNorm)):
        block = fuse(block_of(order, lambda norm=norm: norm(16)).to(device))
        for layer in (block.self_attention.output, block.cross_attention.output, block.feed_forward.down):
            nn.init.normal_(layer.bias)
        x, memory = torch.randn(2, 2, 3, 16, device=device, requires_grad=True).unbind()
        inputs = [x, memory, *block.parameters()]
        with patch.object(fused_block, "draw_seed", lambda _, count: seed.repeat(count)):
            found = block(x, memory=memory, causal=True)
        unfuse(block).dropout = Drop(seed)
        wanted = block(x, memory=memory, causal=True)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        upstream = torch.randn_like(wanted)
        gradients = [torch.autograd.grad(y, inputs, upstream) for y in (found, wanted)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def check_mixed(device: str) -> None:
    """Residuals in float32 and sublayers in bfloat16, which no kernel takes together, are as exact as the modules.

    Against float64, the largest error of each result and each gradient is at most 1.5 times that of the plain block,
    and an ulp of bfloat16.
    """
    plain = block_of("pre", lambda: LayerNorm(16), dropout=0.0).to(device)
    exact = copy.deepcopy(plain).double()
    inputs = torch.randn(2, 2, 3, 16, device=device)

    def results(block: Block, dtype: torch.dtype) -> tuple[Tensor, ...]:
        x, memory = inputs.to(dtype).requires_grad_().unbind()
        with torch.autocast(device, torch.bfloat16, enabled=dtype is torch.float32):
            y = block(x, memory=memory, causal=True)
        assert y.dtype == dtype
        return y, *torch.autograd.grad(y.square().sum(), [x, memory, *block.parameters()])

    wanted = results(exact, torch.float64)
    errors = [
        [float((found.double() - value).detach().abs().max()) for found, value in zip(each, wanted, strict=True)]
        for each in (results(plain, torch.float32), results(fuse(copy.deepcopy(plain)), torch.float32))
    ]
    for value, plain_error, error in zip(wanted, *errors, strict=True):
        ulp = 2**-7 * float(value.detach().abs().max())
        assert error <= 1.5 * plain_error + ulp, f"{error} is off where the modules are {plain_error} off"


def check_stack(device: str, *, whole: bool) -> None:
    """Blocks hand on their sums, or the next norm of them: results and gradients are those of blocks that do not."""
    from regard.kernels.training import residual_triton

    seed = torch.tensor([5], device=device)
    for order, dropout in (("pre", SHARE), ("post", 0.0), *([("post", SHARE), ("pre", 0.0)] if whole else [])):
        blocks = [block_of(order, lambda: LayerNorm(16), dropout=dropout, activation="gelu-tanh") for _ in range(3)]
        stack = Stack(blocks=blocks, norm=LayerNorm(16) if order == "pre" else None).to(device)
        for parameter in stack.parameters():
            nn.init.normal_(parameter, std=0.3)
        fuse(stack)
        x, memory = torch.randn(2, 2, 3, 16, device=device, requires_grad=True).unbind()
        inputs = [x, memory, *stack.parameters()]
        with patch.object(fused_block, "draw_seed", lambda _, count: seed.repeat(count)):
            with patch.object(residual_triton, "add_norm_back", wraps=residual_triton.add_norm_back) as back:
                found = stack(x, memory=memory)
                upstream = torch.randn_like(found)
                gradients = torch.autograd.grad(found, inputs, upstream)
            wanted = x
            if not dropout:  # the plain modules
                unfuse(stack)
            for block in stack.blocks:
                wanted = block(wanted, memory=memory)
        wanted = wanted if stack.norm is None else stack.norm(wanted)
        assert [call.args[1] is None for call in back.call_args_list] == [True] + 8 * [False]  # no sums left to others
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradients, torch.autograd.grad(wanted, inputs, upstream), rtol=1e-4, atol=1e-4)
    fuse(unfuse(stack))
    assert all(block.why_not(x) is None for block in stack.blocks)
    assert all(block.why_not(x) is not None for block in stack.eval().blocks)


def check_hooked_stack(device: str) -> None:
    """A hook on a block sees its plain input and output, and changes nothing."""
    blocks = [block_of("pre", lambda: LayerNorm(16), dropout=0.0) for _ in range(2)]
    stack = fuse(Stack(blocks=blocks, norm=LayerNorm(16)).to(device))
    x, seen = torch.randn(2, 3, 16, device=device), []
    wanted = stack(x, memory=x)
    stack.blocks[1].register_forward_hook(lambda _, args, y: seen.extend([*args, y]))
    torch.testing.assert_close(stack(x, memory=x), wanted)
    assert [value.shape for value in seen] == [x.shape] * 2


def check_feed_forward(device: str) -> None:
    """The fused module runs the kernel in training only, and computes its activation with dropout."""
    from regard.kernels.training import feed_forward_triton
    from regard.kernels.training.feed_forward_triton import activated

    x, seed = torch.randn(5, 16, device=device), torch.tensor([7], device=device)
    for activation, dropout in (("relu", SHARE), ("gelu-tanh", SHARE), ("gelu-tanh", 0.0), ("gelu", 0.0)):
        layer = FeedForward(dim=16, hidden=24, activation=activation, dropout=dropout).to(device)  # type: ignore[arg-type]
        plain = layer.eval()(x)
        fuse(layer)
        with (
            patch.object(fused_feed_forward, "draw_seed", lambda _: seed),
            patch.object(feed_forward_triton, "activated", wraps=activated) as kernel,
        ):
            torch.testing.assert_close(layer(x), plain)
            assert not kernel.called
            found = layer.train()(x)
            assert kernel.called is (activation != "gelu")
        mask = activated(torch.ones(5, 24, device=device), None, seed, dropout, True)[0]
        inner = torch.relu(layer.up(x)) if activation == "relu" else None
        if inner is None:
            inner = nn.functional.gelu(layer.up(x), approximate="tanh" if activation == "gelu-tanh" else "none")
        torch.testing.assert_close(found, layer.down(inner * mask), rtol=1e-5, atol=1e-5)


def dropped_block(device: str) -> Block:
    """A fused block in half precision with dropout in all its parts."""
    block = block_of("post", lambda: LayerNorm(16)).to(device).half()
    block.feed_forward.dropout = block.self_attention.dropout = block.cross_attention.dropout = SHARE
    return fuse(block)


def check_seeds(device: str) -> None:
    """A block draws all its seeds at once, one for each mask, and its sublayers draw none."""
    from regard.kernels.training import feed_forward_triton, residual_triton, short_attention_triton

    block, seeds = dropped_block(device), torch.arange(6, device=device)
    x = torch.randn(2, 3, 16, device=device, dtype=torch.float16)
    used = []

    def noting(real: Any, at: int) -> Any:
        return lambda *arguments: used.append(int(arguments[at])) or real(*arguments)

    with ExitStack() as patches:
        patches.enter_context(patch.object(fused_block, "draw_seed", lambda _, count: seeds[:count]))
        for module in (fused_feed_forward, fused_attention):
            patches.enter_context(patch.object(module, "draw_seed", None))
        for module, name, at in (
            (short_attention_triton, "attend_short", 5),
            (residual_triton, "add_norm", 6),
            (feed_forward_triton, "activated", 2),
        ):
            patches.enter_context(patch.object(module, name, noting(getattr(module, name), at)))
        block(x, memory=x)
    assert used == [0, 1, 2, 3, 4, 5]


def check_compiled(device: str, *, whole: bool) -> None:
    """Fused blocks and stacks are one graph, forward and backward, that draws what it draws eagerly."""
    x = torch.randn(2, 3, 16, device=device, dtype=torch.float16, requires_grad=True)
    keep = torch.tensor([[True, True, True], [True, False, False]], device=device)[:, None, None]
    block, stack = dropped_block(device), fuse(Stack(blocks=[dropped_block(device) for _ in range(2)]))
    without_source = [block] if whole else stack.blocks
    for each in without_source:
        each.cross_attention = each.cross_norm = None
    cases = [(block, {}), (stack, {"memory": x.detach(), "memory_mask": keep})] if whole else [(stack, {})]
    backend = "aot_eager" if whole else "eager"  # opcheck traces the operators with AOTAutograd in every run
    for module, others in cases:
        results = []
        for run in (module, torch.compile(module, fullgraph=True, backend=backend)):
            torch.manual_seed(3)
            y = run(x, causal=True, **others)
            results.append((y, *torch.autograd.grad(y.square().sum(), [x, *module.parameters()])))
        torch.testing.assert_close(*results)


def check_recorded(device: str) -> None:
    """A recording of a fused model holds the weights, and the model runs as it does without a recording."""
    block = fuse(block_of("post", lambda: LayerNorm(16), dropout=0.0).to(device))
    x = torch.randn(2, 3, 16, device=device)
    wanted = block(x, memory=x)
    with record(block) as recording:
        torch.testing.assert_close(block(x, memory=x), wanted, rtol=1e-5, atol=1e-5)
    assert recording["self"].shape == recording["cross"].shape == (2, 2, 3, 3)


def check_all(device: str, *, whole: bool = True) -> None:
    from regard.kernels.training.feed_forward_triton import activated
    from regard.kernels.training.residual_triton import add_dropped, add_norm

    float32, bfloat16 = torch.float32, torch.bfloat16
    check_norm(device, norm=LayerNorm, rows=23, width=20, dtype=float32, both=False)
    check_norm(device, norm=LayerNorm, rows=3, width=600, dtype=float32, both=True, shifted=True)
    check_norm(device, norm=RMSNorm, rows=9, width=64, dtype=bfloat16, both=True)
    check_norm(device, norm=RMSNorm, rows=9, width=64, dtype=float32, both=True, post=True, shifted=True)
    check_norm(device, norm=LayerNorm, rows=9, width=64, dtype=bfloat16, both=False, post=True)
    if whole:
        check_norm(device, norm=LayerNorm, rows=3, width=600, dtype=float32, both=True)
        check_norm(device, norm=RMSNorm, rows=9, width=64, dtype=float32, both=True)
        check_norm(device, norm=LayerNorm, rows=9, width=64, dtype=bfloat16, both=True)
        check_norm(device, norm=LayerNorm, rows=23, width=20, dtype=float32, both=True, post=True)
        check_norm(device, norm=RMSNorm, rows=9, width=64, dtype=bfloat16, both=True, post=True, shifted=True)
        check_norm(device, norm=LayerNorm, rows=23, width=20, dtype=float32, both=True, shifted=True)
        check_norm(device, norm=LayerNorm, rows=3, width=600, dtype=float32, both=False, post=True, shifted=True)
        check_norm(device, norm=RMSNorm, rows=9, width=64, dtype=bfloat16, both=True, dropout=0.0)
    check_mask(device)
    check_sums(device)
    check_sum_alone(device)
    check_mixed(device)
    check_norm(device, norm=LayerNorm, rows=23, width=20, dtype=float32, both=True, shifted=True, dropout=0.0)
    check_norm(device, norm=LayerNorm, rows=9, width=64, dtype=float32, both=False, post=True, dropout=0.0)
    for relu in (True, False):
        for bias, dtype in ((True, float32), (False, float32), (True, bfloat16))[: 3 if whole or relu else 1]:
            check_hidden(device, relu=relu, bias=bias, dtype=dtype)
        check_hidden(device, relu=relu, bias=True, dtype=float32, dropout=0.0)
    check_feed_forward(device)
    check_blocks(device)
    check_stack(device, whole=whole)
    check_hooked_stack(device)
    check_recorded(device)
    check_seeds(device)
    check_compiled(device, whole=whole)
    x, h = torch.randn(2, 3, 16, device=device, requires_grad=True).unbind()
    w, seed = torch.randn(16, device=device, requires_grad=True), torch.tensor([3], device=device)
    torch.library.opcheck(add_norm, (x.detach(), x, h, w, w, w, seed, SHARE, 1e-5, True, False))
    torch.library.opcheck(activated, (h, w, seed, SHARE, True))
    if whole:
        torch.library.opcheck(add_dropped, (x, h, seed, SHARE))
        torch.library.opcheck(add_norm, (x.detach(), x, h, w, w, w, None, 0.0, 1e-5, True, False))
        torch.library.opcheck(activated, (h, w, seed, SHARE, False))
        for relu in (True, False):
            torch.library.opcheck(activated, (h, w, None, 0.0, relu))


@pytest.mark.parametrize("extent", ["part", pytest.param("whole", marks=pytest.mark.slow)])
def test_the_kernels_are_the_modules(extent: str, interpret: Callable[..., None]) -> None:
    interpret(__file__, "the kernels are the modules", extent)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_the_kernels_are_the_modules_cuda() -> None:
    check_all("cuda")
    for width, dropout in ((512, SHARE), (768, 0.0), (1024, SHARE), (4096, SHARE)):
        told = {"width": width, "dropout": dropout, "shifted": width < 1000}
        check_norm("cuda", norm=LayerNorm, rows=5000, dtype=torch.bfloat16, both=True, **told)


@pytest.mark.slow
@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
def test_the_kernels_compile_for_a_gpu(compiled_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes much that the compiler does not."""
    from regard.kernels.training import (
        feed_forward_triton as hidden_triton,
        residual_triton,
        row_sums_triton as sums_triton,
        short_attention_triton as short_triton,
    )

    names = {
        "norm_kernel",
        "norm_back_kernel",
        "add_kernel",
        "_hidden",
        "_hidden_back",
        "_attend",
        "_attend_back",
        "_add_up",
    }
    made = []
    for module in (residual_triton, hidden_triton, short_triton, sums_triton):
        for name in names & {*vars(module)}:
            made.append(compiled_kernel(getattr(module, name)))
            monkeypatch.setattr(module, name, made[-1])
    seed = torch.tensor([3])
    for width in (20, 512, 4096):
        x, w = torch.zeros(3, width, dtype=torch.bfloat16), torch.zeros(width)
        residual_triton.add_norm(x, x, x, w, w, w, seed, SHARE, 1e-5, True, True)
        for post in (True, False):
            residual_triton.add_norm_back(x, x, x, w, seed, SHARE, 1e-5, True, post, True)
        residual_triton.add_dropped(x, x, seed, SHARE)
        residual_triton.add_norm(x, x, x, w, w, w, None, 0.0, 1e-5, True, True)
        residual_triton.add_norm_back(x, x, x, w, None, 0.0, 1e-5, True, False, True)
        for told in ((seed, SHARE, True), (seed, SHARE, False), (None, 0.0, False)):
            _, lives = hidden_triton.activated(x, w, *told)
            hidden_triton.activated_back(x, lives if told[-1] else x, *told)
    for length in (5, 64, 128):
        q, keep = torch.zeros(2, 2, length, 64, dtype=torch.bfloat16), torch.ones(2, length, dtype=torch.bool)
        for mask, causal in ((keep, False), (None, True)):
            short_triton.attend_short(q, q, q, None, mask, seed, causal, 0.1, SHARE)
            short_triton.attend_short_back(q, q, q, q, mask, seed, causal, 0.1, SHARE, causal, causal)
    assert len(made) == 8 and all(one.count >= 3 for one in made)


if __name__ == "__main__":
    from regard.kernels.training import feed_forward_triton as hidden_triton, residual_triton

    residual_triton.NUMBERS_PER_WARP, residual_triton.WARPS_PER_PROCESSOR = 64, 2  # more rows than programs
    hidden_triton.FORWARD, hidden_triton.BACKWARD, hidden_triton.COLUMNS, hidden_triton.PROGRAMS = 4, 4, 16, 4
    check_all("cpu", whole="part" not in sys.argv)
    print("the kernels are the modules")
