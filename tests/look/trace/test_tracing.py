"""Traces of every kind of model and every way of decoding, held against the model's own forward pass and searches."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import regard
from regard.api.embedder import Embedder
from regard.api.ensemble import join_translators
from regard.api.translator import Translator
from regard.api.writer import Writer
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens, NoRepeat
from regard.decoding.searches.minimum_risk import MinimumRisk
from regard.decoding.searches.sample import Sample
from regard.errors import DataError, UsageError
from regard.look.pictures.traces import plot_trace
from regard.look.trace.from_weights import group_layers, trace_maps
from regard.look.trace.trace import Axis, Token, Trace
from regard.look.trace.tracing import trace_text
from regard.look.trace.words import merge_words
from regard.models.config import (
    Config,
    EncoderConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    TransformerConfig,
    TransformerLMConfig,
)
from regard.models.presets import make_model
from regard.text.tokenizers.special_tokens import END, START, UNKNOWN
from regard.text.tokenizers.subwords import SubwordTokenizer, train_subwords

LINES = [
    "le chat noir dort dans la maison",
    "la petite fille mange une pomme rouge",
    "the black cat sleeps in the house",
    "the little girl eats a red apple",
]
TEXT = "le chat mange une pomme"
STACK: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 2, "hidden": 24, "dropout": 0.3}
CELL: dict[str, Any] = {"embedding": 12, "hidden": 16, "dropout": 0.3}
MODERN: dict[str, Any] = {"order": "pre", "norm": "rms", "position": "rotary", "kv_heads": 1, "decoder_layers": 1}
SEARCHES = [Greedy(), Sample(temperature=1.3, top_k=20, seed=4), Beam(3), Beam(4, length_penalty=0.0)]


@cache
def tokenizer() -> SubwordTokenizer:
    return train_subwords(LINES, size=None, kind="unigram", lossless=False)


def config_of(kind: str) -> Config:
    size = tokenizer().size
    sides = {"source_vocabulary": size, "target_vocabulary": size}
    return {
        "transformer": lambda: TransformerConfig(**STACK, **sides),
        "modern": lambda: TransformerConfig(**STACK, **MODERN, **sides),
        "learned": lambda: TransformerConfig(**STACK, **sides, position="learned", max_length=24),
        "bahdanau": lambda: RecurrentTranslatorConfig(**CELL, **sides),
        "luong": lambda: RecurrentTranslatorConfig(**CELL, **sides, attention="bilinear", style="luong"),
        "sutskever": lambda: RecurrentTranslatorConfig(**CELL, **sides, attention="none"),
        "transformer-lm": lambda: TransformerLMConfig(**STACK, vocabulary=size),
        "rnn-lm": lambda: RecurrentLMConfig(**CELL, vocabulary=size),
        "encoder": lambda: EncoderConfig(**STACK, vocabulary=size, pooling="learned"),
        "learned encoder": lambda: EncoderConfig(**STACK, vocabulary=size, position="learned", max_length=24),
    }[kind]()


def face_of(kind: str, dtype: torch.dtype = torch.float64, **info: Any) -> Any:
    """A model with loud weights, so that its choices are clear ones, behind its face."""
    torch.manual_seed(3)
    model = make_model(config_of(kind))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    model = model.to(dtype).eval()
    if kind.endswith("encoder"):
        return Embedder(model, tokenizer(), info=info)
    if kind.endswith("lm"):
        return Writer(model, tokenizer(), info=info)
    return Translator(model, tokenizer(), tokenizer(), info=info)


TRANSLATORS = ["transformer", "modern", "bahdanau", "luong", "sutskever"]
WRITERS = ["transformer-lm", "rnn-lm"]
MAPS = {
    "transformer": {"enc_self": (2, 2), "dec_self": (2, 2), "cross": (2, 2)},
    "modern": {"enc_self": (2, 2), "dec_self": (1, 2), "cross": (1, 2)},
    "bahdanau": {"rnn": (1, 1)},
    "luong": {"rnn": (1, 1)},
    "sutskever": {},
    "transformer-lm": {"dec_self": (2, 2)},
    "rnn-lm": {},
}


@torch.no_grad()
def logps_of(face: Any, trace: Trace, ids: list[int]) -> torch.Tensor:
    """log p of each token (m, V) by the model's plain forward pass."""
    target = torch.tensor([[START, *ids[:-1]]])
    source = () if trace.source is None else (torch.tensor([face.read(trace.source).ids]),)
    return face.model(*source, target)[0].log_softmax(-1)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: type(search).__name__)
@pytest.mark.parametrize("kind", [*TRANSLATORS, *WRITERS])
def test_every_model_and_search(kind: str, search: Any) -> None:
    face = face_of(kind)
    face.model.train()  # as it may be between two steps of a training
    trace = trace_text(face, TEXT, search=search, max_tokens=9, top=5)
    assert face.model.training
    face.model.eval()
    ids = [step.chosen for step in trace.steps]
    prompt = [] if kind in TRANSLATORS else face.tokenizer.encode(TEXT)
    source = face.read(TEXT).ids if kind in TRANSLATORS else None

    ((found,),) = generate_tokens(
        face.model,
        None if source is None else [source],
        search=search,
        prefixes=None if source is not None else [[START, *prompt]],
        max_tokens=9,
    )
    assert ids == [*prompt, *found.tokens]
    assert [step.given for step in trace.steps] == [True] * len(prompt) + [False] * len(found.tokens)

    sides = {"source": source, "target": ids, "read": [START, *ids[:-1]]}
    for name, tokens in sides.items():
        if tokens is not None:
            assert [token.text for token in trace.axes[name].tokens] == tokenizer().pieces(tokens)
    assert {name: one.weights.shape[:2] for name, one in trace.maps.items()} == MAPS[kind]
    assert bool(trace.notes) == (not MAPS[kind])

    for step, logps in zip(trace.steps, logps_of(face, trace, ids), strict=True):
        assert [one.token for one in step.candidates[:5]] == logps.topk(5).indices.tolist()
        for one in step.candidates:
            assert one.logp == pytest.approx(logps[one.token].item(), abs=1e-9)
        assert math.fsum(math.exp(one.logp) for one in step.candidates) + step.rest == pytest.approx(1, abs=1e-12)
        assert step.entropy == pytest.approx(-(logps.exp() * logps).sum().item(), abs=1e-9)
    assert (trace.tree is not None) == isinstance(search, Beam)
    assert all((step.draw is not None) == (isinstance(search, Sample) and not step.given) for step in trace.steps)
    assert Trace.from_dict(json.loads(json.dumps(trace.to_dict()))).to_dict() == trace.to_dict()


@pytest.mark.parametrize("kind", ["transformer", "modern", "bahdanau", "transformer-lm"])
def test_maps_are_those_of_a_recorded_pass(kind: str) -> None:
    face = face_of(kind)
    trace = trace_text(face, TEXT, search=Greedy(), max_tokens=6)
    ids = torch.tensor([[START, *[step.chosen for step in trace.steps][:-1]]])
    source = () if trace.source is None else (torch.tensor([face.read(TEXT).ids]),)
    with torch.no_grad(), regard.record(face.model) as layers:
        face.model(*source, ids)
    ends = {"enc_self": "self", "dec_self": "self", "cross": "cross", "rnn": "cross"}
    for name, one in trace.maps.items():
        side = "encoder" if name == "enc_self" else "decoder"
        want = [w[0] for layer, w in layers.items() if layer.startswith(side) and layer.endswith(ends[name])]
        np.testing.assert_allclose(one.weights, torch.stack(want).numpy(), atol=1e-7)
        assert (one.mask is not None) == (name == "dec_self")
    assert (
        trace_maps(
            layers,
            source=[token.text for token in trace.axes.get("source", Axis(())).tokens],
            target=["x"] * ids.shape[1],
        ).maps.keys()
        == trace.maps.keys()
    )


@pytest.mark.parametrize("kind", ["transformer", "bahdanau", "rnn-lm"])
@pytest.mark.parametrize(("penalty", "ends"), [(0.0, 15.0), (0.7, 15.0), (1.0, 15.0), (1.0, -15.0)])
def test_the_tree_holds_the_text_that_was_found(kind: str, penalty: float, ends: float) -> None:
    face = face_of(kind)
    more = ends * torch.nn.functional.one_hot(torch.tensor(END), tokenizer().size)
    project = face.model.project
    face.model.project = lambda hidden: project(hidden) + more  # so that texts end, or do not
    search = Beam(3, length_penalty=penalty, rules=(MinTokens(3),))
    trace = trace_text(face, TEXT, search=search, max_tokens=8)
    tree, given = trace.tree, sum(step.given for step in trace.steps)
    assert tree is not None
    source = None if trace.source is None else [face.read(TEXT).ids]
    prefixes = None if source is not None else [[START, *face.tokenizer.encode(TEXT)]]
    ((found,),) = generate_tokens(face.model, source, search=search, prefixes=prefixes, max_tokens=8)
    path = [tree.nodes[i] for i in tree.path(tree.best)]
    assert [node.token for node in path] == found.tokens == [step.chosen for step in trace.steps][given:]
    assert [node.logp for node in path] == pytest.approx(found.logps)
    assert path[-1].sum == pytest.approx(found.score) == pytest.approx(math.fsum(node.logp for node in path))
    assert path[-1].score == pytest.approx(found.ranking)
    assert found.finished == (ends > 0) and path[-1].state == ("done" if found.finished else "kept")
    assert all(node.state == "kept" for node in path[:-1])
    if found.finished:  # of all that ended it is the best
        assert path[-1].score == max(node.score for node in tree.nodes if node.state == "done")
    depths = [len(tree.path(i)) for i in range(len(tree.nodes))]
    kept = [depth for depth, node in zip(depths, tree.nodes, strict=True) if node.state == "kept"]
    assert all(kept.count(depth) == 3 for depth in range(1, max(depths) + 1))


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.5, 3.0),
    top_p=st.one_of(st.none(), st.floats(0.2, 1.0)),
    kind=st.sampled_from(["bahdanau", "rnn-lm"]),
)
def test_the_draw_falls_into_the_part_of_the_chosen_token(
    seed: int, temperature: float, top_p: float | None, kind: str
) -> None:
    face = face_of(kind)
    search = Sample(temperature=temperature, top_p=top_p, seed=seed)
    trace = trace_text(face, TEXT, search=search, max_tokens=5, top=tokenizer().size)
    ids = [step.chosen for step in trace.steps]
    for step, logps in zip(trace.steps, logps_of(face, trace, ids), strict=True):
        if step.given:
            continue
        parts = {one.token: (one.low, one.high) for one in step.candidates}
        low, high = parts[step.chosen]
        assert low <= step.draw < high
        logps[[0, 2]] = -torch.inf
        want = search.probabilities(logps[None])[0]
        assert [parts[token][1] - parts[token][0] for token in range(len(want))] == pytest.approx(
            want.tolist(), abs=1e-9
        )
        assert sorted(parts.values())[0][0] == 0 and max(parts.values())[1] == 1  # the line is full,
        ordered = [parts[token] for token in range(len(want))]
        assert all(one[1] == other[0] for one, other in pairwise(ordered))  # without gaps


@pytest.mark.parametrize("kind", ["transformer", "luong", "transformer-lm", "rnn-lm"])
def test_led_along_a_text(kind: str) -> None:
    face = face_of(kind)
    trace = trace_text(face, TEXT, target="the cat eats")
    want = face.score(TEXT, "the cat eats") if kind in TRANSLATORS else face.score(f"{TEXT} the cat eats")
    assert [token.text for token in trace.axes["target"].tokens] == want.tokens
    taken = [one.logp for step in trace.steps for one in step.candidates if one.token == step.chosen]
    assert taken == pytest.approx(want.logps, abs=1e-9)
    assert all(step.given and step.draw is None for step in trace.steps) and trace.tree is None
    assert trace.search == {"name": "forced"}


@pytest.mark.parametrize("search", [None, Greedy(), Sample(seed=5), MinimumRisk(4), Beam(3, rules=(NoRepeat(1),))])
def test_the_output_is_the_translation(search: Any) -> None:
    """All of it: as long as the translator lets it get, as float32, with what the translator searches with itself."""
    face = face_of("transformer", torch.float32)
    trace = trace_text(face, TEXT, search=search)
    found = face.translate(TEXT, search=search, guard=False)
    assert [step.chosen for step in trace.steps] == found.ids
    if "<unk>" not in trace.output:  # in whose place a translation has a word of the source
        assert trace.output == found.text
    np.testing.assert_allclose(trace.maps["cross"].weights, found.attention.cross.numpy(), atol=1e-6)
    assert trace.search["name"] == ("beam" if search is None else type(search).__name__.lower())


@pytest.mark.parametrize("kind", TRANSLATORS[:3])
def test_words_of_a_trace_are_those_of_the_alignment(kind: str) -> None:
    face = face_of(kind, alignment={"layer": "decoder.cross" if kind == "bahdanau" else "decoder.0.cross", "head": 0})
    trace = merge_words(trace_text(face, TEXT, target="the black cat"))
    want = face.align(TEXT, "the black cat")
    one = trace.maps["rnn" if kind == "bahdanau" else "cross"]
    assert trace.best_head is not None
    np.testing.assert_allclose(
        one.weights[trace.best_head.layer, trace.best_head.head], want.weights.numpy(), atol=1e-6
    )
    assert trace.alignment is not None
    np.testing.assert_allclose(trace.alignment.weights[0, 0], want.weights.numpy(), atol=1e-6)
    assert [token.text for token in trace.axes["target"].tokens] == want.target
    assert [token.text for token in trace.axes["source"].tokens] == want.source
    if kind != "bahdanau":
        assert trace.maps["dec_self"].mask is not None  # and weights beyond it are 0, or the map would not be


def test_a_trace_has_the_alignment_by_several_heads() -> None:
    heads = [{"layer": "decoder.0.cross", "head": 1, "shifted": True}, {"layer": "decoder.1.cross", "head": 0}]
    face = face_of(TRANSLATORS[0], alignment={"layer": "decoder.0.cross", "head": 1, "heads": heads})
    trace = trace_text(face, TEXT, target="the black cat")
    want = face.align(TEXT, "the black cat")
    again = merge_words(Trace.from_dict(trace.to_dict()))
    assert again.alignment is not None
    np.testing.assert_allclose(again.alignment.weights[0, 0], want.weights.numpy(), atol=1e-6)
    figure = plot_trace(trace)
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), want.weights.numpy(), atol=1e-6)


def test_words_of_rounded_weights_sum_to_one() -> None:
    """A large map is read back as float16; its words are a small one, in which rows must sum to one closely."""
    face = face_of("modern")
    trace = trace_text(face, " ".join(LINES), target=" ".join(LINES))
    again = Trace.from_dict(trace.to_dict())
    assert again.maps["cross"].weights.dtype == np.float16
    merged, exact = merge_words(again), merge_words(trace)
    np.testing.assert_allclose(merged.maps["cross"].weights, exact.maps["cross"].weights, atol=1e-3)
    assert len(merged.axes["source"]) == len(" ".join(LINES).split()) + 1


def test_prefixes_as_text_and_as_tokens() -> None:
    face = face_of("transformer")
    tokens = tokenizer().encode("the cat")
    by_text = trace_text(face, TEXT, search=Greedy(), prefix="the cat", max_tokens=4)
    assert by_text.to_dict() == trace_text(face, TEXT, search=Greedy(), prefix=tokens, max_tokens=4).to_dict()
    assert [step.chosen for step in by_text.steps][: len(tokens)] == tokens
    assert [step.given for step in by_text.steps].count(True) == len(tokens) < len(by_text.steps)


def test_an_encoder_is_only_looked_at() -> None:
    face = face_of("encoder")
    trace = trace_text(face, TEXT, name="ours")
    assert trace.maps.keys() == {"enc_self"} and not trace.steps and "no text" in trace.notes[0]
    n = len(tokenizer().encode(TEXT)) + 1
    assert trace.maps["enc_self"].weights.shape == (2, 2, n, n)
    assert trace.model.name == "ours" and trace.axes["source"].tokens[-1] == Token("</s>", special=True)


def test_an_ensemble_shows_its_first_model() -> None:
    first, second = face_of("transformer"), face_of("bahdanau")
    both = join_translators([first, second])
    trace = trace_text(both, TEXT, target="the cat")
    alone = trace_text(first, TEXT, target="the cat")
    assert np.array_equal(trace.maps["cross"].weights, alone.maps["cross"].weights)
    want = both.score(TEXT, "the cat").logps
    taken = [one.logp for step in trace.steps for one in step.candidates if one.token == step.chosen]
    assert taken == pytest.approx(want) and "ensemble" in trace.notes[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    """Rows of rounded weights are scaled to sum to one, so that they pass the check of a trace."""
    trace = trace_text(face_of("transformer", dtype), TEXT, search=Greedy(), max_tokens=4)
    np.testing.assert_allclose(trace.maps["cross"].weights.sum(-1), 1, atol=1e-6)


def test_model_is_described() -> None:
    model = trace_text(face_of("modern"), TEXT, target="a").model
    assert (model.kind, model.layers, model.heads) == ("transformer", {"encoder": 2, "decoder": 1}, 2)
    assert (model.widths, model.score) == ({"model": 16, "head": 8, "hidden": 24}, "scaled")
    assert model.scale == pytest.approx(8**-0.5)
    assert trace_text(face_of("luong"), TEXT, target="a").model.score == "bilinear"
    assert trace_text(face_of("sutskever"), TEXT, target="a").model.heads == 0


@pytest.mark.parametrize(
    ("kind", "given", "error", "message"),
    [
        ("transformer", {"text": " "}, DataError, "nothing to translate"),
        ("transformer", {"search": Greedy(), "target": "a"}, UsageError, "with a target there is no search"),
        ("transformer", {"max_tokens": 5, "target": "a"}, UsageError, "leave out search and max_tokens"),
        ("encoder", {"search": Greedy()}, UsageError, "this model generates no text"),
        ("encoder", {"prefix": "a"}, UsageError, "this model generates no text"),
        ("learned encoder", {"text": TEXT * 4}, DataError, "the model has only 24 positions"),
        ("transformer", {"top": 0}, UsageError, "top must be at least 1, got 0"),
        ("transformer", {"max_tokens": 0}, UsageError, "max_tokens must be at least 1, got 0"),
        ("transformer", {"prefix": [10**6]}, UsageError, "the prefix contains token 1000000"),
        ("transformer-lm", {"target": ""}, UsageError, "the target is empty"),
        ("learned", {"target": TEXT * 4}, DataError, "the model has only 24 positions"),
        ("learned", {"prefix": TEXT * 4}, DataError, "prompt or prefix has"),
    ],
)
def test_what_cannot_be_traced(kind: str, given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        trace_text(face_of(kind), **{"text": "le chat", **given})


def test_a_writer_stays_in_its_context() -> None:
    face = face_of("transformer-lm", context=12)
    trace = trace_text(face, "le chat", search=Greedy())
    assert len(trace.steps) <= 11
    with pytest.raises(DataError, match="the model has only 11 positions"):
        trace_text(face, TEXT * 3)


def recorded(rows: int = 2, m: int = 3, n: int = 4) -> dict[str, torch.Tensor]:
    """Weights as a model would give them: two layers of three heads, two texts, the last key of each padding."""
    torch.manual_seed(0)
    bar = torch.tensor([0.0] * (n - 1) + [-torch.inf])
    ahead = torch.full((m, m), -torch.inf).triu(1)
    layers = {f"encoder.{i}.self": (torch.randn(rows, 3, n, n) + bar).softmax(-1) for i in range(2)}
    layers |= {f"decoder.{i}.self": (torch.randn(rows, 3, m, m) + ahead).softmax(-1) for i in range(2)}
    return layers | {f"decoder.{i}.cross": (torch.randn(rows, 3, m, n) + bar).softmax(-1) for i in range(2)}


def test_recorded_maps() -> None:
    layers = recorded()
    source = Axis((*map(Token, "abc"), Token("<pad>", special=True, pad=True)))
    trace = trace_maps(layers, source=source, target="xyz", row=1, name="theirs")
    assert trace.model.layers == {"encoder": 2, "decoder": 2} and trace.model.name == "theirs"
    np.testing.assert_array_equal(trace.maps["cross"].weights[1], layers["decoder.1.cross"][1].numpy())
    assert trace.maps["cross"].mask.tolist() == [[True, True, True, False]] * 3
    assert trace.maps["dec_self"].mask.tolist() == np.tri(3, dtype=bool).tolist()
    assert Trace.from_dict(trace.to_dict()).to_dict() == trace.to_dict()
    assert trace_maps(layers, source="abcd", target="xyz").maps["cross"].mask is None


def test_a_decoder_that_had_read_before() -> None:
    """Two queries and four keys: the last query sees every key, the one before it all but the last."""
    weights = (torch.randn(1, 2, 2, 4) + torch.tensor([[0, 0, 0, -torch.inf], [0.0] * 4])).softmax(-1)
    one = trace_maps({"decoder.0.self": weights}, target="yz", read="wxyz").maps["dec_self"]
    assert (one.query, one.key) == ("target", "read")
    assert one.mask.tolist() == [[True, True, True, False], [True] * 4]


def test_torchs_own_layer_as_a_trace() -> None:
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 5, 8)
    _, weights = layer(x, x, x, average_attn_weights=False)
    trace = trace_maps({"layer": weights}, source="hello")
    np.testing.assert_allclose(trace.maps["enc_self"].weights[0], weights[0].detach().numpy())


@pytest.mark.parametrize(
    ("change", "given", "error", "message"),
    [
        (
            lambda layers: layers,
            {"target": "xyz"},
            UsageError,
            "the weights of enc_self need their tokens: pass source=",
        ),
        (
            lambda layers: layers,
            {"source": "abcd"},
            UsageError,
            "the weights of dec_self need their tokens: pass target=",
        ),
        (lambda layers: layers, {"source": "abc", "target": "xyz"}, DataError, "does not fit the 3 tokens of source"),
        (lambda layers: layers, {"source": "abcd", "target": "xyz", "row": 2}, UsageError, "0 to 1, got 2"),
        (lambda layers: {}, {"source": "abcd"}, UsageError, "no weights were recorded"),
        (
            lambda layers: {"a": layers["encoder.0.self"][0]},
            {"source": "abcd"},
            UsageError,
            r"'a' must be \(B, H, m, n\)",
        ),
        (
            lambda layers: {**layers, "encoder.1.self": layers["encoder.1.self"][:, :2]},
            {"source": "abcd", "target": "xyz"},
            DataError,
            "the layers of enc_self must have weights of one shape",
        ),
    ],
)
def test_recorded_maps_that_do_not_fit(
    change: Callable[[Any], Any], given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        trace_maps(change(recorded()), **given)


def test_names_of_layers() -> None:
    one = torch.ones(1, 1, 1)
    names = ["decoder.0.self", "decoder.1.self", "decoder.1.cross", "encoder.0.self", "decoder.cross", "attention"]
    assert {kind: len(each) for kind, each in group_layers(dict.fromkeys(names, one)).items()} == {
        "dec_self": 2,
        "cross": 1,
        "enc_self": 2,
        "rnn": 1,
    }


def test_the_end_is_among_the_steps() -> None:
    """Row i of a map is the distribution used when token i was produced, and the last one is the end."""
    trace = trace_text(face_of("transformer"), TEXT, target="the cat")
    assert trace.steps[-1].chosen == END and trace.axes["target"].tokens[-1].special
    assert trace.axes["read"].tokens[0] == Token("<s>", special=True)
    assert trace.axes["read"].tokens[1:] == trace.axes["target"].tokens[:-1]


def test_names_that_were_copied_stand_where_the_model_wrote_unknown() -> None:
    face = face_of("transformer")
    ids = [*face.target_tokenizer.encode("the cat"), UNKNOWN, END]
    trace = trace_text(face, TEXT, target=ids)
    output, words = face.name_words(face.read(TEXT), ids)
    copied = words[-1].text
    assert trace.output == output and output.endswith(copied) and copied in TEXT.split()
    assert trace.axes["target"].tokens[-2] == Token("<unk>", len(words) - 1)
    for axis, last in (("target", -2), ("read", -1)):
        assert trace.axes[axis].words[-1] == copied and trace.axes[axis].tokens[last].text == "<unk>"
    merged = [token.text for token in merge_words(trace).axes["target"].tokens]
    assert merged == [*(word.text for word in words), "</s>"]


@pytest.mark.parametrize("text", ["", "   ", " \n", "\t"])
def test_a_text_without_a_word_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="the text has no words"):
        trace_text(face_of("transformer"), text)


def test_tokens_as_a_target_are_taken_as_they_are() -> None:
    face = face_of("transformer")
    ids = face.target_tokenizer.encode("the black cat")
    assert [step.chosen for step in trace_text(face, TEXT, target=ids).steps] == ids  # not even an end token
    with pytest.raises(UsageError, match="the target contains token 9999"):
        trace_text(face, TEXT, target=[9999])
    with pytest.raises(UsageError, match="the target is empty"):
        trace_text(face, TEXT, target=[])
