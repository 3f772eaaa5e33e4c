"""A language model's text as batches: windows that predict every token once, resumed or not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import UsageError
from regard.text.batches.windows import WindowData
from regard.text.files.corpus import make_corpus, read_documents
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.special_tokens import END, PAD, START
from regard.text.tokenizers.subwords import train_subwords


def windows(texts: list[str], **settings: object) -> WindowData:
    return WindowData(make_corpus(texts, name="x"), train_characters(["abc\n"]), **{"batch_tokens": 8, **settings})


def test_windows_by_hand() -> None:
    """abc and ba, letters from 5 on: START a b c | START b a to a b c END | b a END, cut at 4."""
    data = windows(["abc", "ba"], context=4, shuffle=False)
    batch = data.collate([0, 1], 0)
    assert batch.source is None
    assert batch.inputs.tolist() == [[START, 5, 6, 7], [START, 6, 5, PAD]]
    assert batch.labels.tolist() == [[5, 6, 7, END], [6, 5, END, PAD]]
    assert (batch.tokens, data.tokens, len(data)) == (7, 7, 2)


@given(
    texts=st.lists(st.text("abc\n", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=4),
    context=st.integers(1, 8),
    epoch=st.integers(0, 4),
    shuffle=st.booleans(),
)
def test_every_token_is_predicted_once(texts: list[str], context: int, epoch: int, shuffle: bool) -> None:
    data = windows(texts, context=context, shuffle=shuffle, seed=3)
    tokenizer = train_characters(["abc\n"])
    stream = [(before, after) for text in texts for before, after in _steps(tokenizer.encode(text))]
    got: dict[int, list[tuple[int, int]]] = {}
    for batch in data.batches(epoch):
        assert batch.labels.numel() <= 8
        assert batch.tokens == int((batch.labels != PAD).sum())
        for i, inputs, labels in zip(batch.ids, batch.inputs.tolist(), batch.labels.tolist(), strict=True):
            got[i] = [(a, b) for a, b in zip(inputs, labels, strict=True) if b != PAD]
            assert 1 <= len(got[i]) <= context
    assert [step for i in sorted(got) for step in got[i]] == stream
    assert data.tokens == len(stream)
    assert len(data) <= len(got) <= len(data) + 1
    assert shuffle or len(got) == len(data)


def _steps(tokens: list[int]) -> list[tuple[int, int]]:
    return list(zip([START, *tokens], [*tokens, END], strict=True))


def test_the_first_cut_moves_from_epoch_to_epoch() -> None:
    data = windows(["abc" * 100], context=8, seed=1)
    firsts = [int((data.collate([0], epoch).labels != PAD).sum()) for epoch in range(60)]
    assert set(firsts) == set(range(1, 9))
    assert firsts == [int((data.collate([0], epoch).labels != PAD).sum()) for epoch in range(60)]
    still = windows(["abc" * 100], context=8, shuffle=False)
    assert {still.collate([0], epoch).tokens for epoch in range(9)} == {8}
    assert data.plan(0) != data.plan(1)


def test_the_next_plan_is_made_while_this_one_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    data = windows(["abc" * 100], context=4)
    planned, ahead = [], threading.Event()
    sampler = WindowData._sampler

    def watched(self: WindowData, epoch: int) -> object:
        planned.append(epoch)
        if epoch == 1:
            ahead.set()
        return sampler(self, epoch)

    monkeypatch.setattr(WindowData, "_sampler", watched)
    batches = data.batches(0)
    next(batches)
    next(batches)
    assert ahead.wait(10)
    assert planned == [0, 1]


def test_windows_resume() -> None:
    whole = list(windows(["abc" * 100], context=4).batches(1))
    start = sum(len(batch.ids) for batch in whole[:7])
    rest = list(windows(["abc" * 100], context=4).batches(1, start=start))
    assert [batch.ids for batch in rest] == [batch.ids for batch in whole[7:]]
    assert all(one.labels.equal(other.labels) for one, other in zip(rest, whole[7:], strict=True))


def test_documents_are_cut_by_lines_into_the_same_pieces() -> None:
    text = "the cat\n\n\tsat  on the mat\nthe end"
    for kind in ("unigram", "bpe"):
        tokenizer = train_subwords([text] * 9, size=None, kind=kind, lossless=True)
        data = WindowData(make_corpus([text], name="x"), tokenizer, context=99, batch_tokens=99, shuffle=False)
        batch = next(data.batches(0))
        assert batch.labels.tolist() == [[*tokenizer.encode(text), END]]
        assert tokenizer.decode(batch.inputs[0].tolist()) == text


def test_where_a_window_starts(tmp_path: Path) -> None:
    """The line of the window's first token, in a file that is one document, in one with a document a line."""
    lines = ["ab", "", "c", "abcabc", "b"]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "b.txt").write_text("a\nb")
    (tmp_path / "c.jsonl").write_text('{"text": "a\\nb"}\n\n{"text": "c\\na\\nb"}\n')
    (tmp_path / "d.jsonl").write_text('\n{"text": "a\\nb"}\n')
    texts = read_documents([tmp_path / name for name in ("a.txt", "b.txt", "c.jsonl", "d.jsonl")])
    data = WindowData(texts, train_characters(["abc\n"]), context=1, batch_tokens=8)
    expected = [f"a.txt:{number}" for number, line in enumerate(lines, start=1) for _ in line + "\n"] + ["a.txt:5"]
    expected += ["b.txt:1"] * 2 + ["b.txt:2"] * 3  # a line break is added at the end
    expected += ["c.jsonl:1"] * 4 + ["c.jsonl:3"] * 6 + ["d.jsonl:2"] * 4
    assert [data.location(i, 0) for i in range(data.tokens)] == [f"{tmp_path}/{place}" for place in expected]
    data = WindowData(texts, train_characters(["abc\n"]), context=3, batch_tokens=8, seed=1)
    several = WindowData(
        make_corpus(["a\nb", "c\na"], name="x"), train_characters(["abc\n"]), context=1, batch_tokens=8
    )
    assert [several.location(i, 0) for i in range(8)] == ["x:1"] * 4 + ["x:2"] * 4  # documents, not lines
    for epoch in range(5):
        first = int((data.collate([0], epoch).labels != PAD).sum())
        assert data.location(2, epoch) == f"{tmp_path}/{expected[first + 3]}"


def test_window_settings_that_make_no_sense() -> None:
    for context in (0, 9):
        with pytest.raises(UsageError, match=rf"between 1 and batch_tokens \(8\), got {context}"):
            windows(["abc"], context=context)
    lossy = train_subwords(["the cat sat"], size=None, kind="bpe", lossless=False)
    with pytest.raises(UsageError, match="needs a lossless tokenizer"):
        WindowData(make_corpus(["abc"], name="x"), lossy, context=8, batch_tokens=8)
    assert windows(["abc"], context=4).fingerprint == windows(["abc"], context=3, seed=4).fingerprint
    assert windows(["abc"], context=4).fingerprint != windows(["ab", "c"], context=4).fingerprint
