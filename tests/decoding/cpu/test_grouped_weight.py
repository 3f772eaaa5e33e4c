"""Integers in groups: the product in C against float64, each row for itself, and outliers that spoil one group only."""

from __future__ import annotations

import ctypes
import itertools
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.nn import functional as F

import regard
from regard.decoding.cpu import c_matrix
from regard.decoding.cpu.grouped_weight import GroupedWeight
from regard.decoding.cpu.packed_weight import Int8Weight
from regard.kernels.native import compiler as c_code

from .test_c_matrix import ways

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")

BITS = (4, 8)


def random_matrix(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def rounded_rows(x: Tensor) -> Tensor:
    """Each 32 numbers of a row as integers up to 127 times a scale, in float64, one group at a time."""
    groups = [part.double() for part in x.split(32, 1)]
    scales = [part.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127 for part in groups]
    return torch.cat([(part / scale).round() * scale for part, scale in zip(groups, scales, strict=True)], 1)


def plain(weight: GroupedWeight) -> Tensor:
    """The matrix in float64, from its integers one row at a time."""
    rows = []
    for numbers, scales, minima in zip(*weight.groups, strict=True):
        whole = [number >> shift & 15 for number in numbers.tolist() for shift in (0, 4)]
        whole = whole if weight.bits == 4 else numbers.tolist()
        each = range(weight.columns)
        rows.append([float(scales[i // 32]) * whole[i] + float(minima[i // 32]) for i in each])
    return torch.tensor(rows, dtype=torch.float64)


@given(st.integers(1, 40), st.integers(1, 150), st.integers(1, 150), st.sampled_from(BITS), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_product_is_that_in_float64(r: int, o: int, i: int, bits: int, biased: bool) -> None:
    weight, x = GroupedWeight.of(random_matrix(o, i, 2), bits), random_matrix(r, i, 1)
    bias = random_matrix(1, o, 3)[0] if biased else None
    want = rounded_rows(x) @ plain(weight).T + (0 if bias is None else bias.double())
    got = F.linear(x, weight, bias)
    # float32 may round a number that lies between two whole ones the other way: a step of one product, no more
    near = 1e-5 * (1 + want.abs().max())
    assert (got.double() - want).abs().max() <= near + 2 * float(x.abs().max()) / 127 * plain(weight).abs().max()
    assert ((got.double() - want).abs() <= near).double().mean() > 0.9


@given(st.integers(0, 39), st.integers(1, 40), st.sampled_from([30, 64, 200]), st.sampled_from(BITS))
@settings(max_examples=30, deadline=None)
def test_a_row_is_the_same_bit_by_bit_beside_any_others(place: int, rows: int, i: int, bits: int) -> None:
    weight, bias = GroupedWeight.of(random_matrix(150, i, 5), bits), random_matrix(1, 150, 6)[0]
    x = random_matrix(rows, i, 7) * torch.logspace(-3, 6, rows)[:, None]
    place %= rows
    assert torch.equal(F.linear(x, weight, bias)[place], F.linear(x[place, None], weight, bias)[0])


@pytest.mark.parametrize("bits", BITS)
def test_every_number_of_rows_and_threads(bits: int, request: pytest.FixtureRequest, monkeypatch: Any) -> None:
    monkeypatch.setattr(c_matrix, "PRODUCTS_OF_A_THREAD", 1)
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    block = c_matrix.compiled().outputs_of_a_block()
    for o, i in ((1, 5), (block + 1, 32), (3 * block - 5, 100)):
        weight, x = GroupedWeight.of(random_matrix(o, i, 2), bits), random_matrix(40, i, 1)
        want = torch.cat([weight.product(row[None]) for row in x])
        for rows, threads in itertools.product(range(1, 41), (1, 2, 5)):
            torch.set_num_threads(threads)
            assert torch.equal(weight.product(x[:rows]), want[:rows])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("flags", ways(), ids=lambda flags: " ".join(flags[3:]))
def test_all_ways_to_count_give_the_same_numbers(bits: int, flags: tuple[str, ...], tmp_path: Path) -> None:
    place = tmp_path / "other.so"
    c_code.compile_to(place, c_matrix.SOURCE, "cc", flags)
    other = c_matrix.declare(ctypes.CDLL(str(place)))
    for rows, o, i in ((1, 70, 40), (5, 33, 17), (20, 130, 64)):
        weight, x = GroupedWeight.of(random_matrix(o, i, 7), bits), random_matrix(rows, i, 8)
        matrices = [weight.make_c_matrix(library) for library in (other, c_matrix.compiled())]
        torch.testing.assert_close(*(matrix.product(x) for matrix in matrices), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_gives_nan_and_leaves_the_others_alone(bits: int, number: float) -> None:
    weight, x = GroupedWeight.of(random_matrix(40, 50, 2), bits), random_matrix(7, 50, 1)
    for product in (weight.product, weight.torch_product):
        want, spoiled = product(x, None), x.clone()
        spoiled[3, 8] = number
        got = product(spoiled, None)
        assert got[3].isnan().all()
        assert torch.equal(got[[0, 1, 2, 4, 5, 6]], want[[0, 1, 2, 4, 5, 6]])


def test_an_outlier_spoils_only_its_group() -> None:
    """One feature that is a hundred times larger: rows of int8 lose the others, groups do not."""
    weight, x = random_matrix(64, 512, 2), random_matrix(30, 512, 1)
    x[:, 7] *= 100
    weight[:, 7] = 0.0
    want = x @ weight.T
    in_rows, in_groups = (
        float((matrix.product(x) - want).norm() / want.norm())
        for matrix in (Int8Weight.of(weight), GroupedWeight.of(weight, 8))
    )
    assert in_groups < 0.3 * in_rows and in_rows > 0.2


def test_numbers_that_are_on_a_grid_already_stay_as_they_are() -> None:
    """As in the files of llama.cpp, whose groups of 32 have scales and minima in float16 too."""
    integers = torch.randint(0, 16, (50, 96), generator=torch.Generator().manual_seed(1))
    integers[:, 0::32], integers[:, 1::32] = 0, 15
    scales, minima = (random_matrix(50, 3, seed).half().float().repeat_interleave(32, 1) for seed in (2, 3))
    weight = integers * scales.abs() + minima
    assert torch.equal(GroupedWeight.of(weight, 4).plain(), weight)


def test_the_scale_is_chosen_for_the_smallest_error() -> None:
    """With 4 bits, a narrower range that cuts off the largest numbers is better than one from end to end."""
    weight = random_matrix(200, 320, 4)
    groups = weight.view(200, 10, 32)
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    step = (high - low) / 15
    from_end_to_end = (((groups - low) / step).round() * step + low - groups).norm()
    assert (GroupedWeight.of(weight, 4).plain() - weight).norm() < 0.93 * from_end_to_end


def test_a_loaded_model_in_int4() -> None:
    writers: dict[str, Any] = {
        dtype: regard.load("shakespeare", device="cpu", dtype=dtype) for dtype in ("float32", "int8", "int4")
    }
    text = "ROMEO:\nWhat light through yonder window breaks? It is the east, and Juliet is the sun."
    losses = {dtype: writer.perplexity(text).loss for dtype, writer in writers.items()}
    assert abs(losses["int8"] - losses["float32"]) < 0.02 and abs(losses["int4"] - losses["float32"]) < 0.2
