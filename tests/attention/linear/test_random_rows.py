"""The rows W: each is N(0, I), orthogonal ones stand upright to each other, and all come from seed and number alone.

H heads (here: repeats)   M rows   d width
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest
import torch

from regard.attention.linear.random_rows import KINDS, draw_rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "dim"), [(6, 6), (4, 6), (15, 6)])
def test_each_row_is_normal(kind: str, rows: int, dim: int) -> None:
    """Mean 0, covariance I and mean length of chi_d, each within 5 standard errors.

    The mean is what fails when the signs of qr are left as they come: the first number of a block then is negative.
    """
    n = 8000
    W = draw_rows(rows, dim, heads=n, kind=kind, seed=3)  # (n, M, d)
    assert W.shape == (n, rows, dim)
    assert W.mean(0).abs().max() < 5 / n**0.5
    covariance = torch.einsum("nmi,nmj->mij", W, W) / n
    assert (covariance - torch.eye(dim, dtype=W.dtype)).abs().max() < 5 * (2 / n) ** 0.5
    # E[chi_6] = sqrt(2) Gamma(3.5) / Gamma(3) = 2.349964, variance 6 - 2.349964² = 0.477669
    assert (W.norm(dim=-1).mean(0) - 2.349964).abs().max() < 5 * (0.477669 / n) ** 0.5


def test_orthogonal_rows_are_orthogonal_in_blocks() -> None:
    W = draw_rows(10, 4, heads=3)
    products = W @ W.mT
    lengths = products.diagonal(dim1=-2, dim2=-1)
    block = torch.arange(10) // 4
    same = (block[:, None] == block) & ~torch.eye(10, dtype=torch.bool)
    assert products[:, same].abs().max() < 1e-12
    assert products[:, block[:, None] != block].abs().max() > 0.1
    assert lengths.std() > 0.5  # of different lengths: with rows of one length the features would be biased


def test_lengths_do_not_depend_on_directions() -> None:
    """Taken from the same numbers as Q, the length of a block's first row would go with its direction."""
    W = draw_rows(3, 3, heads=20000, seed=1)
    lengths, directions = W.norm(dim=-1), W / W.norm(dim=-1, keepdim=True)
    together = torch.einsum("nm,nmi->mi", lengths - lengths.mean(0), directions.square() - 1 / 3) / len(W)
    assert together.abs().max() < 5 * 0.2 / len(W) ** 0.5


def test_a_draw_is_a_function_of_seed_and_number() -> None:
    first = draw_rows(5, 4, heads=2, seed=7, number=3)
    torch.manual_seed(99)
    torch.randn(10)
    assert torch.equal(draw_rows(5, 4, heads=2, seed=7, number=3), first)
    for seed, number in ((7, 4), (8, 3), (3, 7), (-7, 3)):
        assert (draw_rows(5, 4, heads=2, seed=seed, number=number) - first).abs().max() > 0.1


@pytest.mark.slow
def test_another_process_draws_the_same() -> None:
    """Also with another number of threads: independent rows to the bit, orthogonal ones as exactly as qr is."""
    code = """if True:
        from regard.attention.linear.random_rows import KINDS, draw_rows
        print([draw_rows(9, 6, heads=2, kind=kind, seed=5, number=2).flatten().tolist() for kind in KINDS])
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    orthogonal, independent = (torch.tensor(x, dtype=torch.float64) for x in json.loads(done.stdout))
    mine = [draw_rows(9, 6, heads=2, kind=kind, seed=5, number=2).flatten() for kind in KINDS]
    assert torch.allclose(orthogonal, mine[0], rtol=1e-12, atol=1e-12) and torch.equal(independent, mine[1])


def test_a_draw_leaves_the_generators_alone() -> None:
    before = torch.random.get_rng_state()
    draw_rows(5, 4)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_where_the_numbers_come_from() -> None:
    """The seed of the generator, computed here by hand: a checkpoint's draws must be found again years later."""
    name = hashlib.sha256(b"random features, seed 7, draw 3").digest()
    generator = torch.Generator().manual_seed(int.from_bytes(name[:8], "big", signed=True))
    want = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    assert torch.equal(draw_rows(5, 4, heads=2, kind="independent", seed=7, number=3), want)


def test_unknown_kind() -> None:
    with pytest.raises(ValueError, match="unknown draw 'orthogonl'; did you mean 'orthogonal'"):
        draw_rows(4, 4, kind="orthogonl")
