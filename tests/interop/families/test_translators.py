"""Imported translation models compute and write what transformers does with the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from small_translators import ENGLISH, FRENCH, TEXTS, in_float64, make_marian

import regard
from regard.decoding.engine import generate_tokens
from regard.decoding.forced import score_tokens
from regard.interop import import_model, read

MAKERS: dict[str, Any] = {
    "marian": make_marian,
    "marian-separate": lambda folder: make_marian(folder, separate=True, activation_function="relu"),
}


class Both(NamedTuple):
    theirs: Any  # in float64
    ours: Any
    source: Path
    folder: Path


@pytest.fixture(scope="module", params=MAKERS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    root = tmp_path_factory.mktemp(request.param)
    original = MAKERS[request.param](root / "original")
    folder = import_model(original.folder, root / "imported")
    return Both(in_float64(original.model), regard.load_model(folder, dtype=torch.float64), original.folder, folder)


def sources(both: Both, count: int) -> list[list[int]]:
    """Random sources of different lengths, with their end token."""
    config = both.ours.config
    generator = torch.Generator().manual_seed(1)
    lengths = [7, 3, 12, 1, 9, 5][:count]
    low, high = 4, config.source_vocabulary - 5
    return [[*torch.randint(low, high, (n,), generator=generator).tolist(), config.end_ids[0]] for n in lengths]


def test_logits_of_a_padded_batch(both: Both) -> None:
    config = both.ours.config
    rows = sources(both, 4)
    length = max(map(len, rows))
    source = torch.tensor([[*row, *[config.pad_id] * (length - len(row))] for row in rows])
    target = torch.randint(4, config.target_vocabulary - 4, (4, 9), generator=torch.Generator().manual_seed(0))
    target[:, 0] = config.start_id
    with torch.no_grad():
        expected = both.theirs(
            input_ids=source, attention_mask=(source != config.pad_id).long(), decoder_input_ids=target
        ).logits
        torch.testing.assert_close(both.ours(source, target), expected, atol=1e-10, rtol=0)
        in_float32 = regard.load_model(both.folder)(source, target)
    torch.testing.assert_close(in_float32.double(), expected, atol=1e-5 * expected.abs().max().item(), rtol=0)


@pytest.mark.parametrize(("width", "penalty"), [(1, 1.0), (4, 0.0), (4, 0.6), (6, 1.0), (6, 2.0)])
def test_searches(both: Both, width: int, penalty: float) -> None:
    """Token for token what `generate` finds with early_stopping="never"."""
    search = regard.Greedy() if width == 1 else regard.Beam(width, length_penalty=penalty, patience=None)
    rows = sources(both, 5)
    ours = generate_tokens(both.ours, rows, search=search, max_tokens=16)
    ended = 0
    for row, (best, *_) in zip(rows, ours, strict=True):
        theirs = both.theirs.generate(
            torch.tensor([row]), num_beams=width, length_penalty=penalty, max_length=None, max_new_tokens=16,
            early_stopping="never" if width > 1 else False, do_sample=False, output_scores=True,
            return_dict_in_generate=True,
        )  # fmt: skip
        written = theirs.sequences[0, 1:].tolist()
        pad = both.ours.config.pad_id
        written = [token for token in written if token != pad]
        if width == 1 or written[-1] in both.ours.config.end_ids:  # those that the limit cuts off rank differently
            assert best.tokens == written
            if width > 1:
                assert best.ranking == pytest.approx(theirs.sequences_scores[0].item(), abs=1e-6)  # in float32
            ended += best.finished
    assert ended or penalty >= 1  # which prefers long texts


def test_cached_is_uncached(both: Both) -> None:
    rows = sources(both, 3)
    cached, recomputed = (
        generate_tokens(both.ours, rows, search=regard.Sample(seed=3), max_tokens=15, cached=cached)
        for cached in (True, False)
    )
    for (one,), (other,) in zip(cached, recomputed, strict=True):
        assert one.tokens == other.tokens
        assert one.logps == pytest.approx(other.logps, abs=1e-10)


def test_scores(both: Both) -> None:
    rows, targets = sources(both, 3), [[5, 9, 0], [0], [7, 7, 8, 12, 0]]
    for row, target, scored in zip(rows, targets, score_tokens(both.ours, rows, targets), strict=True):
        read_by_decoder = torch.tensor([[both.ours.config.start_id, *target[:-1]]])
        with torch.no_grad():
            logits = both.theirs(input_ids=torch.tensor([row]), decoder_input_ids=read_by_decoder).logits[0]
        expected = logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None])[:, 0]
        assert scored.logps == pytest.approx(expected.tolist(), abs=1e-9)


def test_the_table_of_weights_leads_back(both: Both) -> None:
    imported = read(both.source)
    ours = dict(imported.weights())
    restored = dict(imported.table.write(ours.__getitem__))
    stored = {name: imported.folder.get(name) for name in restored}
    assert restored.keys() == {*imported.folder.shapes} - {"encoder.embed_tokens.weight", "lm_head.weight"} | (
        restored.keys() & {"encoder.embed_tokens.weight"}
    )
    assert all(torch.equal(restored[name], stored[name]) for name in stored)


def test_texts(both: Both) -> None:
    """The tokens of transformers' tokenizer on both sides, and translations in the C decoder, in int8 and in Python."""
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(both.source, local_files_only=True)
    translator = regard.load(both.folder, device="cpu")
    for text in [*TEXTS, *FRENCH]:
        assert translator.read(text).ids == theirs(text)["input_ids"]
        assert translator.read(text).words or not text
    for text in ENGLISH:
        ids = theirs(text_target=text)["input_ids"]
        assert translator.target_tokenizer.encode(text) == ids[:-1]
        decoded = theirs.decode(ids, skip_special_tokens=True, use_source_tokenizer=False)
        assert translator.target_tokenizer.decode(ids) == decoded
    found = translator.translate(FRENCH, guard=False, max_tokens=20)
    plain = generate_tokens(
        both.ours, [translator.read(text).ids for text in FRENCH], search=regard.Beam(4), max_tokens=20
    )
    assert [translation.ids for translation in found] == [best.tokens for best, *_ in plain]
    assert regard.load(both.folder, device="cpu", dtype="int8").translate(FRENCH[0]).text
