"""The losses against torch's cross-entropy on the plain way: every position projected, padding ignored.

B batch   n source tokens   m target tokens   N tokens that are predicted   V vocabulary
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import example, given, strategies as st
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

from regard.kernels.training import cross_entropy
from regard.layers.embedding import Embedding
from regard.models.config import (
    AnswererConfig,
    ClassifierConfig,
    EncoderConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    SummarizerConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.presets import MODELS, make_model
from regard.recipes.tables import TrainingRecipe
from regard.tasks import losses
from regard.tasks.losses import Loss, contrastive_loss, language_model_loss, translation_loss
from regard.tasks.objective import objective, recipe_objective
from regard.text.batches.batch import Batch
from regard.text.tokenizers.special_tokens import END, PAD, START

from ..repeats import by_default

STACK: dict[str, Any] = {"layers": 1, "dim": 8, "heads": 2, "hidden": 12, "dropout": 0.0}
CELL: dict[str, Any] = {"embedding": 6, "hidden": 8, "dropout": 0.0}
SIDES = {"source_vocabulary": 11, "target_vocabulary": 13}
ONE_VOCABULARY = dict.fromkeys(SIDES, max(SIDES.values()))
CONFIGS = {
    "transformer": TransformerConfig(**STACK, **SIDES),
    "rnn-seq2seq": RecurrentTranslatorConfig(**CELL, **SIDES, attention="none"),
    "rnn-attention": RecurrentTranslatorConfig(**CELL, **SIDES),
    "transformer-lm": TransformerLMConfig(**STACK, vocabulary=13),
    "rnn-lm": RecurrentLMConfig(**CELL, vocabulary=13),
    "encoder": EncoderConfig(**STACK, vocabulary=13),
    "classifier": ClassifierConfig(**STACK, **SIDES),
    "summarizer": SummarizerConfig(**STACK, **ONE_VOCABULARY),
    "answerer": AnswererConfig(**STACK, **ONE_VOCABULARY),
}
TRANSLATORS = ("transformer", "rnn-seq2seq", "rnn-attention")
PREDICTS = [kind for kind in CONFIGS if kind not in ("encoder", "classifier", "summarizer", "answerer")]


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


def token_loss(logits: Tensor, labels: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The loss of logits that are given: the features, times a table of ones and zeros."""
    return cross_entropy.token_loss(logits, labels, weight=torch.eye(logits.shape[1], dtype=logits.dtype), **options)


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
    with pytest.raises(ValueError, match=f"smoothing must be at least 0.*got {smoothing}"):
        token_loss(torch.zeros(1, 2), torch.tensor([0]), smoothing=smoothing)


def written_out(logits: Tensor, labels: Tensor, smoothing: float, alpha: float) -> tuple[Tensor, Tensor]:
    """R-Drop term by term, Liang et al. 2021, eq. 2 to 4, and half of it; logits (2, N, V), labels (N,)."""
    log_p, log_q = logits.log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    divergence = ((p * (log_p - log_q)).sum() + (q * (log_q - log_p)).sum()) / 2
    smoothed = sum(F.cross_entropy(one, labels, label_smoothing=smoothing, reduction="sum") for one in logits)
    plain = sum(F.cross_entropy(one, labels, reduction="sum") for one in logits)
    return (smoothed + alpha * divergence) / 2, plain.detach() / 2


@given(
    seed=st.integers(0, 2**16),
    n=st.integers(0, 5),
    v=st.integers(2, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    alpha=st.sampled_from([0.3, 1.0, 5.0]),
)
def test_r_drop_is_the_papers(seed: int, n: int, v: int, smoothing: float, alpha: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, n, v, generator=generator, dtype=torch.float64).mul_(3).requires_grad_()
    labels = torch.randint(v, (n,), generator=generator)
    total, nll = token_loss(logits.flatten(0, 1), labels.repeat(2), smoothing=smoothing, r_drop=alpha)
    expected = written_out(logits, labels, smoothing, alpha)
    torch.testing.assert_close((total, nll), expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, logits)[0] for x in (total, expected[0])))
    assert not nll.requires_grad


@pytest.mark.parametrize("r_drop", [0.0, 2.0])
@pytest.mark.parametrize("keep", [None, torch.tensor([True, False, True] * 2)], ids=["all", "some"])
def test_gradients_against_differences(r_drop: float, keep: Tensor | None) -> None:
    logits = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    labels = torch.tensor([0, 3, 4] * 2)
    assert torch.autograd.gradcheck(
        lambda x: token_loss(x, labels, smoothing=0.2, r_drop=r_drop, keep=keep)[0] * 3, logits
    )


def test_r_drop_by_hand() -> None:
    """P = (1/2, 1/2), Q = (1/4, 3/4): the divergences are ln 2 / 2 + ln(2/3) / 2 and 3/4 ln(3/2) - ln 2 / 4."""
    ln = math.log
    logits = torch.tensor([[0.5, 0.5], [0.25, 0.75]], dtype=torch.float64).log()
    total, nll = token_loss(logits, torch.tensor([0, 0]), r_drop=4.0)
    apart = (ln(2) + ln(2 / 3)) / 2 + 3 / 4 * ln(3 / 2) - ln(2) / 4
    assert float(nll) == pytest.approx((ln(2) + ln(4)) / 2)
    assert float(total) == pytest.approx((ln(2) + ln(4)) / 2 + apart)
    with pytest.raises(ValueError, match="r_drop must be a number from 0, got -1"):
        token_loss(logits, torch.tensor([0, 0]), r_drop=-1)


@pytest.mark.parametrize("r_drop", [0.0, 1.0])
def test_nothing_of_the_size_of_the_scores_waits_for_the_backward_pass(r_drop: float) -> None:
    kept = []
    hidden, weight = torch.randn(60, 3, requires_grad=True), torch.randn(50, 3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        cross_entropy.token_loss(hidden, torch.arange(60) % 3, weight=weight, smoothing=0.1, r_drop=r_drop)
    assert sorted(kept) == [150, 180]  # the gradients of the table and of the features


@pytest.mark.parametrize("r_drop", [0.0, 2.0])
@pytest.mark.parametrize("scores", [1, 40, 130, 10**6])
@pytest.mark.parametrize("masked", [False, True])
def test_parts_change_nothing(scores: int, r_drop: float, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of all tokens at once, and of one or a few at a time: loss and all gradients by torch's autograd."""
    generator = torch.Generator().manual_seed(1)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((26, 4), (7, 4), (7,))
    )
    labels = torch.randint(7, (13,), generator=generator).repeat(2)
    keep = (torch.arange(13) % 3 > 0).repeat(2) if masked else None
    monkeypatch.setattr(cross_entropy, "MAX_CPU_SCORES", scores)
    found = cross_entropy.token_loss(hidden, labels, weight=weight, bias=bias, smoothing=0.1, r_drop=r_drop, keep=keep)
    logits = F.linear(hidden, weight, bias)
    counts = torch.ones(26, dtype=torch.bool) if keep is None else keep
    if r_drop:
        wanted = written_out(logits.view(2, 13, 7)[:, counts[:13]], labels[:13][counts[:13]], 0.1, r_drop)
    else:
        plain = [
            F.cross_entropy(logits[counts], labels[counts], label_smoothing=s, reduction="sum") for s in (0.1, 0.0)
        ]
        wanted = plain[0], plain[1].detach()
    torch.testing.assert_close(found, wanted)
    ours, theirs = (torch.autograd.grad(3 * total[0], (hidden, weight, bias)) for total in (found, wanted))
    torch.testing.assert_close(ours, theirs)


@example(rows=700, room=650, vocabulary=3, passes=1)
@given(
    rows=st.integers(1, 3000),
    room=st.integers(1, 700),
    vocabulary=st.integers(1, 50),
    passes=st.sampled_from([1, 2]),
)
def test_parts_are_all_rows_and_alike(rows: int, room: int, vocabulary: int, passes: int) -> None:
    """None has more scores than may be; all but the last are of one size, of whole tiles where one fits."""
    before, cross_entropy.MAX_CPU_SCORES = cross_entropy.MAX_CPU_SCORES, room * vocabulary * passes
    try:
        parts = [*cross_entropy.row_parts(torch.zeros(rows * passes, 1), vocabulary, passes=passes)]
    finally:
        cross_entropy.MAX_CPU_SCORES = before
    sizes = [part.last - part.first for part in parts]
    assert [part.first for part in parts] == [sum(sizes[:i]) for i in range(len(parts))] and sum(sizes) == rows
    assert len(parts) == 1 or (sizes[0] == max(sizes) and len({*sizes[:-1]}) == 1)
    assert max(sizes) <= room
    if len(parts) > 1 and room >= 128:
        assert sizes[0] % 128 == 0 and sizes[0] - sizes[-1] < 128 * len(parts)
        assert len(parts) == math.ceil(rows / (room // 128 * 128))  # no more than must be


def logits_of(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch.inputs) if batch.source is None else model(batch.source, batch.inputs)


@pytest.mark.parametrize("targets", [RAGGED, EVEN], ids=["ragged", "even"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", PREDICTS)
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


def gradients(model: nn.Module, total: Tensor) -> dict[str, Tensor | None]:
    named = dict(model.named_parameters())
    return dict(zip(named, torch.autograd.grad(total, list(named.values()), allow_unused=True), strict=True))


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("kind", PREDICTS)
def test_r_drop_of_a_model_compares_two_passes(kind: str, fixed: bool) -> None:
    """The same draw of dropout on the batch and its copy, then eq. 4 written out, loss and gradients."""
    torch.manual_seed(3)
    model = make_model(replace(CONFIGS[kind], dropout=0.3)).double()
    batch = replace(batch_of(*RAGGED, translates=kind in TRANSLATORS), fixed=fixed)
    torch.manual_seed(4)
    loss = objective(model, smoothing=0.1, r_drop=3.0)(model, batch)
    torch.manual_seed(4)
    twice = replace(batch, inputs=batch.inputs.repeat(2, 1))
    if batch.source is not None:
        twice = replace(twice, source=batch.source.repeat(2, 1))
    predicted = batch.labels != PAD
    logits = torch.stack([one[predicted] for one in logits_of(model, twice).chunk(2)])
    assert (logits[0] - logits[1]).abs().max() > 0.01
    total, nll = written_out(logits, batch.labels[predicted], 0.1, 3.0)
    torch.testing.assert_close((loss.total, loss.nll), (total, nll))
    assert loss.tokens == batch.tokens
    torch.testing.assert_close(gradients(model, loss.total), gradients(model, total))


@pytest.mark.parametrize("kind", PREDICTS)
def test_r_drop_without_dropout_is_the_plain_loss(kind: str) -> None:
    model, batch = model_of(kind), batch_of(*RAGGED, translates=kind in TRANSLATORS)
    plain, twice = (objective(model, smoothing=0.1, r_drop=alpha)(model, batch) for alpha in (0.0, 5.0))
    torch.testing.assert_close(twice[:3], plain[:3])
    torch.testing.assert_close(gradients(model, twice.total), gradients(model, plain.total))


@pytest.mark.parametrize("kind", PREDICTS)
def test_a_recipe_can_switch_the_kernel_off(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores as if they were on a GPU that runs the kernel."""
    kernel = Mock(side_effect=lambda scores, *_, **__: (scores.sum(), scores.sum(), scores))
    stand_in = SimpleNamespace(fused_loss_and_gradient=kernel)
    monkeypatch.setitem(sys.modules, "regard.kernels.training.cross_entropy_triton", stand_in)
    monkeypatch.setattr(cross_entropy, "fused_fits", lambda scores: True)
    model, batch = model_of(kind), batch_of(*RAGGED, translates=kind in TRANSLATORS)
    for kernels in ("off", "auto"):
        recipe_objective(model, TrainingRecipe(kernels=kernels))(model, batch)
        assert kernel.called is (kernels == "auto")
    weight = torch.zeros(8, 4, dtype=torch.bfloat16)
    fused, plain = (
        cross_entropy.scores_memory(80, weight, weight.dtype, r_drop=0.0, kernels=kernels) for kernels in (True, False)
    )
    assert fused < plain


def projected(model: nn.Module, batch: Batch, monkeypatch: pytest.MonkeyPatch, **options: float) -> list[int]:
    """How many positions are held against the vocabulary, call by call."""
    seen: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            losses, "token_loss", lambda x, *a, **k: seen.append(len(x)) or cross_entropy.token_loss(x, *a, **k)
        )
        objective(model, **options)(model, batch)
    return seen


def test_r_drop_looks_twice_in_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_of("transformer"), batch_of(*RAGGED)
    assert projected(model, batch, monkeypatch, r_drop=1.0) == [2 * batch.tokens]
    assert projected(model.eval(), batch, monkeypatch, r_drop=1.0) == [batch.tokens]


def padded(batch: Batch, rows: int, columns: int) -> Batch:
    """The batch with so many rows and columns of padding more, as one of fixed shape; a source is never empty."""
    source, inputs, labels = (
        x if x is None else F.pad(x, (0, columns, 0, rows), value=PAD)
        for x in (batch.source, batch.inputs, batch.labels)
    )
    if source is not None:
        source[len(batch.ids) :, 0] = END
    return replace(batch, source=source, inputs=inputs, labels=labels, fixed=True)


@pytest.mark.parametrize("rows", by_default({2}, [0, 2]))
@pytest.mark.parametrize("r_drop", by_default({2.0}, [0.0, 2.0]))
@pytest.mark.parametrize("kind", CONFIGS)
def test_fixed_shapes_change_nothing(kind: str, r_drop: float, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding in rows and columns, all of it projected: the loss and the gradients of the batch without it."""
    model, batch = model_of(kind), batch_of(*RAGGED, translates=not kind.endswith("lm"))
    fixed = padded(batch, rows, 3)
    plain, masked = (objective(model, smoothing=0.1, r_drop=r_drop)(model, one) for one in (batch, fixed))
    torch.testing.assert_close(masked, plain)
    torch.testing.assert_close(gradients(model, masked.total), gradients(model, plain.total))
    if kind in PREDICTS:
        assert projected(model, fixed, monkeypatch) == [fixed.labels.numel()]


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("r_drop", by_default({2.0}, [0.0, 2.0]))
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_share_without_rows_costs_nothing(kind: str, r_drop: float, fixed: bool) -> None:
    """Every parameter that a batch reaches gets its gradient, of zeros: other processes may wait for it."""
    model, some = model_of(kind), batch_of(*RAGGED, translates=not kind.endswith("lm"))
    source = None if some.source is None else some.source[:0]
    empty = replace(some, ids=[], source=source, inputs=some.inputs[:0], labels=some.labels[:0], tokens=0, fixed=fixed)
    function = objective(model, smoothing=0.1, r_drop=r_drop)
    shown: list[int] = []
    for part in model.modules():
        if isinstance(part, Embedding):  # on a GPU, bf16's attention has no gradient of no rows
            part.register_forward_pre_hook(lambda _, given: shown.append(len(given[0])))
    loss = function(model, empty)
    assert shown and min(shown) > 0
    assert (float(loss.total.detach()), float(loss.nll), loss.tokens) == (0, 0, 0)
    found, wanted = gradients(model, loss.total), gradients(model, function(model, some).total)
    for name, gradient in found.items():
        assert (gradient is None) == (wanted[name] is None), name
        assert gradient is None or not gradient.any(), name


@pytest.mark.parametrize("r_drop", [0.0, pytest.param(2.0, marks=pytest.mark.slow)])
def test_one_shape_is_compiled_once(r_drop: float) -> None:
    """Batches of one shape with different numbers of tokens and sentences; without `fixed` each is a new shape."""
    model = model_of("transformer")
    batches = [padded(batch_of(*targets), 4 - len(targets), 4 - max(map(len, targets))) for targets in (RAGGED, EVEN)]
    batches = [replace(one, source=F.pad(one.source, (0, 8 - one.source.shape[1]))) for one in batches]
    assert len({(one.source.shape, one.labels.shape) for one in batches}) == 1
    for fixed, graphs in ((True, 1), (False, 2)):
        torch.compiler.reset()
        counters.clear()
        compiled = torch.compile(objective(model, smoothing=0.1, r_drop=r_drop), backend="eager")
        for batch in batches:
            loss = compiled(model, replace(batch, fixed=fixed))
            assert loss.tokens == batch.tokens
            loss.total.backward()
        assert counters["stats"]["unique_graphs"] == graphs
        assert not counters["graph_break"]


@pytest.mark.parametrize("kind", ["transformer", "rnn-lm"])
def test_only_what_is_predicted_is_projected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_of(kind), batch_of(*RAGGED, translates=kind == "transformer")
    assert projected(model, batch, monkeypatch) == [batch.tokens] == [11]


def test_targets_are_shifted() -> None:
    """E7: each prediction is held against the token after it, the last one against the end token."""

    class Sure(nn.Module):
        """Knows that t + 1 comes after t, and that the end comes after 12."""

        def encode(self, source: Tensor) -> None:
            return None

        def decode(self, target: Tensor, encoded: None = None) -> Tensor:
            following = torch.where(target == START, 10, target + 1)
            return F.one_hot(torch.where(target == 12, END, following), 14).double()

        output_table = 100 * torch.eye(14, dtype=torch.float64), None

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


def test_contrastive_gradients_are_those_of_one_table_of_cosines() -> None:
    model, batch = model_of("encoder"), batch_of(*RAGGED)
    a, b = (F.normalize(model(tokens), dim=-1) for tokens in (batch.source, batch.labels))
    ways = [F.cross_entropy(way / 0.3, torch.arange(4), reduction="sum") for way in (a @ b.T, b @ a.T)]
    loss = contrastive_loss(model, batch, temperature=0.3)
    torch.testing.assert_close(loss.total, sum(ways) / 2)
    torch.testing.assert_close(gradients(model, loss.total), gradients(model, sum(ways) / 2))


def test_contrastive_accuracy_counts_both_directions() -> None:
    """Both sources lie nearest to the first target: forwards 1 of 2 right; backwards both."""
    angle = torch.tensor([0.0, 0.5, 0.1, 2.0], dtype=torch.float64)
    model = Vectors(torch.stack([angle.cos(), angle.sin()], dim=1))
    assert float(contrastive_loss(model, pairs([0, 1], [2, 3])).correct) == 1.5


def test_contrastive_loss_of_equal_vectors_is_that_of_a_guess() -> None:
    loss = contrastive_loss(Vectors(torch.ones(8, 3)), pairs([0, 1, 2, 3], [4, 5, 6, 7]))
    assert float(loss.nll) == pytest.approx(4 * math.log(4), rel=1e-6)


def shares(model: nn.Module, batch: Batch, cut: int) -> list[Loss]:
    """The losses of two processes, the first with `cut` pairs, the second with the rest; both see all vectors."""
    parts = [
        replace(batch, ids=batch.ids[mine], source=batch.source[mine], labels=batch.labels[mine])
        for mine in (slice(0, cut), slice(cut, None))
    ]
    sides = [F.normalize(model(tokens), dim=-1) for tokens in (batch.source, batch.labels)]
    losses = []
    for rank, part in enumerate(parts):
        turn = iter(sides)

        def together(rows: Tensor, rank: int = rank, turn: Any = turn) -> tuple[Tensor, int]:
            whole = next(turn)
            return (torch.cat([rows, whole[cut:]]), 0) if rank == 0 else (torch.cat([whole[:cut], rows]), cut)

        losses.append(contrastive_loss(model, part, temperature=0.3, together=together))
    return losses


@pytest.mark.parametrize("cut", [0, 1, 3, 4])
def test_processes_together_find_what_one_finds(cut: int) -> None:
    model, batch = model_of("encoder"), batch_of([5, 6, 7, 12], [8], [9, 1], [10, 4, 4])
    whole = contrastive_loss(model, batch, temperature=0.3)
    parts = shares(model, batch, cut)
    for i, name in enumerate(Loss._fields):
        torch.testing.assert_close(parts[0][i] + parts[1][i], whole[i], msg=name)
    assert [part.tokens for part in parts] == [cut, 4 - cut]
    torch.testing.assert_close(gradients(model, parts[0].total + parts[1].total), gradients(model, whole.total))


def test_the_objective_of_a_sentence_encoder_knows_the_other_processes() -> None:
    model, batch = model_of("encoder"), batch_of(*EVEN)
    strangers = torch.eye(8, dtype=torch.float64)[:3]
    apart = objective(model, temperature=1.0)(model, batch)
    joined = objective(model, temperature=1.0, together=lambda rows: (torch.cat([strangers, rows]), 3))(model, batch)
    assert float(joined.nll) > float(apart.nll) + 0.01
    assert joined.tokens == apart.tokens == 2


def test_each_process_answers_for_its_own_pairs() -> None:
    """Vectors of which only the second pair is hard: its loss is in the share that has it."""
    table = torch.eye(8, dtype=torch.float64)[[0, 1, 2, 3, 0, 0, 2, 3]]
    first, second = shares(Vectors(table), pairs([0, 1, 2, 3], [4, 5, 6, 7]), 2)
    assert float(first.nll) > 1 > 0.3 > float(second.nll)
    assert (float(first.correct), float(second.correct)) == (1.0, 2.0)


def test_contrastive_loss_under_autocast_is_float32() -> None:
    """A small temperature makes rounding large. Vectors that come in half precision are widened first."""
    torch.manual_seed(3)
    table, batch = torch.randn(8, 5).bfloat16(), pairs([0, 1, 2, 3], [4, 5, 6, 7])
    exact = contrastive_loss(Vectors(table.double()), batch, temperature=0.01).nll
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = [contrastive_loss(Vectors(one), batch, temperature=0.01).nll for one in (table, table.float())]
        found_by_a_model = contrastive_loss(make_model(CONFIGS["encoder"]), batch_of(*RAGGED)).total
    for nll in found:
        assert float(nll) == pytest.approx(float(exact), rel=1e-5)
    assert found_by_a_model.dtype == torch.float32
    assert torch.isfinite(found_by_a_model)


def test_temperature_must_be_above_0() -> None:
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        contrastive_loss(model_of("encoder"), batch_of(*RAGGED), temperature=0)


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
    others = {"word-vectors", "image-classifier", "forecaster", "dlinear"}  # an update of its own; no tokens
    others |= {"captioner", "rnn-captioner"}  # their source is a picture
    others |= {"speech-recognizer", "listen-attend-spell", "speech-ctc"}  # their source is sound
    assert set(CONFIGS) == set(MODELS) - others
    for kind in CONFIGS:
        model = model_of(kind)
        loss = objective(model)(model, batch_of(*RAGGED, translates=not kind.endswith("lm")))
        assert isinstance(loss, Loss) and torch.isfinite(loss.total)
    with pytest.raises(TypeError, match="one of regard's models, got Linear"):
        objective(nn.Linear(1, 1))


def test_compiled_model_keeps_its_objective() -> None:
    model = torch.compile(model_of("transformer"), backend="eager")
    assert objective(model).func is translation_loss
