"""Imported translation models compute and write what transformers does with the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from small_translators import ENGLISH, FRENCH, TEXTS, in_float64, make_fairseq, make_marian, make_t5

import regard
from regard.decoding.engine import generate_tokens
from regard.decoding.forced import score_tokens
from regard.errors import UsageError
from regard.interop import import_model, read

MAKERS: dict[str, Any] = {
    "marian": make_marian,
    "marian-separate": lambda folder: make_marian(folder, separate=True, activation_function="relu"),
    "m2m_100": lambda folder: make_fairseq(folder, "m2m_100"),
    "mbart": lambda folder: make_fairseq(folder, "mbart", activation_function="gelu"),
    "t5": make_t5,
    "flan-t5": lambda folder: make_t5(folder, untied=True, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
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
    config = both.ours.config
    unused = range(config.tokenizer_size or config.target_vocabulary, config.target_vocabulary)
    barred = [[token] for token in (*config.barred_ids, *unused)] or None
    ended = 0
    for row, (best, *_) in zip(rows, ours, strict=True):
        theirs = both.theirs.generate(
            torch.tensor([row]), num_beams=width, length_penalty=penalty, max_length=None, max_new_tokens=16,
            early_stopping="never" if width > 1 else False, do_sample=False, bad_words_ids=barred, output_scores=True,
            return_dict_in_generate=True,
        )  # fmt: skip
        written = theirs.sequences[0, 1:].tolist()
        while config.pad_id in written[-1:]:
            written.pop()
        if width == 1 or {*written[-1:]} & {*config.end_ids}:  # those that the limit cuts off rank differently
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
    end = both.ours.config.end_ids[0]
    rows, targets = sources(both, 3), [[5, 9, end], [end], [7, 7, 8, 12, end]]
    for row, target, scored in zip(rows, targets, score_tokens(both.ours, rows, targets), strict=True):
        read_by_decoder = torch.tensor([[both.ours.config.start_id, *target[:-1]]])
        with torch.no_grad():
            logits = both.theirs(input_ids=torch.tensor([row]), decoder_input_ids=read_by_decoder).logits[0]
        expected = logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None])[:, 0]
        assert scored.logps == pytest.approx(expected.tolist(), abs=1e-9)


def test_the_table_of_weights_leads_back(both: Both) -> None:
    """Bitwise; T5's queries and last norm are scaled, which rounds."""
    imported = read(both.source)
    ours = dict(imported.weights())
    restored = dict(imported.table.write(ours.__getitem__))
    copies = ("embed_tokens.weight", "lm_head.weight")
    assert all(name.endswith(copies) for name in imported.folder.shapes.keys() - restored.keys())
    tolerance = 1e-6 if "t5" in str(both.source) else 0.0
    for name, weight in restored.items():
        skipped = 2 if "mbart" in str(both.source) and "embed_positions" in name else 0
        torch.testing.assert_close(weight[skipped:], imported.folder.get(name)[skipped:], rtol=tolerance, atol=0)


def test_texts(both: Both) -> None:
    """The tokens of transformers' tokenizer on both sides, and translations in the C decoder, in int8 and in Python."""
    import transformers

    if "marian" not in str(both.source):
        return
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


def test_languages_of_m2m100(tmp_path: Path) -> None:
    """The code of the source comes before it, and that of the target is the first token that is written."""
    original = make_fairseq(tmp_path / "m2m", "m2m_100").model.double()
    translator = regard.load(import_model(tmp_path / "m2m", tmp_path / "out"), device="cpu", dtype="float64")
    assert translator.languages == ["eng_Latn", "fra_Latn"]
    with pytest.raises(UsageError, match="give the source language"):
        translator.translate(FRENCH[0])
    options = {"search": regard.Greedy(), "max_tokens": 9, "guard": False}
    found = translator.translate(FRENCH, source="fra_Latn", target="eng_Latn", **options)
    codes = translator.frame.codes
    for text, translation in zip(FRENCH, found, strict=True):
        source = [codes["fra_Latn"], *translator.tokenizer.encode(text), 2]
        assert translation.source_ids == source
        theirs = original.generate(
            torch.tensor([source]), forced_bos_token_id=codes["eng_Latn"], max_length=None, max_new_tokens=10
        )[0, 1:].tolist()
        assert translation.ids == theirs
        assert "eng_Latn" not in translation.text
    fixed = translator.between("fra_Latn", "eng_Latn")
    assert fixed.score(FRENCH[0], ENGLISH[0]).logps  # everything else uses these languages
    assert fixed.translate(FRENCH[0], **options).ids == found[0].ids


def test_languages_of_mbart_25(tmp_path: Path) -> None:
    """The code ends the source, and that of the target is the start token, which the folder fixes."""
    folder = make_fairseq(tmp_path / "mbart", "mbart").folder
    tokenizer = read(folder).tokenizer
    start = tokenizer.special["en_XX"]
    path = folder / "generation_config.json"
    path.write_text(path.read_text().replace('"decoder_start_token_id": 2', f'"decoder_start_token_id": {start}'))
    translator = regard.load(import_model(folder, tmp_path / "out"), device="cpu")
    source = translator.between("fr_XX").read(FRENCH[0])
    assert source.ids[-2:] == [2, tokenizer.special["fr_XX"]]
    assert translator.special.start == start
    assert [word.text for word in source.words] == FRENCH[0].split()


def test_t5_reads_task_words(tmp_path: Path) -> None:
    original = make_t5(tmp_path / "t5").model.double()
    translator = regard.load(import_model(tmp_path / "t5", tmp_path / "out"), device="cpu", dtype="float64")
    found = translator.translate(FRENCH[0], search=regard.Greedy(), max_tokens=9, guard=False)
    unused = [[token] for token in range(translator.tokenizer.size, original.config.vocab_size)]
    source = [*translator.tokenizer.encode(FRENCH[0]), 1]
    theirs = original.generate(torch.tensor([source]), max_length=None, max_new_tokens=9, bad_words_ids=unused)
    assert found.source_ids == source and found.ids == theirs[0, 1:].tolist()
