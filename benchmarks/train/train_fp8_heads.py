"""The output layer in 8 bits, for train_fp8.py: are its gradients right, and which products pay?

n rows   p width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.timing import sample
from benchmarks.train.train_fp8_checks import relative, say
from benchmarks.train.train_gpu_contenders import Ours
from regard.kernels.fp8.casts import E4M3, E5M2, cast_both
from regard.kernels.fp8.enable import all_scales
from regard.kernels.fp8.output import UNIT, fp8_token_loss, softmax_cast, softmax_cast_by_torch
from regard.kernels.fp8.products import product
from regard.kernels.training.cross_entropy import token_loss
from regard.text.batches.batch import Batch
from regard.training.loop.cuda_graphs import CapturedSteps

HEADS = ("8-bit", "bf16")


def set_head(model: nn.Module, name: str) -> None:
    """Choose the products of the output layer of the steps to come."""
    if (scales := all_scales(model)) is not None:
        scales.output = scales.amax[-1] if name == "8-bit" else None


class WithHead:
    """A contender of the speed: the same model with another output layer, as a CUDA graph of its own."""

    def __init__(self, ours: Ours, head: str) -> None:
        self.ours, self.head, self.device, self.model = ours, head, ours.device, ours.model
        self.graphs = ours.train_step.graphs
        if self.graphs is not None:
            pool, self.graphs = self.graphs.pool, CapturedSteps(ours.train_step.on_device, say)
            self.graphs.pool = pool  # because only one step runs at a time

    def kernels(self) -> AbstractContextManager[None]:
        return self.ours.kernels()

    def batches(self) -> Iterator[Batch]:
        return self.ours.batches()

    def step(self, batch: Batch) -> None:
        set_head(self.model, self.head)
        self.ours.train_step.graphs = self.graphs
        self.ours.step(batch)

    def look(self) -> float:
        return self.ours.look()


def features(n: int, p: int, V: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Features, weight and labels such that tokens are as frequent as words are, and labels as likely as predicted."""
    draw = torch.Generator(device).manual_seed(0)
    weight = torch.randn(V, p, generator=draw, device=device) * 0.03
    frequency = -torch.log(torch.randperm(V, generator=draw, device=device) + 10.0)
    weight[:, 0] = 0.15 * (frequency - frequency.mean())
    x = 1.4 * torch.randn(n, p, generator=draw, device=device)
    x[:, 0] = 1 / 0.15
    x = x.bfloat16().float()
    labels = torch.cat([torch.multinomial((part @ weight.T).softmax(-1), 1, generator=draw) for part in x.split(2048)])
    return x, weight, labels[:, 0]


def check_output(n: int, p: int, V: int, device: str) -> dict:
    """Losses and gradients of the output layer against float32, and times; the softmax in 8 bits against torch's."""
    x, weight, labels = features(n, p, V, device)
    amax = torch.tensor([[x.abs().max().item(), 0.0], [weight.abs().max().item(), 0.0], [1.0, 0.0]], device=device)
    keep = torch.ones(n, dtype=torch.bool, device=device)

    def run(name: str) -> list[Tensor]:
        leaves = [part.clone().requires_grad_() for part in (x, weight)]
        if name in ("float32", "bf16"):
            with torch.autocast(device, torch.bfloat16, enabled=name == "bf16"):
                total, _ = token_loss(leaves[0], labels, weight=leaves[1], keep=keep)
        else:
            total, _ = fp8_token_loss(leaves[0], labels, weight=leaves[1], smoothing=0.0, keep=keep, amax=amax)
        return [total.detach() / n, *torch.autograd.grad(total, leaves)]

    exact, result = run("float32"), {}
    for name in HEADS:
        loss, dx, dw = run(name)
        seconds = median(sample(partial(run, name), 1, device) for _ in range(3))
        shift = relative(dx.mean(0), exact[1].mean(0))
        result[name] = {"loss": (loss - exact[0]).item(), "dx": relative(dx, exact[1]), "mean_dx": shift}
        result[name] |= {"dw": relative(dw, exact[2]), "seconds": seconds}
        errors = ", ".join(f"{key} {result[name][key]:.4f}" for key in ("dx", "mean_dx", "dw"))
        say(f"{name:14} loss {result[name]['loss']:+.5f}  errors of {errors}  {1e3 * seconds:.2f} ms")
    return result | check_softmax(x.bfloat16(), weight, labels, keep, amax)


def check_softmax(x: Tensor, weight: Tensor, labels: Tensor, keep: Tensor, amax: Tensor) -> dict:
    """Which share of the bytes differs from torch's, and how far off are the products of the same bytes?"""
    rows = slice(0, min(len(x), 2048) - 5)
    scores = x[rows] @ weight.bfloat16().T
    ours, torchs = (
        function(scores, labels[rows], keep[rows], 0.0) for function in (softmax_cast, softmax_cast_by_torch)
    )
    result: dict = {}
    for name, form in (("straight", E5M2), ("transposed", E5M2)):
        actual, expected = (getattr(softmax, name).view(form.dtype).float() for softmax in (ours, torchs))
        result[name] = {"other": (actual != expected).float().mean().item(), "error": relative(actual, expected)}
    w = cast_both(weight, amax[1], E4M3)
    inverse = torch.full((), 2.0**-UNIT, device=x.device)
    wanted = ours.straight.view(E5M2.dtype).double() * 2.0**-UNIT @ (w.straight.view(E4M3.dtype).double() * w.inverse)
    for exact in (True, False):
        inverses = (inverse, w.inverse)
        dx = product(ours.straight, w.transposed, (E5M2, E4M3), inverses, dtype=torch.bfloat16, exact=exact).double()
        key = "exact" if exact else "fast"
        result[f"sum_{key}"] = {"error": relative(dx, wanted), "mean": relative(dx.mean(0), wanted.mean(0))}
    say(f"softmax in 8 bits, share of other bytes and error: {result['straight']}, {result['transposed']}")
    say(f"sums over the vocabulary: exact {result['sum_exact']}, fast {result['sum_fast']}")
    return result
