"""Masks: every rule against its definition in plain Python, the algebra, the pictures, the errors.

B batch   H heads   m queries   n keys   i: a query's position, its number + n - m   j: a key's position
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from regard import attend, masks
from regard.attention.masks.algebra import Mask, Pair, as_mask
from regard.attention.masks.rules import causal_matrix, split_causal


class Case(NamedTuple):
    """A mask and what it means: may sentence b, head h, query number `row` at position i see key j?"""

    mask: Mask
    may: Callable[[int, int, int, int, int], bool]


class Sizes(NamedTuple):
    B: int
    H: int
    m: int
    n: int


sizes = st.builds(Sizes, B=st.integers(1, 3), H=st.integers(1, 2), m=st.integers(1, 6), n=st.integers(1, 6))


@st.composite
def leaves(draw: st.DrawFn, s: Sizes) -> Case:
    """One mask that is no combination."""
    kind = draw(st.sampled_from(["causal", "window", "lengths", "keep", "document", "shared document", "tensor"]))
    number = draw(st.integers(0, 1000))
    random = torch.Generator().manual_seed(number)
    if kind == "causal":
        return Case(masks.causal(), lambda b, h, row, i, j: j <= i)
    if kind == "window":
        before, after = draw(st.integers(0, 3)), draw(st.none() | st.integers(0, 3))
        ahead = before if after is None else after
        return Case(masks.window(before, after), lambda b, h, row, i, j: i - before <= j <= i + ahead)
    if kind == "lengths":
        lengths = torch.randint(0, s.n + 1, (s.B,), generator=random)
        return Case(masks.padding(lengths), lambda b, h, row, i, j: j < int(lengths[b]))
    if kind == "keep":
        keep = torch.rand(s.B, s.n, generator=random) < 0.5
        return Case(masks.padding(keep), lambda b, h, row, i, j: bool(keep[b, j]))
    if kind in ("document", "shared document"):
        ids = torch.randint(0, 3, (s.B, s.n) if kind == "document" else (s.n,), generator=random)
        of = ids.expand(s.B, s.n)
        return Case(masks.document(ids), lambda b, h, row, i, j: i >= 0 and bool(of[b, i] == of[b, j]))
    shape = draw(st.sampled_from([(s.m, s.n), (s.B, 1, s.m, s.n), (s.H, 1, s.n), (s.B, s.H, s.m, 1), (s.n,), ()]))
    tensor = torch.rand(shape, generator=random) < 0.5
    whole = tensor.expand(s.B, s.H, s.m, s.n)
    return Case(as_mask(tensor), lambda b, h, row, i, j: bool(whole[b, h, row, j]))


@st.composite
def cases(draw: st.DrawFn, s: Sizes, depth: int = 2) -> Case:
    """A mask, or two of them combined, up to a tree of four."""
    if depth == 0 or draw(st.booleans()):
        return draw(leaves(s))
    left, right = draw(cases(s, depth - 1)), draw(cases(s, depth - 1))
    if draw(st.booleans()):
        return Case(left.mask & right.mask, lambda *at: left.may(*at) and right.may(*at))
    return Case(left.mask | right.mask, lambda *at: left.may(*at) or right.may(*at))


def by_hand(case: Case, s: Sizes) -> Tensor:
    every = [
        case.may(b, h, row, row + s.n - s.m, j)
        for b in range(s.B)
        for h in range(s.H)
        for row in range(s.m)
        for j in range(s.n)
    ]
    return torch.tensor(every).reshape(s.B, s.H, s.m, s.n)


@given(data=st.data(), s=sizes)
def test_matrix_is_the_rule_pair_by_pair(data: st.DataObject, s: Sizes) -> None:
    case = data.draw(cases(s))
    matrix = case.mask.matrix(s.m, s.n)
    assert matrix.dtype == torch.bool
    assert torch.equal(matrix.expand(s.B, s.H, s.m, s.n), by_hand(case, s))


@given(data=st.data(), s=sizes)
def test_rule_for_one_pair_is_the_matrix(data: st.DataObject, s: Sizes) -> None:
    """FlexAttention asks the rule pair by pair, with numbers for batch and head where the mask has none."""
    case = data.draw(cases(s))
    grid = torch.meshgrid(*(torch.arange(size) for size in s), indexing="ij")
    at = Pair(batch=grid[0], head=grid[1], row=grid[2], i=grid[2] + s.n - s.m, j=grid[3])
    assert torch.equal(case.mask.rule(at), by_hand(case, s))


def test_a_tensor_has_a_row_for_each_query_wherever_it_stands() -> None:
    tensor = torch.tensor([[True, False, False, True], [False, True, False, True]])
    row, j = torch.arange(2)[:, None], torch.arange(4)
    none = torch.zeros(1, dtype=torch.long)
    assert torch.equal(as_mask(tensor).rule(Pair(batch=none, head=none, row=row, i=row + 2, j=j)), tensor)


@given(data=st.data(), s=sizes)
def test_sizes_of_the_data_are_known(data: st.DataObject, s: Sizes) -> None:
    """What flex relies on: a mask that differs by sentence or head says so."""
    case = data.draw(cases(s))
    whole = by_hand(case, s)
    if case.mask.batch in (None, 1):
        assert torch.equal(whole, whole[:1].expand_as(whole))
    else:
        assert case.mask.batch == s.B
    if case.mask.heads is None:
        assert torch.equal(whole, whole[:, :1].expand_as(whole))
    else:
        assert case.mask.heads == s.H


@given(data=st.data(), s=sizes)
def test_positions_move_the_queries(data: st.DataObject, s: Sizes) -> None:
    """With positions given, row r of sentence b stands there, whatever n is; a static cache relies on it."""
    case = data.draw(cases(s))
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    positions = torch.randint(0, s.n, (s.B, s.m), generator=random)
    matrix = case.mask.matrix(s.m, s.n, positions=positions).expand(s.B, s.H, s.m, s.n)
    for b in range(s.B):
        for row in range(s.m):
            want = [[case.may(b, h, row, int(positions[b, row]), j) for j in range(s.n)] for h in range(s.H)]
            assert matrix[b, :, row].tolist() == want


@given(data=st.data(), s=sizes)
def test_a_mask_moves_to_a_device_as_a_whole(data: st.DataObject, s: Sizes) -> None:
    """The rule itself moves nothing: inside of a kernel that would be impossible."""
    mask = data.draw(cases(s)).mask
    grid = torch.meshgrid(*(torch.arange(size, device="meta") for size in s), indexing="ij")
    at = Pair(batch=grid[0], head=grid[1], row=grid[2], i=grid[2] + s.n - s.m, j=grid[3])
    assert mask.to("meta").rule(at).is_meta
    assert mask.matrix(s.m, s.n, device="meta").is_meta


@given(m=st.integers(0, 6), n=st.integers(0, 6))
def test_causal_is_aligned_to_the_lower_right(m: int, n: int) -> None:
    """The last query sees every key, the one before it all but one."""
    want = [[j < n - (m - 1 - row) for j in range(n)] for row in range(m)]
    assert causal_matrix(m, n).tolist() == want
    assert masks.causal().matrix(m, n).tolist() == want


@given(data=st.data(), s=sizes)
def test_split_causal_loses_nothing(data: st.DataObject, s: Sizes) -> None:
    case = data.draw(cases(s))
    found, rest = split_causal(case.mask & masks.causal())
    assert found
    triangle = torch.ones(s.m, s.n, dtype=torch.bool).tril(s.n - s.m)
    back = triangle if rest is None else triangle & rest.matrix(s.m, s.n)
    assert torch.equal(back.expand(s.B, s.H, s.m, s.n), by_hand(case, s) & triangle)
    # A causal mask inside of an "or" restricts only one side of it.
    either = masks.causal() | masks.window(0, 9)
    assert split_causal(either) == (False, either)


def test_tensors_stand_on_either_side() -> None:
    tensor = torch.tensor([[True, False, True]] * 3)
    triangle = torch.ones(3, 3, dtype=torch.bool).tril()
    for both in (masks.causal() & tensor, tensor & masks.causal()):
        assert torch.equal(both.matrix(3, 3), triangle & tensor)
    for either in (masks.causal() | tensor, tensor | masks.causal()):
        assert torch.equal(either.matrix(3, 3), triangle | tensor)


def test_masks_for_one_sentence_go_with_many() -> None:
    both = masks.document([0, 0, 1]) & masks.padding([1, 2, 3])
    assert both.matrix(3, 3).shape == (3, 1, 3, 3)
    assert both.batch == 3
    lengths = torch.zeros(0, dtype=torch.long)
    assert (masks.padding(lengths) & masks.document([0, 0])).matrix(2, 2).shape == (0, 1, 2, 2)


@pytest.mark.parametrize(
    ("mask", "sparse"),
    [
        (masks.causal(), False),
        (masks.window(1), True),
        (masks.document([0, 1]), True),
        (masks.causal() & masks.window(1), True),
        (masks.causal() | masks.window(1), False),
        (masks.document([0, 1]) | masks.window(1), True),
    ],
)
def test_sparse_masks_leave_blocks_empty(mask: Mask, sparse: bool) -> None:
    assert mask.sparse is sparse


PICTURES = [
    (masks.causal(), (3, 3), "■ · ·\n■ ■ ·\n■ ■ ■"),
    (masks.causal(), (2, 4), "■ ■ ■ ·\n■ ■ ■ ■"),
    (masks.causal(), (3, 2), "· ·\n■ ·\n■ ■"),
    (masks.window(1), (4, 4), "■ ■ · ·\n■ ■ ■ ·\n· ■ ■ ■\n· · ■ ■"),
    (masks.window(1, 0), (3, 3), "■ · ·\n■ ■ ·\n· ■ ■"),
    (masks.document([0, 0, 1]), (None, None), "■ ■ ·\n■ ■ ·\n· · ■"),
    (masks.padding([1, 2]), (None, None), "■ ·\n■ ·\n\n■ ■\n■ ■"),
    (masks.padding([1, 2]) & masks.causal(), (2, 2), "■ ·\n■ ·\n\n■ ·\n■ ■"),
    (masks.padding([[True, False]]), (None, None), "■ ·\n■ ·"),
    (as_mask(torch.tensor([[True, False, True], [False, True, True]])), (None, None), "■ · ■\n· ■ ■"),
    (as_mask(torch.eye(2).bool().reshape(2, 1, 2)), (None, None), "■ ·\n■ ·\n\n· ■\n· ■"),
]


@pytest.mark.parametrize(("mask", "size", "text"), PICTURES)
def test_pictures(mask: Mask, size: tuple[int | None, int | None], text: str) -> None:
    assert mask.picture(*size) == text
    if size == (None, None):
        assert str(mask) == text


def test_lengths_on_a_device_are_asked_there() -> None:
    """ "meta" stands for any device that is not the CPU."""
    assert masks.padding(torch.tensor([2, 1], device="meta")).matrix(2, 3).device.type == "meta"


def test_a_picture_without_size_is_eight_by_eight() -> None:
    lines = str(masks.causal()).splitlines()
    assert len(lines) == 8 and lines[0] == "■" + " ·" * 7 and lines[-1] == "■" + " ■" * 7


x = torch.zeros(2, 1, 3, 4)
BOOL = torch.ones(3, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: attend(x, x, x, mask=BOOL.int()), TypeError, r"mask must be bool.*got torch.int32"),
        (lambda: attend(x, x, x, mask=BOOL.float()), TypeError, r"got torch.float32; numbers.*go into bias="),
        (lambda: attend(x, x, x, mask=[[True]]), TypeError, r"mask must be a regard mask or a bool tensor, got list"),
        (lambda: attend(x[0], x[0], x[0], mask=[[True]]), TypeError, r"a regard mask or a bool tensor, got list"),
        (lambda: attend(x, x, x, mask=BOOL.expand(1, 2, 1, 3, 3)), ValueError, r"mask of shape \(1, 2, 1, 3, 3\)"),
        (lambda: attend(x, x, x, mask=BOOL[:2]), ValueError, r"mask of shape \(2, 3\) does not.*= \(2, 1, 3, 3\)"),
        (lambda: attend(x, x, x, mask=masks.causal() & BOOL[:, :2]), ValueError, r"mask of shape \(3, 2\) does not"),
        (lambda: attend(x, x, x, mask=masks.padding([1, 2, 3])), ValueError, r"mask of shape \(3, 1, 1, 3\) does not"),
        (lambda: attend(x, x, x, mask=masks.padding(BOOL[:2, :2])), ValueError, r"padding mask for 2 keys.*3 keys"),
        (lambda: attend(x, x, x, mask=masks.document([0, 1])), ValueError, r"document mask for 2 keys.*3 keys"),
        (lambda: masks.causal() & BOOL.int(), TypeError, r"mask must be bool.*got torch.int32"),
        (lambda: masks.causal() | 3, TypeError, r"mask must be a regard mask or a bool tensor, got int"),
        (lambda: masks.causal() & BOOL.expand(1, 1, 1, 3, 3), ValueError, r"broadcast to \(B, H, m, n\), got"),
        (lambda: masks.causal() and masks.window(1), TypeError, r"combine masks with & and \|"),
        (lambda: masks.causal() or masks.window(1), TypeError, r"combine masks with & and \|"),
        (lambda: not masks.causal(), TypeError, r"neither true nor false"),
        (lambda: masks.window(-1), ValueError, r"not negative, got before=-1, after=-1"),
        (lambda: masks.window(1, -2), ValueError, r"not negative, got before=1, after=-2"),
        (lambda: masks.padding([1, 2]) & masks.padding([1, 2, 3]), ValueError, r"different batch sizes.*\[2, 3\]"),
        (lambda: masks.padding([1, 2]) | BOOL.expand(3, 1, 3, 3), ValueError, r"different batch sizes.*\[2, 3\]"),
        (lambda: BOOL.expand(2, 3, 3) & (masks.causal() & BOOL.expand(3, 3, 3)), ValueError, r"different numbers of h"),
        (
            lambda: masks.padding([0.5]),
            ValueError,
            r"integer lengths \(B,\) or a bool.*got torch.float",
        ),
        (lambda: masks.padding(torch.ones(2, 2).long()), ValueError, r"integer lengths.*of shape \(2, 2\)"),
        (lambda: masks.padding([True, False]), ValueError, r"bool tensor \(B, n\), got shape \(2,\)"),
        (lambda: masks.document([0.5]), ValueError, r"integer ids \(n,\) or \(B, n\), got torch.float32"),
        (lambda: masks.document(torch.zeros(1, 1, 1).long()), ValueError, r"integer ids.*of shape \(1, 1, 1\)"),
        (lambda: masks.causal() ^ masks.window(1), TypeError, r"unsupported operand"),
    ],
)
def test_errors(wrong: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_with_keys(compiled: bool) -> None:
    """Where nothing may be attended to, whatever the kind of mask; kept by a padding mask, which many layers share."""
    keep = torch.tensor([[True, True, False], [False, False, False]])
    for mask in (masks.padding(keep), masks.padding([2, 0]), masks.padding(keep) & masks.causal()):

        def rows(x: torch.Tensor, mask: Mask = mask) -> torch.Tensor:
            return mask.rows_with_keys(mask.matrix(3, 3)) & x

        call = torch.compile(rows, fullgraph=True, backend="eager") if compiled else rows
        for _ in range(2):
            seen = call(torch.ones((), dtype=torch.bool)).expand(2, 1, 3, 1)
            assert seen[0].all() and not seen[1].any()
