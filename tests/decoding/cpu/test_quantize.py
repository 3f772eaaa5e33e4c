"""Weights as whole numbers: the formula, rows that know nothing of each other, and models that decode with them."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.decoding.cpu import packed_weight
from regard.decoding.cpu.packed_weight import Int8Weight, PackedWeight
from regard.decoding.cpu.quantize import form_of_dtype, make_weight, pack_weights
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.errors import UsageError
from regard.models.config import RecurrentTranslatorConfig, TransformerConfig, TransformerLMConfig
from regard.models.presets import make_model

from ...repeats import some

CONFIGS = {
    "transformer": TransformerConfig(
        layers=2, dim=32, heads=4, hidden=64, source_vocabulary=50, target_vocabulary=50, share_embeddings=True
    ),
    "rnn-attention": RecurrentTranslatorConfig(
        embedding=16, hidden=24, source_vocabulary=50, target_vocabulary=50, attention="additive"
    ),
    "transformer-lm": TransformerLMConfig(layers=2, dim=32, heads=4, hidden=64, vocabulary=50, position="rotary"),
}


def random_matrix(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def whole(x: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers and the scale of each row, in float64, one row at a time."""
    scales = torch.stack([row.abs().max() / 127 for row in x.double()])
    return torch.stack([(row / scale).round() for row, scale in zip(x.double(), scales, strict=True)]), scales


def make(kind: str) -> Any:
    torch.manual_seed(1)
    return make_model(CONFIGS[kind]).eval()


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 7, 64, 1100]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_product_is_the_formula(r: int, o: int, i: int, biased: bool) -> None:
    x, weight = random_matrix(r, i, 1), random_matrix(o, i, 2)
    bias = random_matrix(1, o, 3)[0] if biased else None
    got = F.linear(x, make_weight(weight, "int8"), bias)
    (q_x, s_x), (q_w, s_w) = whole(x), whole(weight)
    want = s_x[:, None] * s_w * (q_x @ q_w.T) + (0 if bias is None else bias.double())
    # float32 may round a number that lies between two whole ones the other way: a step of one product, no more
    step = float(2 * s_x.max() * s_w.max() * 127)
    assert got.shape == (r, o)
    assert (got.double() - want).abs().max() <= 1e-5 * want.abs().max() + step
    assert ((got.double() - want).abs() <= 1e-5 * want.abs().max()).double().mean() > 0.9


@given(st.integers(0, 39), st.integers(1, 40), st.sampled_from([64, 1100]))
@settings(max_examples=30, deadline=None)
def test_a_row_does_not_depend_on_its_neighbours(place: int, rows: int, i: int) -> None:
    """Also beside one that is a million times larger, and in batches for which another kernel is faster."""
    place %= rows
    weight, bias = make_weight(random_matrix(24, i), "int8"), random_matrix(1, 24, 5)[0]
    x = random_matrix(rows, i, 4) * 1e6
    x[place] = random_matrix(1, i, 6)[0]
    assert torch.equal(F.linear(x, weight, bias)[place], F.linear(x[place, None], weight, bias)[0])


def test_the_rounding_is_small() -> None:
    x, weight = random_matrix(50, 512, 1), random_matrix(300, 512, 2)
    want = x @ weight.T
    error = F.linear(x, make_weight(weight, "int8")) - want
    assert 1e-3 < error.norm() / want.norm() < 0.02


@pytest.mark.parametrize("form", ["int8", "packed", "int8-groups", "int4"])
def test_a_weight_behaves_like_a_matrix(form: Any) -> None:
    plain = random_matrix(30, 20)
    weight = make_weight(plain, form)
    near = {"rtol": 0.0, "atol": 1e-6 if form == "packed" else float(plain.abs().max() / 250)}
    assert weight.shape == (30, 20) and weight.dtype == torch.float32 and weight.device.type == "cpu"
    assert not weight.requires_grad
    torch.testing.assert_close(weight + 0, plain, **near)  # what no one foresaw is done with the plain matrix
    tokens = torch.tensor([[3, 0], [29, 3]])
    torch.testing.assert_close(F.embedding(tokens, weight), plain[tokens], **near)
    x = random_matrix(6, 20, 7).view(2, 3, 20)
    assert torch.equal(F.linear(x, weight[5:11]), F.linear(x, weight)[..., 5:11])
    assert F.linear(x[:0], weight).shape == (0, 3, 30)


def test_a_row_of_zeros() -> None:
    weight = random_matrix(5, 8)
    weight[2] = 0.0
    x = torch.zeros(1, 8)
    assert torch.equal(F.linear(x, make_weight(weight, "int8")), torch.zeros(1, 5))
    assert F.linear(random_matrix(1, 8), make_weight(weight, "int8"))[0, 2] == 0.0


def test_packed_products_are_those_of_the_plain_matrix() -> None:
    for rows in (1, 3, 40):
        x, weight, bias = random_matrix(rows, 48, 1), random_matrix(70, 48, 2), random_matrix(1, 70, 3)[0]
        got = F.linear(x, make_weight(weight, "packed"), bias)
        torch.testing.assert_close(got, F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", some(CONFIGS, 2))
@pytest.mark.parametrize("form", some(["int8", "packed", "int8-groups", "int4"], 4))
def test_models_decode_with_them(kind: str, form: Any) -> None:
    """Any batch gives what a sentence alone gives; the logits are near those of the plain model."""
    plain = make(kind)
    model = pack_weights(copy.deepcopy(plain), form)
    draw = torch.Generator().manual_seed(3)
    texts = [torch.randint(4, 50, (n,), generator=draw).tolist() for n in (3, 9, 5, 7, 2, 6)]
    for search in (Greedy(), Beam(3)):

        def found(some: list[list[int]], search: Any = search) -> list[list[int]]:
            source, prefixes = (None, some) if kind == "transformer-lm" else (some, None)
            best = generate_tokens(model, source, search=search, prefixes=prefixes, max_tokens=8)
            return [hypotheses[0].tokens for hypotheses in best]

        assert found(texts) == [found([text])[0] for text in texts]
    tokens = torch.tensor([texts[1]])
    with torch.inference_mode():
        ours, theirs = (one(tokens) if kind == "transformer-lm" else one(tokens, tokens) for one in (model, plain))
    error = float((ours - theirs).norm() / theirs.norm())
    assert error < 1e-5 if form == "packed" else 1e-4 < error < (0.3 if form == "int4" else 0.1)


def test_what_is_shared_stays_one() -> None:
    model: Any = pack_weights(make("transformer"), "int8")
    assert model.source.embedding.weight is model.target.embedding.weight
    kinds = {name: type(weight) for name, weight in model.named_parameters() if weight.dim() == 2}
    assert set(kinds.values()) == {Int8Weight} and len(kinds) == 1 + 2 * 4 + 2 * 6
    assert isinstance(make_weight(torch.eye(2), "packed"), PackedWeight)


@pytest.fixture
def no_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weight, "compiled", lambda: None)


def test_what_is_rounded_by_dtype() -> None:
    """int8 means groups for language models, whose activations have outliers; int4 has 8 bits outside of blocks."""
    models = {kind: make(kind) for kind in CONFIGS}
    forms = {kind: form_of_dtype(model, "int8") for kind, model in models.items()}
    assert forms == {"transformer": "int8", "rnn-attention": "int8", "transformer-lm": "int8-groups"}
    assert {form_of_dtype(model, "int4") for model in models.values()} == {"int4"}
    model: Any = pack_weights(models["transformer-lm"], "int4")
    weights: dict[str, Any] = {name: each for name, each in model.named_parameters() if each.dim() == 2}
    assert {name: weight.bits for name, weight in weights.items()} == {
        name: 4 if name.startswith("decoder.blocks.") else 8 for name in weights
    }
    assert model.c_decoder is not None


def test_without_a_compiler_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = random_matrix(7, 50, 1), random_matrix(9, 50, 2), random_matrix(1, 9, 3)[0]
    forms: tuple[Any, ...] = ("int8", "packed", "int8-groups", "int4")
    want = [F.linear(x, make_weight(weight, form), bias) for form in forms]
    monkeypatch.setattr(packed_weight, "compiled", lambda: None)
    for form, one in zip(forms, want, strict=True):
        torch.testing.assert_close(F.linear(x, make_weight(weight, form), bias), one, rtol=1e-5, atol=1e-5)


def test_room_for_numbers_is_made_without_reading_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache takes its dtype from a weight: that must not make a plain matrix each time."""
    weight = make_weight(random_matrix(4, 6), "int8")
    monkeypatch.setattr(Int8Weight, "plain", None)  # it would fail
    for made in (weight.new_zeros(2, 3), weight.new_empty((2, 3)), weight.new_full((2, 3), 1.0)):
        assert made.shape == (2, 3) and made.dtype is torch.float32 and type(made) is Tensor


def test_without_the_kernel_the_numbers_are_the_same(no_c: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absent or wrong: one warning, and the plain way."""
    x, weight = random_matrix(4, 64, 1), make_weight(random_matrix(9, 64, 2), "int8")
    want = F.linear(x, weight)

    def absent(*_: object) -> Tensor:
        raise RuntimeError("no such kernel\nsecond line")

    for broken in (absent, lambda a, b: torch._int_mm(a, b) + 1):
        packed_weight.int_kernel.cache_clear()
        monkeypatch.setattr(packed_weight, "_int_product", broken)
        with pytest.warns(UserWarning, match="cannot be used here"):
            torch.testing.assert_close(F.linear(x, weight), want, rtol=1e-6, atol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            F.linear(x, weight)
    packed_weight.int_kernel.cache_clear()


def test_without_packing_the_products_are_plain(no_c: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a dtype that oneDNN does not know, and where its result is wrong: one warning, and the plain way."""
    x, weight = random_matrix(4, 64, 1), random_matrix(9, 64, 2)
    packed_weight.why_not_pack.cache_clear()
    with pytest.warns(UserWarning, match="weights stay unpacked"):
        got = F.linear(x.double(), make_weight(weight.double(), "packed"))
    assert torch.equal(got, F.linear(x.double(), weight.double()))
    packed_weight.why_not_pack.cache_clear()
    monkeypatch.setattr(packed_weight.torch, "allclose", lambda *args, **kwargs: False)
    with pytest.warns(UserWarning, match="its result is wrong"):
        got = F.linear(x, make_weight(weight, "packed"))
    assert torch.equal(got, F.linear(x, weight))
    packed_weight.why_not_pack.cache_clear()


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="form"):
        pack_weights(nn.Linear(2, 2), "int5")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="for a CPU"):
        pack_weights(nn.Linear(2, 2, device="meta"), "int8")


def test_a_loaded_model_in_int8() -> None:
    plain, rounded = (regard.load("fr-en", dtype=dtype) for dtype in ("float32", "int8"))
    weight = rounded.model.decoder.blocks[0].feed_forward.up.weight
    assert isinstance(weight, Int8Weight)
    before = plain.model.decoder.blocks[0].feed_forward.up.weight.detach().cpu()
    assert torch.equal(weight.numbers, Int8Weight.of(before).numbers)
    assert rounded.translate("Je ne sais pas.").text == plain.translate("Je ne sais pas.").text
