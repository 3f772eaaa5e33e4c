"""Are the casts and products of 8-bit training right, and how fast? The first stages of train_fp8.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.timing import sample
from regard.kernels.fp8 import linear
from regard.kernels.fp8.casts import E4M3, E5M2, Cast, Format, cast_both, cast_by_torch
from regard.kernels.fp8.products import product

FORMATS = {E4M3: "e4m3", E5M2: "e5m2"}


def say(*words: object) -> None:
    print(*words, flush=True)


def numbers(rows: int, columns: int, device: str, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Numbers of many magnitudes, as activations have them."""
    draw = torch.Generator(device).manual_seed(rows * columns)
    x = torch.randn(rows, columns, device=device, generator=draw)
    return (x * torch.randn(1, columns, device=device, generator=draw).exp()).to(dtype)


def wrong_bytes(cast: Cast, reference: Cast) -> tuple[int, int]:
    """How many bytes are wrong in both orders; the sign of zero does not count."""

    def count(actual: Tensor, expected: Tensor) -> int:
        return ((actual != expected) & ~((actual | expected) == 0x80)).sum().item()

    return count(cast.straight, reference.straight), count(cast.transposed, reference.transposed)


def check_casts(tokens: int, p: int, d_ff: int, device: str) -> list[dict]:
    """The kernel in memory that was full of NaN, against torch, and its time."""
    rows: list[dict] = []
    weights, values = ((3 * p, p), (d_ff, p), (1000, 776)), ((tokens, p), (tokens, d_ff))
    cases = [(shape, torch.float32, (E4M3,)) for shape in weights] + [
        (shape, torch.bfloat16, (E4M3, E5M2)) for shape in (*values, (4099, 80))
    ]
    say(f"{'cast':>16}{'of':>10}{'to':>6}{'wrong':>9}{'wrong^T':>9}{'us':>9}{'GB/s':>7}")
    for shape, dtype, formats in cases:
        x = numbers(*shape, device, dtype)
        for form in formats:
            amax = torch.tensor([x.abs().max().item(), 0.0], device=device)
            spoiled = [torch.full((x.numel() + 4096,), 255, dtype=torch.uint8, device=device) for _ in range(3)]
            del spoiled
            wrong = wrong_bytes(cast_both(x, amax, form), cast_by_torch(x, amax.clone(), form))
            seconds = median(sample(partial(cast_both, x, amax, form), 5, device) for _ in range(3))
            rate = x.numel() * (x.element_size() + 2) / seconds / 1e9
            kind = str(dtype).removeprefix("torch.")
            line = f"{shape!s:>16}{kind:>10}{FORMATS[form]:>6}{wrong[0]:>9,}{wrong[1]:>9,}"
            say(f"{line}{1e6 * seconds:>9.1f}{rate:>7,.0f}")
            rows.append({"shape": shape, "of": kind, "to": FORMATS[form], "wrong": wrong, "seconds": seconds})
    return rows


def time_kernels(tokens: int, heads: int, p: int, d_ff: int, device: str) -> dict[str, float]:
    """The kernels that cast what they compute, beside the kernels that do not."""
    from regard.kernels.fp8.heads_triton import join_cast
    from regard.kernels.fp8.hidden_triton import hidden_cast, hidden_cast_back
    from regard.kernels.training.feed_forward_triton import activated, activated_back
    from regard.kernels.training.split_heads_triton import joined

    h, g = (numbers(tokens, d_ff, device) for _ in range(2))
    parts = [numbers(tokens, p, device).view(-1, 1024, heads, p // heads).transpose(1, 2) for _ in range(3)]
    amax = torch.tensor([8.0, 0.0], device=device)
    runs: dict[str, Callable[[], Any]] = {
        "activated": partial(activated, h, None, None, 0.0, False),
        "activated_back": partial(activated_back, g, h, None, 0.0, False),
        "joined": partial(joined, *parts),
        "hidden_cast": partial(hidden_cast, h, None, 0.0, False, amax),
        "hidden_cast_back": partial(hidden_cast_back, g, h, None, 0.0, False, amax),
        "join_cast": partial(join_cast, *parts, amax),
    }
    times = {}
    for name, run in runs.items():
        times[name] = median(sample(run, 5, device) for _ in range(3))
        say(f"{name:30}{1e6 * times[name]:>9.1f} us")
    return times


def time_products(name: str, R: int, N: int, K: int, device: str) -> dict:
    """The TFLOP/s of y, dx and dw in bf16 and fp8 without casts, and the errors of fp8."""
    x, w, g = numbers(R, K, device), numbers(N, K, device), numbers(R, N, device)
    amax = torch.tensor([[part.abs().max().item(), 0.0] for part in (x, w, g)], device=device)
    X, W, G = cast_both(x, amax[0], E4M3), cast_both(w, amax[1], E4M3), cast_both(g, amax[2], E5M2)
    half, exact, result = {"dtype": torch.bfloat16}, {"dtype": torch.float32, "exact": True}, {}
    runs: dict[str, tuple] = {
        "y": (lambda: x @ w.T, (X.straight, W.straight, (E4M3, E4M3), (X.inverse, W.inverse)), half),
        "dx": (lambda: g @ w, (G.straight, W.transposed, (E5M2, E4M3), (G.inverse, W.inverse)), half),
        "dw": (lambda: g.T @ x, (G.transposed, X.transposed, (E5M2, E4M3), (G.inverse, X.inverse)), exact),
    }
    for which, (plain, factors, options) in runs.items():
        eight = partial(product, *factors, **options)
        error = relative(eight().float(), plain().float())
        speeds = [2 * R * N * K / median(sample(run, 5, device) for _ in range(3)) / 1e12 for run in (plain, eight)]
        say(f"{name:6}{which:4} bf16 {speeds[0]:>7,.0f}  fp8 {speeds[1]:>7,.0f} TFLOP/s  error {error:.4f}")
        result[which] = {"bf16": speeds[0], "fp8": speeds[1], "error": error}
    return result


def relative(actual: Tensor, expected: Tensor) -> float:
    return ((actual - expected).norm() / expected.norm()).item()


class Inspection:
    """The casts of a step, compared with torch's: wrong bytes, and the shares of numbers that become 0 or the limit."""

    def __init__(self, model: nn.Module) -> None:
        self.rows: list[dict] = []
        self.names: dict[int, tuple[str, str]] = {}
        for name, module in model.named_modules():
            if (amax := getattr(module, "fp8_amax", None)) is not None:
                for part, which in enumerate("xwg"):
                    self.names[amax[part].data_ptr()] = name.removeprefix("decoder.blocks."), which

    def look(self, x: Tensor, amax: Tensor, form: Format, run: Callable[[], Cast]) -> Cast:
        """`run` casts x."""
        before = amax.clone()
        cast = run()
        reference = cast_by_torch(x, before, form)
        values = reference.straight.view(form.dtype).float()
        name, which = self.names[amax.data_ptr()]
        row = {"name": name, "which": which, "to": FORMATS[form], "wrong": wrong_bytes(cast, reference)}
        row |= {"scaled_by": before[0].item(), "largest": x.abs().max().item(), "typical": x.float().std().item()}
        row |= {"finite": x.isfinite().all().item(), "same_largest": torch.equal(before, amax)}
        row["lost"] = ((values == 0) & (x != 0)).float().mean().item()
        row["clipped"] = (values.abs() == form.limit).float().mean().item()
        row["error"] = relative(values * reference.inverse, x.float())
        self.rows.append(row)
        return cast

    @contextmanager
    def watching(self) -> Iterator[None]:
        from regard.kernels.fp8 import feed_forward_triton, projection_triton
        from regard.kernels.fp8.heads_triton import join_cast
        from regard.kernels.fp8.hidden_triton import hidden_cast, hidden_cast_back
        from regard.kernels.training.feed_forward_triton import activated, activated_back
        from regard.kernels.training.split_heads_triton import joined

        def plain(x: Tensor, amax: Tensor, form: Format) -> Cast:
            return self.look(x, amax, form, lambda: cast_both(x, amax, form))

        def forward(h: Tensor, seed: Tensor | None, dropout: float, relu: bool, amax: Tensor) -> Cast:
            a, _ = activated(h, None, seed, dropout, relu)
            return self.look(a, amax, E4M3, lambda: hidden_cast(h, seed, dropout, relu, amax))

        def backward(
            g: Tensor, h: Tensor, seed: Tensor | None, dropout: float, relu: bool, amax: Tensor
        ) -> tuple[Cast, Tensor]:
            dh, to_bias = activated_back(g, h, seed, dropout, relu)
            return self.look(dh, amax, E5M2, lambda: hidden_cast_back(g, h, seed, dropout, relu, amax)[0]), to_bias

        def heads(dq: Tensor, dk: Tensor, dv: Tensor, amax: Tensor) -> tuple[Cast, Tensor]:
            dx, to_bias = joined(dq, dk, dv)
            return self.look(dx.flatten(0, 1), amax, E5M2, lambda: join_cast(dq, dk, dv, amax)[0]), to_bias

        with (
            patch.object(linear, "cast_both", plain),
            patch.object(feed_forward_triton, "cast_both", plain),
            patch.object(feed_forward_triton, "hidden_cast", forward),
            patch.object(feed_forward_triton, "hidden_cast_back", backward),
            patch.object(projection_triton, "join_cast", heads),
        ):
            yield

    def table(self, shown: set[str]) -> None:
        """Print the casts of these blocks, and all that differ from torch's."""
        say(
            f"{'':38}{'':2}{'to':>5}{'wrong':>12}{'last':>10}{'largest':>10}{'std':>10}{'lost':>8}{'clipped':>8}{'error':>8}"
        )
        for row in self.rows:
            as_expected = not any(row["wrong"]) and row["finite"] and row["same_largest"]
            if as_expected and row["name"].partition(".")[0] not in shown:
                continue
            mark = ("" if row["finite"] else " not finite") + ("" if row["same_largest"] else " other largest")
            say(
                f"{row['name']:38}{row['which']:2}{row['to']:>5}{row['wrong']!s:>12}{row['scaled_by']:>10.2g}"
                f"{row['largest']:>10.2g}{row['typical']:>10.2g}{row['lost']:>8.2%}{row['clipped']:>8.3%}"
                f"{row['error']:>8.4f}{mark}"
            )
