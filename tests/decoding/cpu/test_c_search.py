"""Greedy and beam search in C against the engine, which decodes step by step with plain modules."""

from __future__ import annotations

import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import regard
from regard.attention.multihead import MultiHeadAttention
from regard.decoding.cpu import c_search
from regard.decoding.cpu.module_search import make_c_search
from regard.decoding.cpu.packed_weight import Int8Weight
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.engine import generate_tokens
from regard.decoding.requests import make_requests
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import EachOnce, MinTokens
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Hypothesis, with_rule
from regard.errors import ModelError
from regard.layers.block import Block
from regard.layers.embedding import Embedding
from regard.layers.feedforward import FeedForward
from regard.layers.normalization import LayerNorm
from regard.models.config import TransformerConfig
from regard.models.presets import make_model
from regard.text.tokenizers.special_tokens import END

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")

SIZES: dict[str, Any] = {"layers": 3, "decoder_layers": 2, "dim": 40, "heads": 4, "hidden": 54}
KINDS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"order": "pre", "position": "learned", "scale_embedding": False},
    "rotary": {"order": "pre", "position": "rotary", "activation": "gelu"},
    "modern": {
        "order": "pre",
        "position": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "kv_heads": 2,
        "bias": False,
    },
    "wide": {"dim": 144, "heads": 2, "activation": "gelu-tanh"},  # heads that are wider than a vector
    "untied": {"tie_output": False, "share_embeddings": False, "position": "none"},
    "ssru": {"decoder_self": "ssru", "output_bias": True},
    "imported": {
        "activation": "silu",
        "output_bias": True,
        "norm_eps": 1e-4,
        "position_layout": "halves",
        "position_base": 99.0,
        "position_start": 2,
        "pad_id": 2,
        "unknown_id": 0,
        "barred_ids": (2, 1),
        "tokenizer_size": 50,
    },
}


def make(kind: str, form: Any = None, *, seed: int = 2) -> Any:
    """A model that ends some of its texts."""
    torch.manual_seed(seed)
    settings = {"share_embeddings": True, **SIZES, **KINDS[kind]}
    model = make_model(TransformerConfig(**settings, source_vocabulary=70, target_vocabulary=70)).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:  # biases and norms as training leaves them
            torch.nn.init.normal_(parameter, mean=float("norm" in name and "weight" in name), std=0.3)
        elif "cross" in name or "output" in name:
            with torch.no_grad():
                parameter *= 3
    with torch.no_grad():
        model.output_table[0][END] *= 5  # so that END is often the best token, and often the worst
    return model if form is None else pack_weights(model, form)


def sources(count: int, seed: int = 0) -> list[list[int]]:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (count,), generator=draw).tolist()
    return [[*torch.randint(4, 70, (length,), generator=draw).tolist(), END] for length in lengths]


def limits(texts: list[list[int]]) -> list[int]:
    return [4 + len(text) for text in texts]


def check_same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    assert [[x.tokens for x in texts] for texts in ours] == [[x.tokens for x in texts] for texts in theirs]
    for a, b in zip((x for texts in ours for x in texts), (x for texts in theirs for x in texts), strict=True):
        assert a.finished == b.finished and a.logps == pytest.approx(b.logps, abs=1e-4)
        assert (a.score, a.ranking) == pytest.approx((b.score, b.ranking), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("search", "alternatives"),
    [(Greedy(), 1), (Beam(3), 2), (Beam(4, length_penalty=0.0, patience=None), 4), (Beam(1, length_penalty=0.6), 1)],
    ids=str,
)
def test_hypotheses_are_those_of_the_engine(kind: str, search: Any, alternatives: int) -> None:
    """Texts, log-probabilities and rankings, of short and long sources; some texts end, and some reach their limit."""
    plain, packed = make(kind), make(kind, "packed")
    texts = sources(9)
    given: dict[str, Any] = {"search": search, "alternatives": alternatives, "max_tokens": limits(texts)}
    ours, theirs = (generate_tokens(model, texts, **given) for model in (packed, plain))
    assert packed.c_search.statistics.steps > 0
    check_same(ours, theirs)


@pytest.mark.parametrize("form", ["packed", "int8"])
def test_batches_and_threads_do_not_matter(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, together, in batches of two rows, and on two threads, to the last bit."""
    model, texts = make("rotary", form), sources(13)
    given: dict[str, Any] = {"search": Beam(3), "alternatives": 3}
    together = generate_tokens(model, texts, **given, max_tokens=limits(texts))
    alone = [generate_tokens(model, [text], **given, max_tokens=limits([text]))[0] for text in texts]
    assert together == alone
    monkeypatch.setattr(c_search, "usable_threads", lambda: 2)
    assert generate_tokens(model, texts, **given, max_tokens=limits(texts)) == alone
    monkeypatch.setattr(c_search, "SHARED_BYTES", 0)  # both threads share the steps of one text
    assert [generate_tokens(model, [text], **given, max_tokens=limits([text]))[0] for text in texts] == alone
    monkeypatch.setattr(c_search, "MAX_ROWS", 2)
    assert generate_tokens(model, texts, **given, max_tokens=limits(texts)) == alone
    monkeypatch.setattr(c_search, "CALL_MILLISECONDS", 0)  # C returns after each step
    assert generate_tokens(model, texts, **given, max_tokens=limits(texts)) == alone


@pytest.mark.parametrize("search", [Greedy(), Beam(3)], ids=str)
def test_prefixes_and_placeholders(search: Any) -> None:
    """A rule of its own for each input, which C applies as logit_rules.py does."""
    plain, packed, texts = make("modern"), make("modern", "packed"), sources(8)
    rules = [None, EachOnce((7,)), EachOnce((7, 9), (8, 1)), EachOnce((), (5, 6))] * 2
    prefixes = [[11, 12]] * 4 + [[7, 9]] * 4
    given: dict[str, Any] = {"prefixes": prefixes, "max_tokens": 7}
    ours = generate_tokens(packed, texts, **given, search=search, rules=rules)
    assert packed.c_search.statistics.steps > 0
    theirs = [
        generate_tokens(
            plain,
            [text],
            prefixes=[prefix],
            max_tokens=7,
            search=search if rule is None else with_rule(search, rule),
        )[0]
        for text, rule, prefix in zip(texts, rules, prefixes, strict=True)
    ]
    check_same(ours, theirs)
    check_same(generate_tokens(plain, texts, **given, search=search, rules=rules), theirs)


def reason(model: Any, search: Any = Greedy(), **request: Any) -> str | None:  # noqa: B008  # it is frozen
    requests = make_requests([[5, 6, END]], None, 4)
    return c_search.why_not(model, search, [requests[0]._replace(**request)])


def test_what_c_leaves_to_the_engine() -> None:
    model = make("paper", "packed")
    assert reason(model) is None
    assert "not packed" in (reason(make("paper")) or "")
    assert "Sample" in (reason(model, Sample()) or "")
    assert "MinTokens" in (reason(model, Greedy(rules=(MinTokens(2),))) or "")
    assert "MinTokens" in (reason(model, rule=MinTokens(2)) or "")
    assert "vocabulary" in (reason(model, source=[70, END]) or "")
    assert "padding" in (reason(model, source=[0, END]) or "")
    learned = make_model(
        TransformerConfig(**SIZES, position="learned", max_length=4, source_vocabulary=70, target_vocabulary=70)
    )
    assert "learned positions" in (reason(pack_weights(learned, "packed"), source=[5] * 9) or "")


@pytest.mark.parametrize("owner", [MultiHeadAttention, Block, FeedForward, LayerNorm, Embedding])
def test_a_model_with_an_invented_trait_is_left_to_the_engine(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, requests = make("paper", "packed"), make_requests(sources(2), None, 8)
    assert c_search.why_not(model, Greedy(), requests) is None
    plain = owner.traits
    monkeypatch.setattr(owner, "traits", property(lambda module: plain.fget(module) | {"invented"}))
    assert make_c_search(model) is None  # as `pack_weights` asks
    model = make("paper", "packed")
    assert c_search.why_not(model, Greedy(), requests) is not None


def test_it_notices_changes_of_the_model() -> None:
    """Hooks and new modules are not ignored, and new numbers count at once."""
    model, texts = make("paper", "packed"), sources(2)
    before = generate_tokens(model, texts, max_tokens=6)
    with regard.record(model) as recording:
        assert "hooks" in (reason(model) or "")
        generate_tokens(model, texts, max_tokens=6)
    assert recording.steps("decoder.0.self") and reason(model) is None
    model.encoder.blocks[0].self_norm.eps = 10.0
    assert generate_tokens(model, texts, max_tokens=6) != before
    model.decoder.blocks[0].feed_forward.activation = "new"
    assert "activation new" in (reason(model) or "")


@pytest.mark.parametrize("part", ["encoder", "decoder"])
@pytest.mark.parametrize("form", ["packed", "int8"])
def test_weights_that_overflow_are_refused(form: Any, part: str) -> None:
    model = make("pre-norm")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith(part) and weight.dim() == 2:
                weight.mul_(1e38 / weight.abs().max())
    for search in (Greedy(), Beam(2)):
        with pytest.raises(ModelError, match="NaN or infinity"):
            generate_tokens(pack_weights(model, form), sources(2), search=search, max_tokens=3)


@pytest.mark.parametrize("kind", ["paper", "modern"])
def test_float_weights_that_are_integers_times_scales(kind: str) -> None:
    """As in a folder that stores int8: C multiplies integers, and the scores are those of the plain modules."""
    model, texts = make(kind), sources(8)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.copy_(Int8Weight.of(parameter).plain())
    want = generate_tokens(model, texts, search=Beam(3), max_tokens=limits(texts))
    found = generate_tokens(pack_weights(model, "packed"), texts, search=Beam(3), max_tokens=limits(texts))
    for (ours,), (theirs,) in zip(found, want, strict=True):
        assert ours.tokens == theirs.tokens and ours.logps == pytest.approx(theirs.logps, rel=1e-5, abs=1e-5)


def test_many_threads_use_one_model() -> None:
    model, texts = make("paper", "int8"), sources(10)
    alone = [generate_tokens(model, [text], search=Beam(3), max_tokens=8) for text in texts]
    with ThreadPoolExecutor(10) as pool:
        for _ in range(3):
            found = pool.map(lambda text: generate_tokens(model, [text], search=Beam(3), max_tokens=8), texts)
            assert [*found] == alone


@pytest.mark.parametrize("form", ["packed", "int8"])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9, 1.0])
def test_sparse_rows(form: Any, zeros: float) -> None:
    """The hidden layer has this share of zeros; sparse and usual products give the same."""
    model = make("paper")
    with torch.no_grad():
        for block in (*model.encoder.blocks, *model.decoder.blocks):
            bias = block.feed_forward.up.bias
            bias.copy_(torch.where(torch.rand(len(bias)) < zeros, -1e3, 1e-3))
    texts = sources(5)
    packed = pack_weights(model, form)
    ours = generate_tokens(packed, texts, search=Beam(2), max_tokens=6)
    packed.c_search = None
    packed.c_decoder = None
    theirs = generate_tokens(packed, texts, search=Beam(2), max_tokens=6)
    for a, b in zip(ours, theirs, strict=True):
        if form == "packed":
            assert a[0].tokens == b[0].tokens
        assert math.isfinite(a[0].score)
        close = 1e-3 if form == "packed" else 0.3  # in int8 a number between two may be rounded the other way
        assert a[0].tokens != b[0].tokens or a[0].score == pytest.approx(b[0].score, abs=close)
