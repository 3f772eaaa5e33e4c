"""Sampling: the filters by hand and against another library's, the draws against their distribution."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from regard.decoding.engine import generate_tokens
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample, invert, keep_min_p, keep_top_k, keep_top_p, scramble, uniform
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END, PAD, START


def logits(*probabilities: float) -> Tensor:
    return torch.tensor([probabilities], dtype=torch.float64).log()


def kept(filtered: Tensor) -> list[int]:
    return (filtered[0] > -torch.inf).nonzero()[:, 0].tolist()


# The filters.


def test_top_k_by_hand() -> None:
    x = logits(0.1, 0.4, 0.2, 0.3)
    assert [kept(keep_top_k(x, k)) for k in (1, 2, 3, 4, 9)] == [[1], [1, 3], [1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert torch.equal(keep_top_k(x, 2)[0, [1, 3]], x[0, [1, 3]])
    assert kept(keep_top_k(logits(0.2, 0.2, 0.4, 0.2), 2)) == [0, 2]  # of equals the lower token


def test_top_p_by_hand() -> None:
    """Sorted: 0.4, 0.3, 0.2, 0.1. The sum passes 0.39, 0.4, 0.41 and 0.89 after 1, 1, 2 and 3 of them."""
    x = logits(0.1, 0.4, 0.2, 0.3)
    assert [kept(keep_top_p(x, p)) for p in (0.01, 0.39, 0.41, 0.69, 0.89, 0.91, 1.0)] == [
        [1],
        [1],
        [1, 3],
        [1, 3],
        [1, 2, 3],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
    ]
    assert kept(keep_top_p(logits(0.25, 0.25, 0.25, 0.25), 0.6)) == [0, 1, 2]


def test_min_p_by_hand() -> None:
    """Of the best, 0.4: at least half is 0.2, at least three quarters 0.3."""
    x = logits(0.1, 0.4, 0.2, 0.3)
    assert [kept(keep_min_p(x, p)) for p in (0.2, 0.3, 0.49, 0.51, 0.74, 0.76, 1.0)] == [
        [0, 1, 2, 3],
        [1, 2, 3],
        [1, 2, 3],
        [1, 3],
        [1, 3],
        [1],
        [1],
    ]


def test_the_order_of_the_filters_by_hand() -> None:
    """Temperature first, then top-k, then top-p of what top-k left, then min-p."""
    x = logits(0.4, 0.3, 0.2, 0.1)
    # Squares 16, 9, 4, 1 of 30; the best three 16, 9, 4 of 29; the first two have 0.86 of that, 0.83 of all.
    found = Sample(temperature=0.5, top_k=3, top_p=0.85).probabilities(x)
    torch.testing.assert_close(found, torch.tensor([[16 / 25, 9 / 25, 0, 0]], dtype=torch.float64))
    # And 9/16 of the best: min-p above that leaves only it.
    found = Sample(temperature=0.5, top_k=3, min_p=0.57).probabilities(x)
    torch.testing.assert_close(found, torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64))
    found = Sample(temperature=2.0).probabilities(x)
    roots = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).sqrt()
    torch.testing.assert_close(found, roots / roots.sum())


@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.sampled_from([50, 1500]),
    temperature=st.floats(0.2, 3.0),
    top_k=st.none() | st.integers(1, 60),
    top_p=st.none() | st.floats(0.05, 0.99),
    min_p=st.none() | st.floats(0.01, 0.9),
)
def test_against_transformers(
    seed: int, vocabulary: int, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
) -> None:
    from transformers.generation import logits_process as theirs

    x = 3 * torch.randn(5, vocabulary, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    want = theirs.TemperatureLogitsWarper(temperature)(None, x)
    if top_k is not None:
        want = theirs.TopKLogitsWarper(top_k)(None, want)
    if top_p is not None:
        want = theirs.TopPLogitsWarper(top_p)(None, want)
    if min_p is not None:
        want = theirs.MinPLogitsWarper(min_p)(None, want)
    got = Sample(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p).probabilities(x)
    torch.testing.assert_close(got, want.softmax(-1), atol=1e-12, rtol=1e-9)


# The draws.


def splitmix64(state: int) -> int:
    """In whole numbers without end, cut to 64 bits."""
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def as_signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def test_splitmix64_gives_its_published_numbers() -> None:
    """The first five of seed 1234567, as generators in other languages are tested with."""
    numbers = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    gamma = as_signed(0x9E3779B97F4A7C15)
    states = torch.tensor(1234567) + gamma * torch.arange(5)
    assert [number % 2**64 for number in scramble(states).tolist()] == numbers


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_scramble_against_python(states: list[int]) -> None:
    assert scramble(torch.tensor(states)).tolist() == [as_signed(splitmix64(state % 2**64)) for state in states]


def test_a_draw_is_a_function_of_its_four_numbers() -> None:
    rows, alternatives = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 0, 0, 1, 1])
    draws = uniform(5, rows, alternatives, 3)
    assert draws.dtype == torch.float64 and (draws >= 0).all() and (draws < 1).all()
    assert len(set(draws.tolist())) == 5
    order = torch.tensor([3, 0, 4])
    assert torch.equal(uniform(5, rows[order], alternatives[order], 3), draws[order])
    for other in (uniform(6, rows, alternatives, 3), uniform(5, rows, alternatives, 4)):
        assert not (other == draws).any()
    assert uniform(-(2**63), rows, alternatives, 0).isfinite().all()
    expected = 0
    for part in (5, 2, 0, 3):
        expected = splitmix64((expected + part) % 2**64)
    assert draws[2].item() == (expected >> 11) / 2**53


def test_draws_are_uniform_and_independent() -> None:
    """Over rows, alternatives, steps and seeds in turn: chi-square of 64 cells, and of pairs of neighbours in 8 x 8."""
    n = 16_000
    many, zeros = torch.arange(n), torch.zeros(n, dtype=torch.long)
    lines = {
        "rows": uniform(0, many, zeros, 0),
        "alternatives": uniform(0, zeros, many, 0),
        "steps": torch.cat([uniform(0, zeros[:1], zeros[:1], t) for t in range(1600)]),
        "seeds": torch.cat([uniform(s, zeros[:1], zeros[:1], 0) for s in range(1600)]),
    }
    for name, draws in lines.items():
        cells = (draws * 64).long()
        pairs = (draws[0::2] * 8).long() * 8 + (draws[1::2] * 8).long()
        for what in (cells, pairs):
            expected = len(what) / 64
            chi = ((torch.bincount(what, minlength=64) - expected) ** 2 / expected).sum().item()
            assert 25 < chi < 120, f"{name}: {chi}"  # 63 degrees of freedom: mean 63, standard deviation 11.2
    assert abs(torch.corrcoef(torch.stack([lines["rows"], lines["alternatives"]]))[0, 1]) < 0.03


def test_the_draw_goes_along_the_line() -> None:
    """Tokens 1, 2 and 4 have the parts [0, 0.25), [0.25, 0.75) and [0.75, 1) of it."""
    p = torch.tensor([[0.0, 0.25, 0.5, 0.0, 0.25, 0.0]], dtype=torch.float64)
    for draw, token in ((0.0, 1), (0.249, 1), (0.25, 2), (0.749, 2), (0.75, 4), (1 - 2**-53, 4)):
        assert invert(p, torch.tensor([draw], dtype=torch.float64)).tolist() == [token]


@given(seed=st.integers(0, 10**6), top_k=st.integers(1, 20))
def test_the_ends_of_the_line_are_tokens_too(seed: int, top_k: int) -> None:
    """Rounding never leads to a token of probability 0, nor past the last one."""
    x = 10 * torch.randn(4, 200, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    p = Sample(top_k=top_k).probabilities(x)
    for draw in (0.0, 2.0**-53, 0.5, 1 - 2.0**-53):
        tokens = invert(p, torch.full((4,), draw, dtype=torch.float64))
        assert (p.gather(1, tokens[:, None]) > 0).all()


def test_draws_follow_the_filtered_distribution(automaton_of: Callable[..., Any]) -> None:
    """10,000 first tokens: chi-square against the probabilities that temperature and top-k leave."""
    model = automaton_of({2: {1: 0.05, 3: 0.3, 4: 0.2, 5: 0.4, 6: 0.05}})
    search = Sample(temperature=0.8, top_k=3, seed=11)
    found = generate_tokens(model, None, prefixes=[[]] * 5, search=search, alternatives=2000, max_tokens=1)
    count = Counter(one.tokens[0] for each in found for one in each)
    weights = {token: p**1.25 for token, p in ((3, 0.3), (4, 0.2), (5, 0.4))}
    expected = {token: 10_000 * w / sum(weights.values()) for token, w in weights.items()}
    assert set(count) == set(expected)
    chi = sum((count[token] - e) ** 2 / e for token, e in expected.items())
    assert chi < 13.8  # 2 degrees of freedom: passed by chance once in 1000


# In the engine.


def test_a_low_temperature_is_greedy_search(case: Any) -> None:
    given = {"prefixes": case.prefixes, "max_tokens": 8}
    greedy = generate_tokens(case.model, case.source, search=Greedy(), **given)
    for cold in (Sample(temperature=1e-6, seed=3), Sample(top_k=1, seed=4), Sample(min_p=1.0), Sample(top_p=1e-9)):
        found = generate_tokens(case.model, case.source, search=cold, **given)
        assert [one.tokens for (one,) in found] == [one.tokens for (one,) in greedy]


def test_scores_are_the_models(case: Any) -> None:
    """Whatever was drawn from, log-probabilities are of the model as it is."""
    search = Sample(temperature=2.0, top_k=5, seed=9)
    found = generate_tokens(case.model, case.source, prefixes=case.prefixes, search=search, max_tokens=5)
    with torch.no_grad():
        for row, (one,) in enumerate(found):
            for i, token in enumerate(one.tokens):
                assert one.logps[i] == pytest.approx(case.logps(row, one.tokens[:i])[token].item(), abs=1e-9)
            assert one.ranking == one.score


def test_against_the_naive_loop(case: Any) -> None:
    """One token after the other from the plain forward pass, with the same draws."""
    search = Sample(temperature=1.3, top_p=0.9, seed=21)
    found = generate_tokens(
        case.model, case.source, prefixes=case.prefixes, search=search, alternatives=2, max_tokens=6
    )
    with torch.no_grad():
        for row in (0, 3):
            for alternative in (0, 1):
                text: list[int] = []
                while len(text) < 6 and END not in text:
                    logps = case.logps(row, text)
                    logps[[PAD, START]] = -torch.inf
                    p = keep_top_p(logps[None] / 1.3, 0.9).softmax(-1)[0].tolist()
                    draw = uniform(21, torch.tensor([row]), torch.tensor([alternative]), len(text)).item()
                    total, token = 0.0, -1
                    while total <= draw:
                        token += 1
                        total += p[token]
                    text.append(token)
                assert found[row][alternative].tokens == text


def test_seeds_and_alternatives(make_case: Callable[[str], Any]) -> None:
    """A seed gives the same again; more alternatives add to the first ones; another seed gives others."""
    case = make_case("transformer lm")

    def texts(seed: int, alternatives: int) -> list[list[list[int]]]:
        search = Sample(temperature=3.0, seed=seed)
        given = {"prefixes": case.prefixes, "search": search, "alternatives": alternatives, "max_tokens": 8}
        return [[one.tokens for one in each] for each in generate_tokens(case.model, None, **given)]

    assert texts(1, 3) == texts(1, 3)
    assert [each[:1] for each in texts(1, 3)] == texts(1, 1)
    assert texts(1, 3) != texts(2, 3)
    assert any(len({tuple(one) for one in each}) == 3 for each in texts(1, 3))


def test_equal_inputs_get_different_samples(make_case: Callable[[str], Any]) -> None:
    case = make_case("rnn lm")
    search = Sample(temperature=3.0, seed=1)
    found = generate_tokens(case.model, None, prefixes=[[5, 6]] * 8, search=search, max_tokens=8)
    assert len({tuple(one.tokens) for (one,) in found}) >= 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, r"temperature must be a number above 0, got 0.0; its limit 0 is Greedy\(\)"),
        ({"temperature": -1.0}, "temperature must be a number above 0"),
        ({"temperature": 5e-324}, "temperature must be at least 1e-06, got 5e-324"),
        ({"temperature": math.inf}, "temperature must be a number above 0, got inf"),
        ({"top_k": 0}, "top_k must be a whole number from 1, got 0"),
        ({"top_k": 1.5}, "top_k must be a whole number from 1, got 1.5"),
        ({"top_p": 0.0}, "top_p must be a share above 0 and up to 1, got 0.0"),
        ({"top_p": 1.1}, "top_p must be a share above 0 and up to 1, got 1.1"),
        ({"min_p": math.nan}, "min_p must be a share above 0 and up to 1, got nan"),
        ({"seed": 2**63}, "seed must be a whole number of 64 bits, got 9223372036854775808"),
        ({"seed": 1.5}, "seed must be a whole number of 64 bits, got 1.5"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sample(**settings)
