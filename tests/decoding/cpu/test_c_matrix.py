"""The products in C: exact in whole numbers, near float64 otherwise, and each row for itself, in tiles of any size."""

from __future__ import annotations

import ctypes
import itertools
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from regard.decoding.cpu import c_matrix
from regard.decoding.cpu.c_matrix import FLOAT_PARTS, CMatrix
from regard.decoding.cpu.quantize import make_weight
from regard.kernels.native import compiler as c_code
from regard.machine import cpu_flags

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")

ROWS = (1, 3, 4, 5, 17, 32, 128)
FORMS = ("packed", "int8", "parts")  # float32, int8, and float32 whose weights are integers times scales
PLAIN = ("-O3", *c_code.FAST, "-shared", "-fPIC", "-lm")  # for any CPU of this kind


def whole(rows: int, columns: int, seed: int) -> Tensor:
    """Whole numbers up to 127, which is in every row: rounding to int8 leaves them as they are."""
    numbers = torch.randint(-127, 128, (rows, columns), generator=torch.Generator().manual_seed(seed))
    numbers[:, seed % columns] = 127
    return numbers


def random_matrix(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def laid_out(out: int, columns: int, form: str, code: Any = None) -> tuple[CMatrix, Tensor]:
    """A matrix of ours, and the same in float64."""
    code = code or c_matrix.compiled()
    if form == "packed":
        weight = random_matrix(out, columns, 2)
        return CMatrix(code, weight), weight.double()
    numbers, worth = whole(out, columns, 2), torch.rand(out, generator=torch.Generator().manual_seed(3)) + 0.1
    parts = 1 if form == "int8" else min(FLOAT_PARTS, code.max_parts())
    return CMatrix(code, numbers.to(torch.int8), worth, parts), numbers * worth[:, None].double()


SHAPES = st.tuples(st.sampled_from(ROWS), st.integers(1, 150), st.integers(1, 90))


@given(SHAPES, st.sampled_from(FORMS), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_product_is_that_in_float64(shape: tuple[int, int, int], form: str, biased: bool) -> None:
    rows, out, columns = shape
    matrix, weight = laid_out(out, columns, form)
    x = random_matrix(rows, columns, 1) if form == "packed" else whole(rows, columns, 1).float()
    bias = random_matrix(1, out, 4)[0] if biased else None
    want = x.double() @ weight.T + (0 if bias is None else bias.double())
    torch.testing.assert_close(matrix.product(x, bias).double(), want, rtol=1e-5, atol=1e-5 * columns)


@given(SHAPES, st.sampled_from(FORMS))
@settings(max_examples=40, deadline=None)
def test_a_row_is_the_same_bit_by_bit_beside_any_others(shape: tuple[int, int, int], form: str) -> None:
    rows, out, columns = shape
    matrix, _ = laid_out(out, columns, form)
    x = random_matrix(rows, columns, 5) * torch.logspace(-3, 3, rows)[:, None]
    bias = random_matrix(1, out, 4)[0]
    together = matrix.product(x, bias)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(matrix.product(x[row, None], bias)[0], together[row])


@pytest.mark.parametrize("form", ["int8", "parts"])
@pytest.mark.parametrize(("out", "columns"), [(1, 64), (40, 128), (200, 64), (97, 320)])
def test_many_rows_are_those_of_one_each(out: int, columns: int, form: str) -> None:
    """Many rows go to the matrix unit of CPUs that have one, if it suits the inputs; a single row never does."""
    matrix, _ = laid_out(out, columns, form)
    x = random_matrix(75, columns, 5) * torch.logspace(-3, 3, 75)[:, None]
    x[70, 3] = torch.nan
    bias = random_matrix(1, out, 4)[0]
    single = torch.cat([matrix.product(row[None], bias) for row in x])
    for rows in (5, 15, 16, 17, 31, 32, 33, 47, 48, 49, 75):
        torch.testing.assert_close(matrix.product(x[:rows], bias), single[:rows], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_float_products_by_integers_are_as_exact_as_float32(spread: float) -> None:
    """Their errors are about those of torch; where a few numbers of a row are far larger, below float32's rounding."""
    code, worth = c_matrix.compiled(), torch.rand(300, generator=torch.Generator().manual_seed(3)) + 0.1
    numbers = whole(300, 500, 2)
    numbers[4] = 0
    weight, x = numbers * worth[:, None], random_matrix(40, 500, 1) * (spread * random_matrix(40, 500, 4)).exp()
    matrix = CMatrix.of_floats(code, weight)
    if code.has_fast_parts():
        assert torch.equal(torch.from_numpy(matrix.numbers).long(), numbers)
    want = x.double() @ weight.double().T
    unit = x.double().norm(dim=1)[:, None] * weight.double().norm(dim=1).clamp(min=1)
    ours, theirs = (((y.double() - want) / unit).square().mean().sqrt() for y in (matrix.product(x), x @ weight.T))
    assert ours < (2**-24 if spread else 1.5 * theirs) and theirs < 2**-23


@pytest.mark.parametrize("change", ["other numbers", "not finite"])
def test_any_other_float_matrix_stays_as_it_is(change: str) -> None:
    weight = whole(30, 20, 2).float()
    weight[7, 3] += 0.01 if change == "other numbers" else torch.inf
    assert CMatrix.of_floats(c_matrix.compiled(), weight).numbers.dtype == "float32"


@pytest.mark.parametrize("number", [1.0, -1.0, 3e38, 1e-38, 0.0])
def test_the_largest_and_smallest_rows(number: float) -> None:
    """The sums of integers do not overflow, and the largest integer of a row has 24 bits."""
    matrix = CMatrix.of_floats(c_matrix.compiled(), torch.full((3, 5000), 127.0 / 1e6))
    product = matrix.product(torch.full((7, 5000), number))
    want = torch.full((7, 3), 127.0 / 1e6 * 5000 * number)
    torch.testing.assert_close(product, want, rtol=1e-5, atol=1e-30)


def test_any_shape_and_order_of_rows() -> None:
    matrix, weight = laid_out(30, 7, "packed")
    x = random_matrix(7, 12, 6).T.view(3, 4, 7)  # its numbers do not lie in this order
    torch.testing.assert_close(matrix.product(x), x @ weight.float().T, rtol=1e-4, atol=1e-5)
    assert matrix.product(x[:, :0]).shape == (3, 0, 30)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_gives_nan_and_leaves_the_others_alone(value: float) -> None:
    """In C and without it: integers have no NaN, and a conversion would give any number."""
    weight = random_matrix(40, 9, 2)
    x = random_matrix(7, 9, 1)
    int8 = make_weight(weight, "int8")
    for product in (int8.product, int8.torch_product):
        want = product(x, None)
        spoiled = x.clone()
        spoiled[3, 8] = value
        got = product(spoiled, None)
        assert got[3].isnan().all()
        assert torch.equal(got[[0, 1, 2, 4, 5, 6]], want[[0, 1, 2, 4, 5, 6]])


@pytest.mark.parametrize("form", FORMS)
def test_edge_sizes(form: str) -> None:
    """One row, one output, one input, and sizes around the tiles of 6 rows, blocks and groups of 4."""
    block = c_matrix.compiled().outputs_of_a_block()
    for rows, out, columns in itertools.product((1, 6, 7, 13), (1, block - 1, block + 1), (1, 3, 4, 5, 257)):
        matrix, weight = laid_out(out, columns, form)
        x = whole(rows, columns, 1).float()
        torch.testing.assert_close(matrix.product(x).double(), x.double() @ weight.T, rtol=1e-5, atol=1e-3 * columns)


@pytest.mark.parametrize("form", FORMS)
def test_every_number_of_rows(form: str) -> None:
    """Tiles of every height, whole and half blocks of outputs, and inputs that do not fill a group or a vector."""
    block = c_matrix.compiled().outputs_of_a_block()
    for out, columns in ((block // 2 + 1, 30), (2 * block, 64), (3 * block - 5, 17)):
        matrix, weight = laid_out(out, columns, form)
        x = whole(40, columns, 1).float()
        want = x.double() @ weight.T
        for rows in range(1, 41):
            torch.testing.assert_close(matrix.product(x[:rows]).double(), want[:rows], rtol=1e-5, atol=1e-3 * columns)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="COMPILER: the names are those of x86 CPUs")
@pytest.mark.parametrize("cpu", ["x86-64", "haswell", "skylake-avx512", "icelake-server", "sapphirerapids"])
def test_the_c_code_is_valid_for_every_kind_of_cpu(cpu: str) -> None:
    """Where it does not compile, decoding is slow without a word."""
    command = ["cc", f"-march={cpu}", "-fsyntax-only", "-Werror", "-Wno-psabi", "-Wno-unknown-pragmas"]
    process = subprocess.run([*command, str(c_matrix.SOURCE)], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def ways() -> list[Any]:
    """How this CPU can be told to count: with its newest instructions, with older ones, with none of them."""
    if platform.machine() != "x86_64":
        return [PLAIN]
    known = "avx2" in cpu_flags().split()
    older = (*PLAIN, "-mavx2", "-mfma")  # slow: compiling takes seconds
    return [PLAIN, *([pytest.param(older, marks=pytest.mark.slow)] if known else [])]


@pytest.mark.parametrize("flags", ways(), ids=lambda flags: " ".join(flags[len(PLAIN) :]) or "plain")
def test_all_ways_to_count_give_the_same_numbers(flags: tuple[str, ...], tmp_path: Path) -> None:
    place = tmp_path / "other.so"
    c_code.compile_to(place, c_matrix.SOURCE, "cc", flags)
    other = c_matrix.declare(ctypes.CDLL(str(place)))
    for rows, out, columns in ((1, 70, 40), (5, 33, 17), (20, 130, 64)):
        numbers, x = whole(out, columns, 7), whole(rows, columns, 8)
        for code, parts in itertools.product((other, c_matrix.compiled()), (1, FLOAT_PARTS)):
            matrix = CMatrix(code, numbers.to(torch.int8), torch.ones(out), min(parts, code.max_parts()))
            assert torch.equal(matrix.product(x.float()).round().long(), x @ numbers.T)
        got, want = (laid_out(out, columns, "packed", code)[0].product(x.float()) for code in (other, None))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["packed", "int8"])
def test_more_threads_than_cpus_or_tiles_change_nothing(form: str) -> None:
    before = torch.get_num_threads()
    matrix, _ = laid_out(100, 60, form)
    x = random_matrix(40, 60, 9)
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found += [matrix.product(x[:rows]) for rows in (1, 40)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(found, found[:2] * 3, strict=True))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="COMPILER: threads cannot be counted here")
def test_threads_are_as_many_as_torch_was_told_and_as_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a thread of its own; a small product is for one thread."""
    before = torch.get_num_threads()
    matrix, _ = laid_out(200, 60, "packed")
    counts: list[int] = []
    monkeypatch.setattr(matrix, "library", SimpleNamespace(multiply=lambda *call: counts.append(call[-1])))
    monkeypatch.setattr(c_matrix, "PRODUCTS_OF_A_THREAD", 2 * 200 * 60)
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            with ThreadPoolExecutor(1) as pool:
                for rows in (1, 5, 20):
                    pool.submit(matrix.product, random_matrix(rows, 60, 9)).result()
    finally:
        torch.set_num_threads(before)
    assert counts == [1, 1, 1, 1, 3, 4]


def test_threads_share_a_product(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(c_matrix, "PRODUCTS_OF_A_THREAD", 1)
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    for form, rows in itertools.product(FORMS, (1, 7, 40)):
        matrix, _ = laid_out(300, 64, form)
        x, products = random_matrix(rows, 64, 9), []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            products.append(matrix.product(x))
        assert torch.equal(products[0], products[1]) and torch.equal(products[0], products[2])
