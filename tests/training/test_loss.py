"""The losses against torch's cross-entropy on the plain way: every position projected, padding ignored.

B batch   n source tokens   m target tokens   N tokens that are predicted   V vocabulary
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models.config import (
    EncoderConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.presets import MODELS, make_model
from regard.text.batching import Batch
from regard.text.special import END, PAD, START
from regard.training.loss import Loss, contrastive_loss, language_model_loss, objective, token_loss, translation_loss

STACK: dict[str, Any] = {"layers": 1, "dim": 8, "heads": 2, "hidden": 12, "dropout": 0.0}
CELL: dict[str, Any] = {"embedding": 6, "hidden": 8, "dropout": 0.0}
SIDES = {"source_vocabulary": 11, "target_vocabulary": 13}
CONFIGS = {
    "transformer": TransformerConfig(**STACK, **SIDES),
    "rnn-seq2seq": RecurrentTranslatorConfig(**CELL, **SIDES, attention="none"),
    "rnn-attention": RecurrentTranslatorConfig(**CELL, **SIDES),
    "transformer-lm": TransformerLMConfig(**STACK, vocabulary=13),
    "rnn-lm": RecurrentLMConfig(**CELL, vocabulary=13),
    "encoder": EncoderConfig(**STACK, vocabulary=13),
}
TRANSLATORS = ("transformer", "rnn-seq2seq", "rnn-attention")


def model_of(kind: str) -> nn.Module:
    torch.manual_seed(3)
    return make_model(CONFIGS[kind]).double()


def batch_of(*targets: list[int], translates: bool = True) -> Batch:
    """Targets of different lengths behind the start token, and sources that go with them."""
    m = max(map(len, targets)) + 1
    source = torch.full((len(targets), 4), PAD)
    for row in range(len(targets)):
        source[row, : 3 + row % 2] = torch.tensor([5 + row, 6, 7, 8][-3 - row % 2 :])
    return Batch(
        ids=list(range(len(targets))),
        source=source if translates else None,
        inputs=torch.tensor([[START, *t] + [PAD] * (m - 1 - len(t)) for t in targets]),
        labels=torch.tensor([[*t, END] + [PAD] * (m - 1 - len(t)) for t in targets]),
        tokens=sum(map(len, targets)) + len(targets),
    )


RAGGED = ([5, 6, 7, 12], [8], [], [9, 1])
EVEN = ([5, 6], [7, 8])


@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 6),
    v=st.integers(2, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.37, 0.9]),
)
def test_token_loss_is_torchs(seed: int, n: int, v: int, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, v, generator=generator, dtype=torch.float64).mul_(3).requires_grad_()
    labels = torch.randint(v, (n,), generator=generator)
    total, nll = token_loss(logits, labels, smoothing=smoothing)
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(nll, F.cross_entropy(logits, labels, reduction="sum").detach())
    torch.testing.assert_close(*(torch.autograd.grad(x, logits)[0] for x in (total, expected)))
    assert total.dtype == nll.dtype == torch.float64
    assert not nll.requires_grad


def test_token_loss_by_hand() -> None:
    """Three tokens with probabilities 1/2, 1/4, 1/4, smoothing 0.3: 0.8 ln 2 + 0.1 ln 4 + 0.1 ln 4 = 1.2 ln 2."""
    logits = torch.tensor([[math.log(2), 0.0, 0.0]])
    total, nll = token_loss(logits, torch.tensor([0]), smoothing=0.3)
    assert float(total) == pytest.approx(1.2 * math.log(2), rel=1e-6)
    assert float(nll) == pytest.approx(math.log(2), rel=1e-6)


@pytest.mark.parametrize("autocast", [False, True])
def test_token_loss_of_bf16_is_counted_in_float32(autocast: bool) -> None:
    """1000 equal tokens cost ln 1000 each; a sum in bf16 would stop growing long before 4000 of them."""
    logits = torch.zeros(4000, 1000, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        total, nll = token_loss(logits, torch.zeros(4000, dtype=torch.long), smoothing=0.1)
    assert total.dtype == nll.dtype == torch.float32
    for value in (total, nll):
        assert float(value) == pytest.approx(4000 * math.log(1000), rel=1e-5)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_smoothing_out_of_range(smoothing: float) -> None:
    with pytest.raises(ValueError, match=f"smoothing must be a share.*got {smoothing}"):
        token_loss(torch.zeros(1, 2), torch.tensor([0]), smoothing=smoothing)


def logits_of(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch.inputs) if batch.source is None else model(batch.source, batch.inputs)


@pytest.mark.parametrize("targets", [RAGGED, EVEN], ids=["ragged", "even"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "encoder"])
def test_loss_and_gradients_are_those_of_the_plain_way(kind: str, smoothing: float, targets: Any) -> None:
    model, batch = model_of(kind), batch_of(*targets, translates=kind in TRANSLATORS)
    loss = objective(model, smoothing=smoothing)(model, batch)
    logits, labels = logits_of(model, batch).flatten(0, 1), batch.labels.flatten()
    plain = F.cross_entropy(logits, labels, ignore_index=PAD, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss.total, plain)
    torch.testing.assert_close(loss.nll, F.cross_entropy(logits, labels, ignore_index=PAD, reduction="sum").detach())
    assert loss.tokens == int((labels != PAD).sum())
    parameters = list(model.parameters())
    ours, theirs = (torch.autograd.grad(x, parameters, allow_unused=True) for x in (loss.total, plain))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    assert any(grad is not None and grad.abs().max() > 0 for grad in ours)


@pytest.mark.parametrize("kind", ["transformer", "rnn-lm"])
def test_only_what_is_predicted_is_projected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_of(kind), batch_of(*RAGGED, translates=kind == "transformer")
    seen = []
    project = model.project
    monkeypatch.setattr(model, "project", lambda x: seen.append(tuple(x.shape)) or project(x))
    objective(model)(model, batch)
    assert seen == [(batch.tokens, 8)] == [(11, 8)]


def test_targets_are_shifted() -> None:
    """E7: each prediction is held against the token after it, the last one against the end token."""

    class Sure(nn.Module):
        """Knows that t + 1 comes after t, and that the end comes after 12."""

        def encode(self, source: Tensor) -> None:
            return None

        def decode(self, target: Tensor, encoded: None = None) -> Tensor:
            following = torch.where(target == START, 10, target + 1)
            return F.one_hot(torch.where(target == 12, END, following), 14).double()

        def project(self, hidden: Tensor) -> Tensor:
            return 100 * hidden

    for right, wrong in (([10, 11, 12], [10, 12, 11]), ([10, 11, 12], [10, 11])):
        assert float(translation_loss(Sure(), batch_of(right)).nll) == pytest.approx(0, abs=1e-9)
        assert float(language_model_loss(Sure(), batch_of(right, translates=False)).nll) == pytest.approx(0, abs=1e-9)
        assert float(translation_loss(Sure(), batch_of(wrong)).nll) > 99


class Vectors(nn.Module):
    """A sentence encoder that reads its answer from a table: token of the first place -> vector."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens[:, 0]]


def pairs(source: list[int], target: list[int]) -> Batch:
    """Sentences of one token each."""
    return replace(batch_of(*([token] for token in target)), source=torch.tensor(source)[:, None])


def test_contrastive_loss_by_hand() -> None:
    """Sources (1, 0), (0, 2) and targets (3, 0), (1, 1): the cosines are 1, r; 0, r with r = 1/sqrt(2)."""
    model = Vectors(torch.tensor([[1.0, 0], [0, 2], [3, 0], [1, 1]], dtype=torch.float64))
    loss = contrastive_loss(model, pairs([0, 1], [2, 3]), temperature=0.5)
    e = math.exp
    one, r, zero = e(2), e(2 * math.sqrt(0.5)), 1.0
    forwards = -math.log(one / (one + r)) - math.log(r / (zero + r))
    backwards = -math.log(one / (one + zero)) - math.log(r / (r + r))
    assert float(loss.total.detach()) == float(loss.nll) == pytest.approx((forwards + backwards) / 2)
    assert loss.tokens == 2
    assert not loss.nll.requires_grad
    loss.total.backward()
    assert model.table.grad.abs().sum() > 0


def test_contrastive_accuracy_counts_both_directions() -> None:
    """Both sources lie nearest to the first target: forwards 1 of 2 right; backwards both."""
    angle = torch.tensor([0.0, 0.5, 0.1, 2.0], dtype=torch.float64)
    model = Vectors(torch.stack([angle.cos(), angle.sin()], dim=1))
    assert float(contrastive_loss(model, pairs([0, 1], [2, 3])).correct) == 1.5


def test_contrastive_loss_of_equal_vectors_is_that_of_a_guess() -> None:
    loss = contrastive_loss(Vectors(torch.ones(8, 3)), pairs([0, 1, 2, 3], [4, 5, 6, 7]))
    assert float(loss.nll) == pytest.approx(4 * math.log(4), rel=1e-6)


def test_contrastive_loss_under_autocast_is_float32() -> None:
    model = make_model(CONFIGS["encoder"])
    batch = batch_of(*RAGGED)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = contrastive_loss(model, batch)
    assert loss.total.dtype == torch.float32
    assert torch.isfinite(loss.total)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        contrastive_loss(model, batch, temperature=0)


def test_sentence_encoder_sees_whole_targets() -> None:
    """Source and target are encoded alike: a batch of pairs of the same sentence has every cosine of a pair at 1."""
    model = model_of("encoder").eval()
    tokens = torch.tensor([[5, 6, END], [7, END, PAD]])
    batch = replace(batch_of([5, 6], [7]), source=tokens)
    similarity = model(tokens) @ model(tokens).T
    expected = F.cross_entropy(similarity / 0.1, torch.arange(2), reduction="sum")
    loss = objective(model, temperature=0.1)(model, batch)
    torch.testing.assert_close(loss.total, expected)
    assert loss.tokens == 2


def test_every_kind_of_model_has_an_objective() -> None:
    assert set(CONFIGS) == set(MODELS)
    for kind in MODELS:
        model = model_of(kind)
        loss = objective(model)(model, batch_of(*RAGGED, translates=not kind.endswith("lm")))
        assert isinstance(loss, Loss) and torch.isfinite(loss.total)
    with pytest.raises(TypeError, match="one of regard's models, got Linear"):
        objective(nn.Linear(1, 1))


def test_compiled_model_keeps_its_objective() -> None:
    model = torch.compile(model_of("transformer"), backend="eager")
    assert objective(model).func is translation_loss
