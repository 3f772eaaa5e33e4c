"""Shaw's and T5's relative positions and ALiBi, against the equations written out pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch.testing import assert_close

from regard.positions import Alibi, ShawRelative, T5Buckets, slopes

B, H, D = 2, 3, 4


def places(m: int, n: int, offset: int, batched: bool) -> tuple[torch.Tensor, torch.Tensor]:
    i = torch.arange(m) + offset
    return (torch.stack((i, i + 4)) if batched else i), torch.arange(n)


@given(m=st.integers(1, 5), n=st.integers(1, 9), offset=st.integers(0, 6), k=st.integers(1, 4), batched=st.booleans())
def test_shaw_is_equations_3_and_4(m: int, n: int, offset: int, k: int, batched: bool) -> None:
    shaw = ShawRelative(head_dim=D, max_distance=k, value_dim=D + 1)
    q, weights = torch.randn(B, H, m, D), torch.randn(B, H, m, n).softmax(-1)
    i, j = places(m, n, offset, batched)
    clipped = (j - i.expand(B, m)[..., None]).clamp(-k, k) + k  # (B, m, n)
    a_key, a_value = shaw.key_table[clipped], shaw.value_table[clipped]  # (B, m, n, D)
    assert_close(shaw.bias(q, i, j), torch.einsum("bhmd,bmnd->bhmn", q, a_key) / math.sqrt(D))
    assert_close(shaw.mix(weights, i, j), torch.einsum("bhmn,bmnd->bhmd", weights, a_value))


def test_shaw_clips_and_knows_the_direction() -> None:
    shaw = ShawRelative(head_dim=1, max_distance=2)
    shaw.key_table.data = torch.tensor([[-2.0], [-1], [0], [1], [2]])
    bias = shaw.bias(torch.ones(1, 1, 4, 1), torch.arange(4), torch.arange(4))[0, 0]
    assert bias.tolist() == [[0, 1, 2, 2], [-1, 0, 1, 2], [-2, -1, 0, 1], [-2, -2, -1, 0]]


def test_shaw_without_values_needs_no_weights() -> None:
    shaw = ShawRelative(head_dim=D, values=False)
    assert not shaw.needs_weights and ShawRelative(head_dim=D).needs_weights
    assert shaw.mix(torch.ones(1, 1, 2, 2), torch.arange(2), torch.arange(2)) is None
    assert [name for name, _ in shaw.named_parameters()] == ["key_table"]


class _Shaw(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shaw = ShawRelative(head_dim=D).to(torch.bfloat16)

    def forward(self, q: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        i, j = torch.arange(q.shape[2]), torch.arange(weights.shape[3])
        return self.shaw.bias(q, i, j), self.shaw.mix(weights, i, j)


def test_shaw_sums_over_keys_in_float32() -> None:
    # Read from the graph, since the CPU would hide it: it widens bfloat16 sums by itself, GPUs do not.
    q, weights = torch.zeros(1, 1, 3, D, dtype=torch.bfloat16), torch.zeros(1, 1, 3, 5, dtype=torch.bfloat16)
    nodes = torch.export.export(_Shaw(), (q, weights)).graph.nodes
    dtypes = {kind: node.meta["val"].dtype for node in nodes for kind in ("gather", "scatter_add") if kind in node.name}
    assert dtypes == {"gather": torch.float32, "scatter_add": torch.float32}


def test_shaw_refuses_weights_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"weights of shape \(1, 1, 2, 5\) do not fit the 3 positions of j"):
        ShawRelative(head_dim=D).mix(torch.ones(1, 1, 2, 5), torch.arange(2), torch.arange(3))


def test_t5_buckets_by_hand() -> None:
    # 8 buckets one way: 0 to 3 for themselves, then up to 4 * 4^(b/4), so 4-5, 6-7 (5.66), 8-11, 12… (11.3)
    one_way = T5Buckets(heads=1, buckets=8, max_distance=16, bidirectional=False)
    assert one_way.bucket(-torch.arange(14)).tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7]
    assert one_way.bucket(torch.tensor([1, 50, -16, -(10**6)])).tolist() == [0, 0, 7, 7]
    both = T5Buckets(heads=1, buckets=16, max_distance=16)
    assert both.bucket(torch.tensor([-5, 5, -100, 100])).tolist() == [4, 12, 7, 15]


@pytest.mark.parametrize("batched", [False, True])
def test_t5_bias_picks_by_bucket_and_head(batched: bool) -> None:
    scheme = T5Buckets(heads=H)
    i, j = places(5, 7, 2, batched)
    bias = scheme.bias(torch.randn(B, H, 5, D), i, j).expand(B, H, 5, 7)
    for b, h, row, column in [(0, 0, 0, 0), (1, 2, 4, 6), (0, 1, 3, 2)]:
        apart = j[column] - i.expand(B, 5)[b, row]
        assert bias[b, h, row, column] == scheme.table[scheme.bucket(apart), h]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"buckets": 31}, "buckets must be even, half of them for each direction, not 31"),
        ({"buckets": 2}, "buckets must be at least 4, not 2"),
        ({"buckets": 1, "bidirectional": False}, "buckets must be at least 2, not 1"),
        ({"max_distance": 8}, "max_distance must be at least 9, not 8"),
        ({"heads": 0}, "heads must be at least 1, not 0"),
    ],
)
def test_t5_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        T5Buckets(**({"heads": 2} | arguments))


def test_alibi_slopes_of_the_paper() -> None:
    assert slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    assert_close(slopes(16), torch.tensor([2 ** (-h / 2) for h in range(1, 17)]))
    # Not a power of two: eight slopes of 8 heads, then every second one of 16 heads.
    assert_close(slopes(12)[:8], slopes(8))
    assert_close(slopes(12)[8:], slopes(16)[:8:2])
    assert slopes(1).tolist() == [2.0**-8]


@pytest.mark.parametrize("batched", [False, True])
def test_alibi_is_minus_slope_times_distance(batched: bool) -> None:
    i, j = places(3, 6, 1, batched)
    bias = Alibi(heads=2).bias(torch.randn(B, 2, 3, D), i, j).expand(B, 2, 3, 6)
    for b in range(B):
        for h, slope in enumerate([2**-4, 2**-8]):
            expected = [[-slope * abs(int(t) - s) for s in range(6)] for t in i.expand(B, 3)[b]]
            assert bias[b, h].tolist() == expected
