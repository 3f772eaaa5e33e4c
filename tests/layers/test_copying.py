"""The copy gate against the formula of See et al. 2017, written with numpy, and what it promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import CopyGate

V, P = 9, 4


@pytest.fixture
def parts() -> dict[str, Tensor]:
    """Two rows, three target tokens and five source tokens, of which one occurs twice and the last two are padding."""
    dice = torch.Generator().manual_seed(0)
    weights = torch.rand(2, 3, 5, generator=dice)
    weights[1, :, 3:] = 0
    return {
        "logits": torch.randn(2, 3, V, generator=dice),
        "weights": weights / weights.sum(-1, keepdim=True),
        "tokens": torch.tensor([[4, 5, 4, 6, 3], [7, 8, 3, 0, 0]]),
        "context": torch.randn(2, 3, P, generator=dice),
        "state": torch.randn(2, 3, P, generator=dice),
        "inputs": torch.randn(2, 3, P, generator=dice),
    }


def mixed_by_numpy(gate: CopyGate, parts: dict[str, Tensor]) -> np.ndarray:
    """P(w) = p_gen P_vocab(w) + (1 - p_gen) sum of the weights at w, term by term."""
    arrays = {name: part.double().numpy() for name, part in parts.items()}
    w, b = gate.gate.weight[0].detach().double().numpy(), gate.gate.bias.item()
    result = np.zeros((2, 3, V))
    for row in range(2):
        for i in range(3):
            features = np.concatenate([arrays[name][row, i] for name in ("context", "state", "inputs")])
            p_gen = 1 / (1 + np.exp(-(w @ features + b)))
            exponentials = np.exp(arrays["logits"][row, i] - arrays["logits"][row, i].max())
            result[row, i] = p_gen * exponentials / exponentials.sum()
            for j, token in enumerate(parts["tokens"][row].tolist()):
                result[row, i, token] += (1 - p_gen) * arrays["weights"][row, i, j]
    return result


def test_the_gate_is_the_formula_of_the_paper(parts: dict[str, Tensor]) -> None:
    torch.manual_seed(1)
    gate = CopyGate(dim=P)
    logps = gate(**parts)
    np.testing.assert_allclose(logps.exp().detach().numpy(), mixed_by_numpy(gate, parts), atol=1e-6)
    torch.testing.assert_close(logps.exp().sum(-1), torch.ones(2, 3))


def test_a_token_that_the_vocabulary_gives_no_probability_can_be_copied(parts: dict[str, Tensor]) -> None:
    gate = CopyGate(dim=P)
    with torch.no_grad():
        gate.gate.weight.zero_()
        gate.gate.bias.fill_(-20.0)  # always copy
    parts["logits"][..., 8] = -1e4
    parts["weights"][1] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    logps = gate(**parts)[1]
    assert logps.argmax(-1).eq(8).all() and logps[:, 8].exp().min() > 0.999
    assert logps.isfinite().all()  # also of tokens that are neither generated nor copied


def test_the_gate_passes_gradients_to_both_ways(parts: dict[str, Tensor]) -> None:
    gate = CopyGate(dim=P)
    parts["logits"].requires_grad_()
    parts["weights"].requires_grad_()
    gate(**parts)[0, 0, 4].backward()
    assert gate.gate.weight.grad is not None and gate.gate.weight.grad.abs().sum() > 0
    assert parts["weights"].grad is not None and parts["logits"].grad is not None
    copied = parts["weights"].grad[0, 0]
    assert copied[0] == copied[2] > 0 and copied[[1, 3, 4]].eq(0).all()  # token 4 stands at 0 and 2


def test_log_probabilities_are_computed_in_float32_at_least(parts: dict[str, Tensor]) -> None:
    gate = CopyGate(dim=P).to(torch.bfloat16)
    low = {name: part if name == "tokens" else part.to(torch.bfloat16) for name, part in parts.items()}
    assert gate(**low).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_copying_keeps_its_gradient_when_the_gate_is_almost_sure_to_generate(
    parts: dict[str, Tensor], dtype: torch.dtype
) -> None:
    """In bfloat16, sigmoid(8) is rounded to 1: the probability of copying must not be computed from that."""
    gate = CopyGate(dim=P)
    with torch.no_grad():
        gate.gate.weight.zero_()
        gate.gate.bias.fill_(8.0)
    gate = gate.to(dtype)
    parts["logits"][..., 8] = -1e4
    parts["weights"][1] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    logp = gate(**{name: part if name == "tokens" else part.to(dtype) for name, part in parts.items()})[1, 0, 8]
    logp.backward()
    copying = 1 / (1 + np.exp(8.0))
    assert logp.item() == pytest.approx(np.log(copying), rel=1e-4)
    assert gate.gate.bias.grad.item() == pytest.approx(copying - 1, rel=1e-2)  # d log sigmoid(-z) / dz
