"""The writer: streams what the search finds, letter for letter, and predicts every token of a text once."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn import functional as F

from regard.api import writer as module
from regard.api.writer import Writer, new_text, until_stop
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens
from regard.decoding.searches.minimum_risk import MinimumRisk
from regard.decoding.searches.sample import Sample
from regard.errors import DataError, ModelError, UsageError
from regard.models.config import TransformerLMConfig
from regard.models.presets import make_model
from regard.text.batches.windows import WindowData
from regard.text.files.corpus import make_corpus
from regard.text.tokenizers.special_tokens import END, PAD, START

Make = Callable[..., Writer]
TEXT = "Jane visite l'Afrique en septembre. le chat noir dort dans la maison. la petite fille mange une pomme"
EMOJI = "chat 🐈 noir 👩‍👧 été"


@pytest.fixture(params=["transformer-lm", "rnn-lm"])
def writer(request: pytest.FixtureRequest, writer_of: Make) -> Writer:
    return writer_of(request.param)


@pytest.mark.parametrize("search", [Greedy(), Sample(temperature=2.0, seed=3)])
def test_the_text_is_that_of_the_tokens(writer: Writer, search: Any) -> None:
    prefix = [START, *writer.tokenizer.encode("Jane visite")]
    ((found,),) = generate_tokens(writer.model, None, search=search, prefixes=[prefix], max_tokens=20)
    text = writer.write("Jane visite", search=search, max_tokens=20)
    assert text == writer.tokenizer.decode(found.tokens) and len(text) > 5
    assert "".join(writer.stream("Jane visite", search=search, max_tokens=20)) == text


def test_a_text_begins_as_in_training(writer_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_of()
    data = WindowData(make_corpus([TEXT], name="here"), writer.tokenizer, context=8, batch_tokens=64, shuffle=False)
    first = data.collate([0], 0).inputs[0].tolist()
    seen = []

    def stream(model: Any, prefix: list[int], **_: Any) -> Iterator[int]:
        seen.append(list(prefix))
        return iter(())

    monkeypatch.setattr(module, "stream_tokens", stream)
    writer.write(TEXT)
    writer.write("")
    assert seen[0][:8] == first and seen[1] == first[:1]


def rigged(monkeypatch: pytest.MonkeyPatch, tokens: list[int]) -> list[dict[str, Any]]:
    """Let the search write these tokens, and remember what it was asked."""
    calls: list[dict[str, Any]] = []
    rest = iter([*tokens, END])

    def stream(model: Any, prefix: list[int], *, search: Any, max_tokens: int) -> Iterator[int]:
        calls.append({"prefix": list(prefix), "search": search, "max_tokens": max_tokens})
        for _ in range(max_tokens):
            yield next(rest)

    monkeypatch.setattr(module, "stream_tokens", stream)
    return calls


def test_letters_of_several_bytes_come_whole(writer_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_of()
    tokens = writer.tokenizer.encode(EMOJI)
    assert any(piece.startswith("<0x") for piece in writer.tokenizer.pieces(tokens))  # the cat is four bytes
    rigged(monkeypatch, tokens)
    parts = list(writer.stream("le ", max_tokens=1000))
    assert "".join(parts) == EMOJI and len(parts) > 5
    assert all("\ufffd" not in part for part in parts) and "🐈" in parts


def test_letters_cut_off_in_the_middle_are_told(writer_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_of()
    tokens = writer.tokenizer.encode("a🐈")[:-1]
    rigged(monkeypatch, tokens)
    assert writer.write("", max_tokens=100) == writer.tokenizer.decode(tokens) and "\ufffd" in writer.tokenizer.decode(
        tokens
    )


@given(st.text(max_size=20), st.text(max_size=30))
def test_parts_join_to_the_text(lossless: Any, prompt: str, text: str) -> None:
    parts = list(new_text(lossless, lossless.encode(text), after=lossless.encode(prompt)))
    assert "".join(parts) == unicodedata.normalize("NFC", text)


def test_the_space_after_the_prompt_is_kept(pieces: Any) -> None:
    """A tokenizer that is not lossless drops the space of the first piece that it decodes."""
    tokens = pieces.encode("le chat noir")
    first = pieces.encode("le")
    assert "".join(new_text(pieces, tokens[len(first) :], after=first)) == " chat noir"


def test_stop_texts(writer_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_of()
    for stop, wanted in ((". le", "septembre"), (["noir", "chat"], "septembre. le "), ("absent", "septembre. le chat")):
        rigged(monkeypatch, writer.tokenizer.encode("septembre. le chat"))
        assert writer.write("en ", stop=stop) == wanted


@given(st.text("ab", max_size=12), st.lists(st.integers(1, 4), max_size=12), st.text("ab", min_size=1, max_size=3))
def test_a_stop_text_is_found_however_the_text_is_cut(text: str, sizes: list[int], stop: str) -> None:
    parts, rest = [], text
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    assert "".join(until_stop([*parts, rest], [stop])) == text.split(stop)[0]


def test_of_several_stop_texts_the_first_in_the_text_counts() -> None:
    assert "".join(until_stop(["xx", "xb", "ay"], ["a", "b"])) == "xxx"
    assert "".join(until_stop(["xxxbay"], ["a", "b"])) == "xxx"


def test_learned_positions_end_the_context_too(lossless: Any) -> None:
    config = TransformerLMConfig(
        layers=1, dim=8, heads=2, hidden=8, vocabulary=lossless.size, position="learned", max_length=8
    )
    model = make_model(config).eval()
    assert Writer(model, lossless, info={"context": 5}).context == 5
    writer = Writer(model, lossless, info={"context": 32})
    assert writer.context == 8
    assert len(writer.score(TEXT).logps) == len(lossless.encode(TEXT))
    writer.write("le chat", search=Greedy(), max_tokens=30)  # goes on in windows


def test_windows(writer_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the context is full, its later half stays, and the draws come from another seed."""
    writer = writer_of(context=8)
    written = writer.tokenizer.encode(TEXT)[:20]
    calls = rigged(monkeypatch, written)
    assert writer.write("", search=Sample(seed=5), max_tokens=17) == writer.tokenizer.decode(written[:17])
    seen = [START, *written]
    assert [call["prefix"] for call in calls] == [seen[:1], seen[4:8], seen[8:12], seen[12:16]]
    assert [call["max_tokens"] for call in calls] == [7, 4, 4, 2]
    assert [call["search"].seed for call in calls] == [5, 6, 7, 8]


def test_a_long_prompt_is_cut_and_told(writer_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_of(context=10)
    calls = rigged(monkeypatch, [])
    tokens = writer.tokenizer.encode(TEXT)
    with pytest.warns(
        UserWarning, match=f"the prompt has {len(tokens)} tokens, but the model sees 10: only the last 5"
    ):
        writer.write(TEXT)
    assert calls[0]["prefix"] == tokens[-5:]


def test_a_recurrent_model_needs_no_windows(writer_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_of("rnn-lm", context=8)
    calls = rigged(monkeypatch, writer.tokenizer.encode(TEXT)[:20])
    writer.write(TEXT, max_tokens=15)
    assert writer.context is None and [call["max_tokens"] for call in calls] == [15]


@pytest.mark.parametrize("search", [Beam(3), MinimumRisk(4)], ids=["beam", "risk"])
def test_searches_that_know_their_text_at_the_end(writer: Writer, search: Any) -> None:
    prefix = [START, *writer.tokenizer.encode("Jane")]
    ((best, *_),) = generate_tokens(writer.model, None, search=search, prefixes=[prefix], max_tokens=6)
    assert writer.write("Jane", search=search, max_tokens=6) == writer.tokenizer.decode(best.tokens)
    with pytest.raises(UsageError, match=r"cannot stream, .* use Greedy or Sample"):
        writer.stream("Jane", search=search)


@torch.no_grad()
def logps_by_hand(writer: Writer, tokens: list[int]) -> list[float]:
    """Of each token after the start and those before it, in one pass."""
    logits = writer.model(torch.tensor([[START, *tokens[:-1]]]))[0]
    return [float(row[token]) for row, token in zip(F.log_softmax(logits, -1), tokens, strict=True)]


def test_perplexity_of_a_text_that_fits(writer: Writer) -> None:
    tokens = writer.tokenizer.encode(TEXT)
    wanted = logps_by_hand(writer, tokens)
    found = writer.score(TEXT)
    assert found.logps == pytest.approx(wanted, abs=1e-4) and found.tokens == writer.tokenizer.pieces(tokens)
    likelihood = writer.perplexity(TEXT)
    assert likelihood.loss == pytest.approx(-sum(wanted) / len(tokens), rel=1e-5)
    assert likelihood.perplexity == pytest.approx(math.exp(-sum(wanted) / len(tokens)), rel=1e-4)
    assert likelihood.bits_per_character == pytest.approx(-sum(wanted) / math.log(2) / len(TEXT), rel=1e-5)


@pytest.mark.parametrize(
    ("context", "stride"), [(2, None), (3, None), (8, None), (9, None), (8, 1), (8, 3), (8, 8), (9, 5)]
)
def test_perplexity_in_windows(writer_of: Make, context: int, stride: int | None) -> None:
    """Each token once, from what its window has before it: never more than the model sees, and all but a stride of it.

    The windows are laid out here one after another; the first counts whole, of the others the last `stride` tokens.
    """
    writer = writer_of(context=context)
    tokens = writer.tokenizer.encode(TEXT)
    found = writer.score(TEXT, stride=stride).logps
    assert len(found) == len(tokens)
    everything = [START, *tokens]
    step = stride or context // 2
    end = 0  # of the window: it reads everything[end - context : end]
    for i in range(1, len(everything)):
        while i > end:
            end += step if end else context
        seen = everything[max(0, end - context) : i]
        with torch.no_grad():
            logits = writer.model(torch.tensor([seen]))[0, -1]
        assert found[i - 1] == pytest.approx(float(F.log_softmax(logits, -1)[everything[i]]), abs=1e-4)
        assert len(seen) == i or context - step < len(seen) <= context


def test_a_window_a_stride_is_how_training_validates(writer_of: Make) -> None:
    """With a stride of a whole window the parts are those of the trainer's validation, but for the END it predicts."""
    writer = writer_of(context=8)
    data = WindowData(make_corpus([TEXT], name="here"), writer.tokenizer, context=8, batch_tokens=64, shuffle=False)
    wanted = []
    for batch in data.batches(0):
        with torch.no_grad():
            logps = F.log_softmax(writer.model(batch.inputs), -1).gather(2, batch.labels[..., None])[..., 0]
        counted = (batch.labels != END) & (batch.labels != PAD)
        wanted += logps[counted].tolist()
    found = writer.score(TEXT, stride=8).logps
    assert sorted(found) == pytest.approx(sorted(wanted), abs=1e-4)


def test_wrong_strides(writer_of: Make) -> None:
    for stride in (0, 9):
        with pytest.raises(UsageError, match=f"stride must be between 1 and the 8 tokens of a window, got {stride}"):
            writer_of(context=8).perplexity(TEXT, stride=stride)
    assert writer_of("rnn-lm", context=8).window == 1024


def test_nothing_has_no_perplexity(writer: Writer) -> None:
    with pytest.raises(DataError, match="not one token was predicted"):
        writer.perplexity("")


def test_wrong_options(writer_of: Make, pieces: Any) -> None:
    writer = writer_of()
    with pytest.raises(UsageError, match="max_tokens must be at least 1"):
        writer.stream("x", max_tokens=0)
    with pytest.raises(UsageError, match="stop must not be an empty text"):
        writer.write("x", stop=["a", ""])
    with pytest.raises(ModelError, match="context must be a whole number from 2, got 'many'"):
        writer_of(context="many")
    config = TransformerLMConfig(layers=1, dim=8, heads=1, vocabulary=pieces.size, position="learned", max_length=1)
    for info in ({}, {"context": 20}):
        with pytest.raises(ModelError, match="context must be a whole number from 2, got 1"):
            Writer(make_model(config), pieces, info=info)
    with pytest.raises(ModelError, match="but the model only"):
        Writer(writer_of(tokenizer=pieces).model, writer.tokenizer)


@pytest.mark.parametrize("search", [Greedy, Sample])
def test_the_least_length_is_that_of_the_text_and_not_of_a_window(writer_of: Make, search: Any) -> None:
    writer = writer_of(context=8)
    likely = torch.full((writer.tokenizer.size,), -99.0)
    likely[writer.tokenizer.encode("a")[-1]], likely[END] = 0.0, 50.0
    writer.model.project = lambda hidden: likely.expand(*hidden.shape[:-1], -1).clone()
    for count in (3, 21):
        tokens = list(writer._tokens([START], search(rules=(MinTokens(count),)), 90))
        assert len(tokens) == count
