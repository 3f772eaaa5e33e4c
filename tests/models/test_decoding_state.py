"""What holds for every model that writes text: word by word is the same as all at once, and nobody looks ahead.

B batch   n source tokens   m target tokens   V vocabulary
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import regard

ATOL = 1e-10  # float64


def close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, atol=ATOL, rtol=0)


def test_logits_have_one_row_a_target_token(case: Any, source: Tensor, target: Tensor) -> None:
    assert case.full(target, source).shape == (3, 5, 13)


@pytest.mark.parametrize("static", [False, True], ids=["growing", "static"])
@torch.no_grad()
def test_steps_equal_the_whole(case: Any, source: Tensor, target: Tensor, static: bool) -> None:
    """Cached = uncached: one token at a time, and in chunks of 2, 1 and 2."""
    want = case.full(target, source)
    for sizes in ([1, 1, 1, 1, 1], [2, 1, 2], [5]):
        state = case.start(source, static=static)
        parts = [case.step(chunk, state) for chunk in target.split(sizes, dim=1)]
        close(torch.cat(parts, dim=1), want)


@torch.no_grad()
def test_rows_of_a_static_cache_stand_at_places_of_their_own(case: Any, source: Tensor, target: Tensor) -> None:
    if not case.capacity:
        return  # its state has no places, or cannot go back to them
    want = case.full(target, source)
    state = case.start(source, static=True)
    case.step(target[:, :4], state)
    places = torch.tensor([4, 2, 0])
    for cache in state.caches:  # rows 1 and 2 step back; what they wrote past their place must not be seen
        cache.lengths.copy_(places)
    got = case.step(target.gather(1, places[:, None]), state)
    close(got[:, 0], want[torch.arange(3), places])


@torch.no_grad()
def test_select_takes_rows_along(case: Any, source: Tensor, target: Tensor) -> None:
    """Rows chosen, repeated and reordered in the middle, as a beam does, go on as themselves."""
    rows = torch.tensor([2, 0, 0, 1])
    want = case.full(target, source)[rows, 2:]
    for static in (False, True):
        state = case.start(source, static=static)
        case.step(target[:, :2], state)
        chosen = state.select(rows)
        close(torch.cat([case.step(target[rows, t : t + 1], chosen) for t in (2, 3, 4)], dim=1), want)
        close(case.step(target[:, 2:], state), case.full(target, source)[:, 2:])  # and the old state is untouched


@torch.no_grad()
def test_rows_that_are_repeated_and_kept_go_on_as_themselves(case: Any, source: Tensor, target: Tensor) -> None:
    """As a beam's: each input twice, rows change places within an input, and one input leaves."""
    want = case.full(target, source)
    for static in (False, True):
        state = case.start(source, static=static)
        case.step(target[:, :2], state)
        state = state.repeat(2)
        texts = torch.tensor([0, 0, 1, 1, 2, 2])
        close(case.step(target[texts, 2:3], state), want[texts, 2:3])
        state = state.keep(torch.tensor([1, 1, 2, 3, 5, 4]), None)
        close(case.step(target[texts, 3:4], state), want[texts, 3:4])
        state, texts = state.keep(torch.tensor([0, 1, 5, 4]), torch.tensor([0, 2])), texts[[0, 1, 4, 5]]
        close(case.step(target[texts, 4:5], state), want[texts, 4:5])


@torch.no_grad()
def test_select_of_the_encoded_source(translator: Any, source: Tensor, target: Tensor) -> None:
    rows = torch.tensor([1, 1, 0])
    model = translator.model
    encoded = model.encode(source).select(rows)
    assert torch.equal(encoded.keep, source[rows] != 0)
    close(model.project(model.decode(target, encoded)), model(source[rows], target))


def test_no_logit_depends_on_a_later_token(case: Any, source: Tensor, target: Tensor) -> None:
    """Causality by gradient; and every logit depends on its own and all earlier tokens."""
    seen: list[Tensor] = []
    handle = case.target_embedding.register_forward_hook(lambda module, args, y: seen.append(y))
    logits = case.full(target, source)
    handle.remove()
    torch.manual_seed(2)
    upstream = torch.randn(13, dtype=torch.float64)  # a plain sum of logits can cancel
    for i in range(5):
        (grad,) = torch.autograd.grad((logits[:, i] @ upstream).sum(), seen[0], retain_graph=True)  # (B, m, D)
        reached = grad.abs().sum(-1) > 0  # (B, m)
        assert reached[:, : i + 1].all(), f"row {i}"
        assert not reached[:, i + 1 :].any(), f"row {i}"


@torch.no_grad()
def test_batched_equals_single(case: Any, source: Tensor, target: Tensor) -> None:
    """Padding changes nothing, on either side."""
    together = case.full(target, source)
    for row, (n, m) in enumerate(((4, 5), (6, 3), (3, 4))):
        alone = case.full(target[row : row + 1, :m], source[row : row + 1, :n])
        close(alone[0], together[row, :m])


def test_gradients_reach_every_parameter(case: Any, source: Tensor, target: Tensor) -> None:
    """H1, for whole models in training."""
    logits = case.full(target, source)
    (logits * torch.randn_like(logits)).sum().backward()
    for name, parameter in case.model.named_parameters():
        if name.endswith(".k_bias"):
            continue  # adds the same to all scores of a query, and the softmax takes it away again
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
        assert parameter.grad.isfinite().all(), name


def test_dropout_acts_in_training_only(case: Any, source: Tensor, target: Tensor) -> None:
    assert case.config.dropout == 0.1
    assert torch.equal(case.full(target, source), case.full(target, source))
    case.model.train()
    assert not torch.equal(case.full(target, source), case.full(target, source))


def test_decode_takes_a_source_or_a_state(translator: Any, source: Tensor, target: Tensor) -> None:
    model = translator.model
    encoded = model.encode(source)
    for wrong in ({}, {"encoded": encoded, "state": translator.start(source)}):
        with pytest.raises(ValueError, match="either the encoded source or a state"):
            model.decode(target, **wrong)


def test_wrong_tokens(case: Any, source: Tensor, target: Tensor) -> None:
    with pytest.raises(TypeError, match=r"tokens must be .*got torch.float32"):
        case.full(target.float(), source)
    with pytest.raises(ValueError, match=r"must be \(\w+, length\).*got \(5,\)"):
        case.full(target[0], source)
    with pytest.raises(ValueError, match=r"tokens must lie in 0\.\.12.*got 2\.\.13"):
        case.full(target.clamp(min=2) + (target == 12), source)
    if case.translates:
        with pytest.raises(ValueError, match=r"must be \(\w+, length\), got \(6,\)"):
            case.full(target, source[0])
        with pytest.raises(ValueError, match=r"batch|target must be"):
            case.full(target[:2], source)


def test_a_full_cache_says_so(case: Any, source: Tensor, target: Tensor) -> None:
    if not case.capacity:
        return
    for static in (False, True):
        state = case.start(source, capacity=4, static=static)
        with pytest.raises(ValueError, match="room for 4 tokens, holds 0 and was given 5 more"):
            case.step(target, state)


def test_mixed_precision(case: Any, source: Tensor, target: Tensor) -> None:
    """Under autocast, which leaves some tensors in float32 and makes others bfloat16: forward, backward and steps."""
    model = case.model.float()
    want = case.full(target, source)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = case.full(target, source)
        torch.testing.assert_close(got.float(), want, atol=0.1, rtol=0.1)
        got.float().square().sum().backward()
        with torch.no_grad():
            state = case.start(source)
            steps = torch.cat([case.step(token, state) for token in target.split(1, dim=1)], dim=1)
            torch.testing.assert_close(steps.float(), want, atol=0.1, rtol=0.1)
            with regard.record(model) as maps:
                case.full(target, source)
            assert all(weights.isfinite().all() for weights in maps.values())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
