"""What holds for every model and every search: caches, batches, order, prefixes and limits change nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from regard.decoding.engine import generate_tokens, stream_tokens
from regard.decoding.forced import score_tokens
from regard.decoding.model_step import encode, evaluating, log_probabilities, prefill, step
from regard.decoding.requests import longest_text
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens, NoRepeat, RepetitionPenalty
from regard.decoding.searches.observer import Recorder
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Hypothesis
from regard.errors import ModelError, UsageError
from regard.text.tokenizers.special_tokens import END, PAD, START, UNKNOWN

from ..repeats import by_default
from .conftest import CONFIGS

ROWS = list(range(7))
SEARCHES: dict[str, tuple[Any, int]] = {  # and how many alternatives
    "greedy": (Greedy(), 1),
    "sample": (Sample(temperature=1.5, top_k=6, top_p=0.95, min_p=0.01, seed=7), 2),
    "beam": (Beam(3, length_penalty=0.6), 2),
}
# A beam reorders the rows of a model's state, so the models take turns with the other searches only.
SOME = {(model, "beam") for model in ("transformer modern", "transformer learned", "bahdanau", "luong", "lstm lm")}
SOME |= {
    ("transformer modern", "sample"),
    ("luong", "greedy"),
    ("transformer lm modern", "greedy"),
    ("lstm lm", "sample"),
}
every_search = pytest.mark.parametrize(
    ("case", "name"),
    by_default(SOME, [(model, name) for model in CONFIGS for name in SEARCHES]),
    indirect=["case"],
)


def texts(found: list[list[Hypothesis]]) -> list[list[tuple[list[int], bool]]]:
    return [[(one.tokens, one.finished) for one in each] for each in found]


def same(got: list[list[Hypothesis]], want: list[list[Hypothesis]]) -> None:
    """The same texts, and scores equal up to the rounding of float64."""
    assert texts(got) == texts(want)
    for one, other in zip((h for each in got for h in each), (h for each in want for h in each), strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-9)
        assert one.ranking == pytest.approx(other.ranking, abs=1e-9)


def run(case: Any, name: str, rows: list[int] = ROWS, **options: Any) -> list[list[Hypothesis]]:
    search, alternatives = SEARCHES[name]
    options = {"search": search, "alternatives": alternatives, "max_tokens": 9, **case.inputs(rows), **options}
    return generate_tokens(case.model, options.pop("source"), **options)


def test_the_models_are_worth_testing(case: Any) -> None:
    """Texts that differ from each other, ended and cut off ones."""
    found = [each[0] for each in run(case, "greedy", max_tokens=12)]
    assert len({tuple(one.tokens) for one in found}) >= 4
    assert len({len(one.tokens) for one in found}) >= 2
    assert any(one.finished for one in found)
    assert len({token for one in found for token in one.tokens}) >= 3


@every_search
def test_with_cache_as_without(case: Any, name: str) -> None:
    same(run(case, name), run(case, name, cached=False))


@every_search
def test_alone_as_together(case: Any, name: str) -> None:
    together = run(case, name)
    same(run(case, name, batch_tokens=1), together)  # one row at a time
    same(run(case, name, batch_tokens=110), together)  # a few


@every_search
def test_other_limits_next_to_it_change_nothing(case: Any, name: str) -> None:
    limits = [1, 9, 3, 2, 9, 5, 4]
    together = run(case, name, max_tokens=limits)
    assert all(len(one.tokens) <= limit for each, limit in zip(together, limits, strict=True) for one in each)
    for row, limit in enumerate(limits):
        if name != "sample":  # whose chance knows the place in the list
            same(run(case, name, [row], max_tokens=limit), [together[row]])


@settings(max_examples=10)
@given(order=st.permutations(ROWS), batch_tokens=st.integers(1, 400), data=st.data())
def test_any_order_and_batching(
    make_case: Callable[[str], Any], order: list[int], batch_tokens: int, data: Any
) -> None:
    """Rows in another order give the same texts in that order; samples are bound to their place, so they stay out."""
    case = make_case(data.draw(st.sampled_from(["transformer modern", "luong", "transformer lm modern", "lstm lm"])))
    name = data.draw(st.sampled_from(["greedy", "beam"]))
    got = run(case, name, order, batch_tokens=batch_tokens)
    want = run(case, name)
    same(got, [want[row] for row in order])


tokens = st.lists(st.integers(4, 8), max_size=6)


@settings(max_examples=12)
@given(
    inputs=st.lists(st.tuples(tokens, tokens, st.integers(1, 8)), min_size=1, max_size=6),
    width=st.integers(1, 5),
    penalty=st.sampled_from([0.0, 1.0]),
    ruled=st.booleans(),
    batch_tokens=st.integers(1, 500),
    data=st.data(),
)
def test_any_inputs_any_beam(
    make_case: Callable[[str], Any],
    inputs: list[tuple[list[int], list[int], int]],
    width: int,
    penalty: float,
    ruled: bool,
    batch_tokens: int,
    data: Any,
) -> None:
    """Sources, prefixes and limits of any length: batches give what single inputs give, with the model's own score."""
    case = make_case(data.draw(st.sampled_from(["transformer modern", "bahdanau", "transformer lm", "lstm lm"])))
    rules = (MinTokens(2), RepetitionPenalty(1.3), NoRepeat(2)) if ruled else ()
    search = data.draw(st.sampled_from([Greedy(rules), Beam(width, length_penalty=penalty, rules=rules)]))
    sources, prefixes, limits = zip(*inputs, strict=True)
    source = [[*one, END] for one in sources] if case.translates else None
    options = {"search": search, "alternatives": search.rows(1), "batch_tokens": batch_tokens}
    together = generate_tokens(case.model, source, prefixes=prefixes, max_tokens=limits, **options)
    for row, found in enumerate(together):
        alone = generate_tokens(
            case.model, source and [source[row]], prefixes=[prefixes[row]], max_tokens=limits[row], **options
        )
        same(alone, [found])
    first = [found[0] for found in together]
    scored = score_tokens(case.model, source, [one.tokens for one in first], prefixes=prefixes)
    assert [one.score for one in first] == pytest.approx([one.score for one in scored], abs=1e-9)
    if isinstance(search, Beam) and width == 1 and penalty == 0:
        greedy = generate_tokens(case.model, source, prefixes=prefixes, max_tokens=limits, search=Greedy(rules))
        assert texts(greedy) == texts(together)


@pytest.mark.parametrize("name", ["greedy", "beam"])
def test_float32_up_to_ties(case: Any, name: str) -> None:
    """Where the texts of one batch and of single rows part, the two were within 1e-4 of each other."""
    case.model.float()
    together, alone = run(case, name), run(case, name, batch_tokens=1)
    for one, other in zip((h for each in together for h in each), (h for each in alone for h in each), strict=True):
        if one.tokens == other.tokens:
            assert one.logps == pytest.approx(other.logps, abs=1e-4)
        elif name == "greedy":
            apart = next(i for i, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False)) if a != b)
            assert one.logps[apart] == pytest.approx(other.logps[apart], abs=1e-4)
        else:
            assert one.ranking == pytest.approx(other.ranking, abs=1e-4)


@every_search
def test_bfloat16_is_summed_in_float32(case: Any, name: str) -> None:
    """Scores of a bfloat16 model are not rounded to its three digits: probabilities sum to 1."""
    case.model.bfloat16()
    watched = Recorder(9)
    for each in run(case, name, observer=watched):
        for one in each:
            assert one.score == pytest.approx(sum(one.logps), abs=1e-4)
    record = watched.records[0]
    assert record.logps.dtype == torch.float32
    assert (record.logps.exp().sum(1) <= 1 + 1e-5).all()
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(0)).bfloat16()
    torch.testing.assert_close(log_probabilities(logits).exp().sum(1), torch.ones(3))
    assert log_probabilities(logits.double()).dtype == torch.float64


def test_results_are_whole(case: Any) -> None:
    for name in SEARCHES:
        for each in run(case, name):
            assert len(each) == SEARCHES[name][1]
            for one in each:
                assert 1 <= len(one.tokens) == len(one.logps) <= 9
                assert one.score == pytest.approx(sum(one.logps))
                assert one.finished == (one.tokens[-1] == END)
                assert one.finished or len(one.tokens) == 9
                assert END not in one.tokens[:-1]
                assert not {PAD, START} & {*one.tokens}


@every_search
def test_padding_and_start_are_never_written_and_unknown_only_if_allowed(case: Any, name: str) -> None:
    """The likeliest tokens by far, were they allowed; their probability is not given to the others."""
    model = case.model
    logits = torch.zeros(9, dtype=torch.float64)
    logits[[PAD, UNKNOWN, START]] = torch.tensor([20.0, 10.0, 20.0], dtype=torch.float64)
    model.project = lambda hidden: logits.expand(*hidden.shape[:-1], 9).clone()
    for allowed in (True, False):
        found = [one for each in run(case, name, allow_unknown=allowed) for one in each]
        written = {token for one in found for token in one.tokens}
        assert not {PAD, START} & written and (UNKNOWN in written) == allowed
        for one in found:
            assert one.logps == pytest.approx([float(logits.log_softmax(-1)[token]) for token in one.tokens])


def test_an_empty_translation_is_possible(make_case: Callable[[str], Any]) -> None:
    """END is allowed from the first step on."""
    case = make_case("transformer")
    assert run(case, "greedy")[3][0].tokens == [END]  # the empty sentence, of END alone


# Prefixes.


@every_search
def test_prefixes_of_different_lengths(case: Any, name: str) -> None:
    """A forced beginning is read, not scored and not repeated; single rows and the uncached oracle agree."""
    prefixes = [[5], [6, 7, 8], [], [5, 5], [8, 4, 5, 6], [7], [4, 8]]
    together = run(case, name, prefixes=prefixes)
    same(run(case, name, prefixes=prefixes, cached=False), together)
    if name == "sample":  # whose chance knows the place in the list
        same(run(case, name, prefixes=prefixes, batch_tokens=1), together)
    else:
        for row, prefix in enumerate(prefixes):
            same(run(case, name, [row], prefixes=[prefix]), [together[row]])


@torch.no_grad()
def test_a_prefix_is_what_greedy_search_would_have_written(case: Any) -> None:
    """Greedy search after its own first two tokens writes the others."""
    whole = run(case, "greedy", max_tokens=9)
    for row, (one,) in enumerate(whole):
        if len(one.tokens) > 3:
            given = case.inputs([row])
            before = given["prefixes"][0] if given["prefixes"] else []
            if not case.translates and not before:
                before = [START]
            (rest,) = run(case, "greedy", [row], prefixes=[[*before, *one.tokens[:2]]], max_tokens=7)[0]
            assert rest.tokens == one.tokens[2:]
            assert rest.logps == pytest.approx(one.logps[2:], abs=1e-9)


def test_an_end_in_a_prompt_ends_nothing(language_model: Any) -> None:
    """A language model's prompt may hold the end of an earlier text."""
    (one,) = generate_tokens(language_model.model, None, prefixes=[[5, END, START, 6]], max_tokens=4)[0]
    first = language_model.model(torch.tensor([[5, END, START, 6]]))[0, -1].log_softmax(-1)
    first[[PAD, START]] = -torch.inf
    assert one.tokens[0] == int(first.argmax())


def test_no_prompt_is_a_new_text(language_model: Any) -> None:
    empty, start = generate_tokens(language_model.model, None, prefixes=[[], [START]], max_tokens=5)
    same([empty], [start])


# Streaming.


@pytest.mark.parametrize("search", [Greedy(), Sample(seed=4), Sample(temperature=0.7, top_k=3, seed=5)])
def test_streaming_gives_the_same_tokens(case: Any, search: Any) -> None:
    for row in range(3):
        given = case.inputs([row])
        (want,) = generate_tokens(case.model, given["source"], prefixes=given["prefixes"], search=search, max_tokens=8)[
            0
        ]
        prefix = given["prefixes"][0] if given["prefixes"] else []
        source = given["source"][0] if given["source"] else None
        case.model.train(row == 1)  # which is no excuse for dropout
        assert [*stream_tokens(case.model, prefix, source=source, search=search, max_tokens=8)] == want.tokens


def test_streaming_computes_a_token_when_it_is_asked_for(make_case: Callable[[str], Any]) -> None:
    case = make_case("rnn lm")
    read: list[int] = []
    case.model.embedding.register_forward_hook(lambda module, args, y: read.append(args[0].shape[1]))
    case.model.train()
    stream = stream_tokens(case.model, [4, 5], max_tokens=6)
    assert read == []
    next(stream)
    assert read == [2]
    assert case.model.training and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    next(stream)
    assert read == [2, 1]


def test_a_beam_cannot_stream(make_case: Callable[[str], Any]) -> None:
    with pytest.raises(UsageError, match="Beam does not know its first token before its last"):
        stream_tokens(make_case("rnn lm").model, [4], search=Beam(2), max_tokens=3)


# Work that is not done twice.


class Counter:
    """Counts the calls of a model's seams and the (rows, tokens) that they got."""

    def __init__(self, model: Any) -> None:
        self.encoded: list[tuple[int, ...]] = []
        self.decoded: list[tuple[int, ...]] = []
        self.projected: list[tuple[int, ...]] = []
        for name, shapes in (("encode", self.encoded), ("decode", self.decoded), ("project", self.projected)):
            if hasattr(model, name):
                self._count(model, name, shapes)

    def _count(self, model: Any, name: str, shapes: list[tuple[int, ...]]) -> None:
        original = getattr(model, name)

        def counted(x: Tensor, *args: Any, **kwargs: Any) -> Any:
            shapes.append(tuple(x.shape[:2]))
            return original(x, *args, **kwargs)

        setattr(model, name, counted)


def test_each_token_is_read_once_and_finished_rows_leave(case: Any) -> None:
    lengths = sorted(len(one.tokens) for (one,) in run(case, "greedy", prefixes=[[4]] * 7))
    count = Counter(case.model)
    run(case, "greedy", prefixes=[[4]] * 7)
    start = 2 if case.translates else 1
    # One pass over what stands before the text; then one token a row, for the rows that go on.
    assert count.decoded[0] == (7, start)
    assert count.decoded[1:] == [(sum(n > t for n in lengths), 1) for t in range(1, max(lengths))]
    assert count.encoded == ([(7, 8)] if case.translates else [])
    assert all(rows == decoded[0] for (rows, _), decoded in zip(count.projected, count.decoded, strict=True))


def test_keys_of_the_source_are_computed_once(make_case: Callable[[str], Any]) -> None:
    case = make_case("transformer")
    calls: list[str] = []
    for number, block in enumerate(case.model.decoder.blocks):
        remember = block.cross_attention.project_source
        block.cross_attention.project_source = lambda *args, n=number, f=remember: (calls.append(str(n)), f(*args))[1]
    run(case, "beam")
    assert calls == ["0", "1"]


def test_the_phases_by_hand(make_case: Callable[[str], Any]) -> None:
    """encode, prefill and step are free functions: greedy search in four lines."""
    case = make_case("transformer modern")
    (want,) = run(case, "greedy", [0])[0]
    with torch.inference_mode():
        encoded = encode(case.model, [case.source[0]])
        logps, state = prefill(case.model, torch.tensor([[START]]), encoded, capacity=10)
        tokens = []
        while not tokens or (tokens[-1] != END and len(tokens) < 9):
            logps[:, [PAD, START]] = -torch.inf
            tokens.append(int(logps.argmax()))
            logps = step(case.model, state, torch.tensor(tokens[-1:]))
    assert tokens == want.tokens


def test_nothing_in_nothing_out(case: Any) -> None:
    assert run(case, "greedy", []) == []


# The model is left as it was.


def test_training_mode_and_dropout_do_not_leak(case: Any) -> None:
    want = run(case, "greedy")
    case.model.train()
    list(case.model.modules())[-1].eval()  # a part of it frozen
    modes = [module.training for module in case.model.modules()]
    same(run(case, "greedy"), want)
    assert [module.training for module in case.model.modules()] == modes
    with contextlib.suppress(ZeroDivisionError), evaluating(case.model):
        assert not any(module.training for module in case.model.modules())
        raise ZeroDivisionError
    assert [module.training for module in case.model.modules()] == modes


def test_no_graph_is_built(make_case: Callable[[str], Any]) -> None:
    case = make_case("bahdanau")
    seen: list[bool] = []
    case.model.output.register_forward_hook(lambda module, args, y: seen.append(y.requires_grad))
    run(case, "beam")
    assert seen and not any(seen)


# Mistakes.


def test_learned_positions_have_an_end(make_case: Callable[[str], Any]) -> None:
    case = make_case("transformer learned")
    assert longest_text(case.model) == 24 and longest_text(make_case("transformer").model) is None
    assert longest_text(make_case("luong").model) is None
    # START and 23 tokens are read, the 24th is only written.
    found = run(case, "greedy", max_tokens=24)
    assert max(len(one.tokens) for (one,) in found) == 24
    with pytest.raises(UsageError, match=r"max_tokens=25 for input 0 is too much.*learned 24 positions.*so 24 tokens"):
        run(case, "greedy", max_tokens=25)
    with pytest.raises(UsageError, match=r"max_tokens=23 for input 1 is too much.*3 are taken.*so 22 tokens"):
        run(case, "greedy", [0, 1], prefixes=[[], [4, 5]], max_tokens=23)


@every_search
def test_a_model_that_gives_nan_is_found_out(case: Any, name: str) -> None:
    with torch.no_grad():
        nn.init.constant_(case.model.output.weight, torch.nan)
    with pytest.raises(ModelError, match="the model gave NaN or infinity in place of a probability"):
        run(case, name)
