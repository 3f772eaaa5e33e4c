"""Weights in forms that a CPU multiplies by faster: whole numbers of eight bits, or packed once for its kernels.

One token at a time, a decoder does little but read its weights. In int8 they are a quarter of the bytes. A row of the
weights has one scale and so has a row of the activations: y = s_x s_w (q_x q_w), with q whole numbers up to 127. The
rows of a batch know nothing of each other, so what a sentence gets does not depend on its neighbours.

    r rows   i features in   o features out
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.projections import StackedProjection
from regard.decoding.cpu.c_matrix import LaidOut, compiled
from regard.errors import UsageError, unknown_name
from regard.layers.embedding import Embedding

Form = Literal["packed", "int8"]
FORMS = ("packed", "int8")
MOST = 127  # of the whole numbers: -128 has no opposite
EMPTY = (Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full)  # take nothing but dtype and device
MATRICES = (nn.Linear, StackedProjection, Embedding)  # what multiplies by a `weight` of its own


def pack_weights(model: nn.Module, form: Form) -> nn.Module:
    """Give the model's matrices that form, in place, for decoding on a CPU; they cannot be trained any more.

    "int8" rounds them; "packed" only lays them out anew, and the numbers stay.
    """
    if form not in FORMS:
        raise UsageError(unknown_name("form", form, FORMS))
    done: dict[int, Tensor] = {}  # a weight that two modules share stays one
    for module in model.modules():
        if not isinstance(module, MATRICES):
            continue
        weight = module.weight
        if weight.device.type != "cpu":
            raise UsageError(f"{form} weights are for a CPU, and the model is on {weight.device}")
        if id(weight) not in done:
            done[id(weight)] = make_weight(weight.detach(), form)
        module._parameters["weight"] = done[id(weight)]  # type: ignore[assignment]  # a Parameter would be a copy
    from regard.decoding.cpu.c_decoder import native_decoder  # it builds on what is here

    model.native = native_decoder(model)  # type: ignore[assignment]  # no module
    return model


def make_weight(weight: Tensor, form: Form) -> Weight:
    """The matrix (o, i) in that form."""
    return Int8Weight.of(weight) if form == "int8" else PackedWeight.of(weight)


class Weight(Tensor):
    """A matrix (o, i) in a form of its own that models use as a plain one: `linear` and look-ups know better."""

    parts: dict[tuple[int | None, int | None, int | None], Weight]
    laid: LaidOut | None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear:
            return args[1].product(args[0], *args[2:], **kwargs) if isinstance(args[1], Weight) else NotImplemented
        if func is F.embedding:
            return args[1].look_up(args[0])
        if func is Tensor.__getitem__ and isinstance(args[1], slice):
            weight, rows = args
            if (key := (rows.start, rows.stop, rows.step)) not in weight.parts:
                weight.parts[key] = weight.part(rows)  # the next step asks for the same
            return weight.parts[key]
        with torch._C.DisableTorchFunctionSubclass():  # shape, dtype, device
            if func in EMPTY:
                return func(torch.empty(0, dtype=args[0].dtype), *args[1:], **kwargs)
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Whatever else is asked of it is done with the plain matrix."""
        plain = [arg.plain() if isinstance(arg, Weight) else arg for arg in args]
        return func(*plain, **(kwargs or {}))

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """(…, i) -> (…, o); in C where it can be."""
        plain = type(x) is Tensor and x.dtype is torch.float32 and not x.requires_grad
        code = compiled() if plain else None
        return self.torch_product(x, bias) if code is None else self.laid_out(code).product(x, bias)

    def laid_out(self, code: Any) -> LaidOut:
        """The matrix as C reads it, made when it is first wanted: of some only parts are."""
        if self.laid is None:
            self.laid = self.lay_out(code)
        return self.laid

    def lay_out(self, code: Any) -> LaidOut:
        raise NotImplementedError

    def torch_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def plain(self) -> Tensor:
        """The matrix as floating-point numbers."""
        raise NotImplementedError

    def part(self, rows: slice) -> Weight:
        """Some of the rows, not copied where that can be."""
        raise NotImplementedError

    def look_up(self, tokens: Tensor) -> Tensor:
        """(…) -> (…, i): the rows of an embedding."""
        raise NotImplementedError


class Int8Weight(Weight):
    """Whole numbers (o, i) with a scale for each row (o,)."""

    numbers: Tensor
    scales: Tensor
    steps: Tensor  # scales / 127: the other 127 is that of the activations

    @classmethod
    def of(cls, weight: Tensor) -> Int8Weight:
        """Rounded: the largest number of each row becomes 127 or -127."""
        tops, numbers = rounded(weight)
        return cls.made(numbers, tops[:, 0] / MOST)

    @classmethod
    def made(cls, numbers: Tensor, scales: Tensor) -> Int8Weight:
        self = Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scales.dtype, device=numbers.device)
        self.parts, self.laid, self.numbers, self.scales, self.steps = {}, None, numbers, scales, scales / MOST
        return self

    def lay_out(self, code: Any) -> LaidOut:
        return LaidOut(code, self.numbers, self.scales)

    def torch_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        tops, numbers = rounded(x.reshape(-1, x.shape[-1]))
        y = x.new_empty(len(numbers), len(self.numbers))  # contiguous, in whatever order the product comes
        torch.mul(int_product(numbers, self.numbers), tops, out=y)
        y = y.mul_(self.steps) if bias is None else torch.addcmul(bias, y, self.steps)
        return y.view(*x.shape[:-1], y.shape[-1])

    def plain(self) -> Tensor:
        return self.numbers * self.scales[:, None]

    def part(self, rows: slice) -> Int8Weight:
        return Int8Weight.made(self.numbers[rows], self.scales[rows])

    def look_up(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.numbers) * F.embedding(tokens, self.scales[:, None])


class PackedWeight(Weight):
    """The same numbers, laid out as they are read; the plain ones are kept for look-ups and parts."""

    numbers: Tensor
    packed: Tensor | None  # as oneDNN's kernels read them, where there is no C

    @classmethod
    def of(cls, weight: Tensor) -> PackedWeight:
        self = Tensor._make_wrapper_subclass(cls, weight.shape, dtype=weight.dtype, device=weight.device)
        self.parts, self.laid, self.numbers, self.packed = {}, None, weight, None
        return self

    def lay_out(self, code: Any) -> LaidOut:
        return LaidOut(code, self.numbers)

    def torch_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        if self.packed is None:
            self.packed = pack(self.numbers)
        return packed_product(x, self.packed, bias)

    def plain(self) -> Tensor:
        return self.numbers

    def part(self, rows: slice) -> PackedWeight:
        return PackedWeight.of(self.numbers[rows])

    def look_up(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.numbers)


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """(r, i) -> the largest magnitude of each row (r, 1), and x as whole numbers (r, i), that one being 127."""
    tops = x.abs().amax(1, keepdim=True).clamp_min_(torch.finfo(x.dtype).tiny)  # also for a row of zeros
    return tops, (x / tops).mul_(MOST).round_().to(torch.int8)


def int_product(x: Tensor, weight: Tensor) -> Tensor:
    """(r, i) times (o, i), int8, -> (r, o) in int32, exact; as floating-point numbers where the CPU has no fast way."""
    return int_kernel()(x, weight)


@cache
def int_kernel() -> Callable[[Tensor, Tensor], Tensor]:
    """How to multiply whole numbers: torch's kernel, which has no public name, if it is there and right."""

    def numbers(rows: int) -> Tensor:
        return torch.arange(rows * 96).reshape(rows, 96).remainder(255).sub(127).to(torch.int8)

    weight = numbers(32)
    try:
        if all(
            torch.equal(_int_product(numbers(rows), weight), (numbers(rows).long() @ weight.long().T).int())
            for rows in (1, 3, 20)  # each of its ways
        ):
            return _int_product
        why = "it is wrong"
    except (AttributeError, RuntimeError) as error:
        why = str(error).splitlines()[0]
    warnings.warn(f"torch's product of whole numbers cannot be used here ({why}): int8 is not faster", stacklevel=2)
    return lambda x, weight: x.float() @ weight.float().T


def _int_product(x: Tensor, weight: Tensor) -> Tensor:
    if x.shape[1] == 1:  # of which torch 2.13 makes something else
        return x.int() * weight.T.int()
    # oneDNN reads the larger matrix best where it comes first, but for few rows; the result is the same.
    if len(x) >= 16 or (len(x) > 1 and x.shape[1] > 1024):
        return torch._int_mm(weight, x.T).T
    return torch._int_mm(x, weight.T)


def pack(weight: Tensor) -> Tensor:
    """The matrix as `packed_product` reads it; as it is where there is no such product, or not for its dtype."""
    return torch.ops.mkldnn._reorder_linear_weight(weight) if can_pack(weight.dtype) else weight


def packed_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(…, i) times a packed matrix (o, i)."""
    if not can_pack(x.dtype):
        return F.linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN's product, which has no public name, is there for these numbers and right."""
    x, weight = (torch.linspace(-1, 1, n * 32).reshape(n, 32).to(dtype) for n in (3, 8))
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        found = torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
        if torch.allclose(found, F.linear(x, weight), rtol=1e-2, atol=1e-2):
            return True
        why = "it is wrong"
    except (AttributeError, RuntimeError) as error:
        why = str(error).splitlines()[0]
    warnings.warn(f"oneDNN's product cannot be used for {dtype} here ({why}): packed weights are plain", stacklevel=2)
    return False
