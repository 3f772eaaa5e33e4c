"""What a translation tells of itself: attention, alignment, picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from regard.api.results import Attention
from regard.api.translator import Translator
from regard.attention.recording.recorder import record
from regard.decoding.searches.sample import Sample
from regard.errors import ModelError, UsageError
from regard.text.tokenizers.special_tokens import END, START

Make = Callable[..., Translator]
TEXT = "Jane visite l'Afrique en septembre."


@pytest.mark.parametrize("search", [None, Sample(seed=4)])
@pytest.mark.parametrize("kind", ["transformer", "rnn-attention"])
def test_attention_is_what_a_recording_of_the_result_holds(translator_of: Make, kind: str, search: Any) -> None:
    """For every search, since it is taken from a pass over the result."""
    translator = translator_of(kind)
    found = translator.translate(TEXT, search=search, max_tokens=7, attention=True)
    with torch.no_grad(), record(translator.model) as maps:
        translator.model(torch.tensor([found.source_ids]), torch.tensor([[START, *found.ids[:-1]]]))
    m, n = len(found.tokens), len(found.source_tokens)
    cross = torch.cat([maps[name] for name in maps if name.endswith("cross")])
    torch.testing.assert_close(found.attention.cross, cross, atol=1e-5, rtol=1e-4)
    if kind == "rnn-attention":
        assert cross.shape == (1, 1, m, n) and found.attention.encoder is None and found.attention.decoder is None
        return
    assert cross.shape == (2, 2, m, n)
    encoder, decoder = (torch.cat([maps[f"{side}.{i}.self"] for i in range(2)]) for side in ("encoder", "decoder"))
    torch.testing.assert_close(found.attention.encoder, encoder, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.attention.decoder, decoder, atol=1e-5, rtol=1e-4)
    assert found.attention.encoder.shape == (2, 2, n, n) and found.attention.decoder.shape == (2, 2, m, m)


def test_attention_is_computed_when_it_is_wanted(translator_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = translator_of()
    calls = []
    before = translator.attention_of
    monkeypatch.setattr(translator, "attention_of", lambda *ids: calls.append(1) or before(*ids))
    found = translator.translate(TEXT, max_tokens=5)
    assert not calls
    found.alignment()
    found.alignment(level="piece")
    assert found.attention is found.attention and len(calls) == 1
    translator.translate([TEXT, "le chat"], max_tokens=5, alternatives=2, attention=True)
    assert len(calls) == 5


def test_layers_of_more_than_nine_stay_in_order() -> None:
    layers = {f"decoder.{i}.cross": torch.full((1, 1, 1), float(i)) for i in range(12)}
    assert Attention(layers).cross.flatten().tolist() == list(range(12))


@pytest.mark.parametrize(("head", "choose"), [(1, lambda w: w[1]), (None, lambda w: w.mean(0))])
def test_pieces_are_aligned_by_the_head_of_the_config(translator_of: Make, head: Any, choose: Any) -> None:
    translator = translator_of(alignment={"layer": "decoder.0.cross", "head": head})
    found = translator.translate(TEXT, beam=1, max_tokens=7)
    shown = found.alignment(level="piece")
    torch.testing.assert_close(shown.weights, choose(found.attention.cross[0]))
    assert (shown.source, shown.target) == (found.source_tokens, found.tokens)
    words = shown.weights[: len(found.ids) - found.finished, :-1]
    shares = words / words.sum(0).sqrt()
    assert shown.pairs == [(int(row.argmax()), i) for i, row in enumerate(shares)]


def test_several_heads_are_averaged_each_at_its_step(translator_of: Make) -> None:
    """A token is read one step after it is written; the end token is read by no step."""
    heads = [{"layer": "decoder.0.cross", "head": 1, "shifted": True}, {"layer": "decoder.1.cross", "head": None}]
    translator = translator_of(alignment={"layer": "decoder.0.cross", "head": 0, "heads": heads})
    found = translator.translate(TEXT, prefix="Jane visits", beam=1, max_tokens=7)
    cross = found.attention.cross
    read = [*range(1, len(found.ids)), len(found.ids) - 1]
    expected = (cross[0, 1][read] + cross[1].mean(0)) / 2
    torch.testing.assert_close(found.alignment("piece").weights, expected)
    assert translator.alignment_head == ("decoder.0.cross", 0)  # at the step that writes a token
    assert list(map(str, translator.alignment_heads)) == [
        "decoder.0.cross, head 1 at the next step",
        "decoder.1.cross, mean of its heads",
    ]
    # The alignment of a given text is the same: it is shifted before tokens become words.
    forced = translator.align(TEXT, "Jane visits Africa")
    maps, *_ = translator.word_attention(TEXT, "Jane visits Africa")
    late, *_ = translator.word_attention(TEXT, "Jane visits Africa", shifted=True)
    expected = (late["decoder.0.cross"][1] + maps["decoder.1.cross"].mean(0)) / 2
    torch.testing.assert_close(forced.weights, expected)
    assert not torch.equal(late["decoder.0.cross"], maps["decoder.0.cross"])


def test_without_a_head_the_last_layer_speaks(translator_of: Make) -> None:
    found = translator_of().translate(TEXT, beam=1, max_tokens=7)
    torch.testing.assert_close(found.alignment("piece").weights, found.attention.cross[-1].mean(0))
    found = translator_of("rnn-attention").translate(TEXT, beam=1, max_tokens=7)
    torch.testing.assert_close(found.alignment("piece").weights, found.attention.cross[0, 0])


def test_words_are_sums_of_source_and_means_of_target_pieces(translator_of: Make) -> None:
    translator = translator_of()
    found = translator.translate(TEXT, prefix="Jane visits Africa", beam=1, max_tokens=6)
    pieces, words = found.alignment("piece").weights, found.alignment("word")
    assert words.source == ["Jane", "visite", "l'Afrique", "en", "septembre.", "</s>"]
    assert words.target[:2] == ["Jane", "visits"]
    spans = [(word.start, word.end) for word in translator.source_tokenizer.words(found.source_ids[:-1])]
    rows = [(word.start, word.end) for word in translator.target_tokenizer.words(found.ids)]
    for i, (top, bottom) in enumerate(rows[:2]):
        for j, (left, right) in enumerate(spans):
            block = pieces[top:bottom, left:right]
            assert float(words.weights[i, j]) == pytest.approx(float(block.sum(1).mean()), abs=1e-6)
    torch.testing.assert_close(words.weights.sum(1), torch.ones(len(words.target)))


def test_align_leads_the_model_along_a_given_text(translator_of: Make) -> None:
    translator = translator_of()
    found = translator.align(TEXT, "Jane visits Africa")
    ids = [*translator.target_tokenizer.encode("Jane visits Africa"), END]
    attention = translator.attention_of(translator.read(TEXT).ids, ids)
    assert found.target == ["Jane", "visits", "Africa", "</s>"]
    first = translator.target_tokenizer.words(ids[:-1])[0]
    rows = attention.cross[-1].mean(0)[first.start : first.end]
    torch.testing.assert_close(found.weights[0, -1], rows[:, -1].mean())


def test_align_by_other_words(translator_of: Make) -> None:
    translator = translator_of()

    def letters(text: str) -> list[str]:
        return list(text.replace(" ", ""))

    whole, split = translator.align("le chat", "the cat"), translator.align("le chat", "the cat", words=letters)
    assert split.source == [*"lechat", "</s>"] and split.target == [*"thecat", "</s>"]
    torch.testing.assert_close(split.weights.sum(1), torch.ones(7))
    # The letters of the source words have the words' weights together.
    torch.testing.assert_close(split.weights[-1, :2].sum(), whole.weights[-1, 0])
    maps, sources, targets = translator.word_attention("le chat", "the cat", words=lambda text: text.split())
    plain, *_ = translator.word_attention("le chat", "the cat")
    assert sources == whole.source and targets == whole.target
    for name in plain:
        assert plain[name].shape == (2, 3, 3)
        torch.testing.assert_close(maps[name], plain[name])


def test_models_without_attention_and_wrong_heads(translator_of: Make) -> None:
    found = translator_of("rnn-seq2seq").translate(TEXT, beam=1, max_tokens=4)
    assert found.attention.cross is None
    with pytest.raises(UsageError, match="'rnn-seq2seq' has no attention to the source"):
        found.alignment()
    with pytest.raises(UsageError, match="level must be 'word' or 'piece', got 'letter'"):
        found.alignment("letter")
    for chosen, message in (
        ({"layer": "decoder.7.cross", "head": 0}, "does not exist: head 0 of layer 'decoder.7.cross'"),
        ({"layer": "decoder.0.cross", "head": 2}, "does not exist: head 2 of layer"),
        ({"layer": "decoder.0.cross", "head": "x"}, "does not exist: head 'x' of layer"),
        (
            {"layer": "decoder.0.cross", "heads": [{"layer": "decoder.0.cross", "head": 9}]},
            "does not exist: head 9 of layer",
        ),
        ("best", "alignment must name a layer and a head, got 'best'"),
    ):
        with pytest.raises(ModelError, match=message):
            translator_of(alignment=chosen).translate(TEXT, beam=1, max_tokens=4).alignment()


def test_plot_and_print(translator_of: Make, tmp_path: Path) -> None:
    found = translator_of().translate(TEXT, beam=1, max_tokens=4)
    picture = found.plot(tmp_path / "align.svg")
    assert picture == tmp_path / "align.svg" and "visite" in picture.read_text()
    out = io.StringIO()
    Console(width=100, file=out).print(found.alignment())
    assert "septembre." in out.getvalue()
    shown = found.alignment().to_dict()
    assert set(shown) == {"source", "target", "weights", "pairs"} and len(shown["weights"][0]) == len(shown["source"])
