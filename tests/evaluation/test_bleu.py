"""BLEU and chrF against sacreBLEU's own corpus scores and its own bootstrap."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sacrebleu.metrics import BLEU, CHRF

from regard.errors import DataError, UsageError
from regard.evaluation.bleu import SEED, bootstrap_interval, corpus_bleu, corpus_chrf, count_sentences

sentence = st.text("abcé ,.'A", max_size=20)


@given(st.data())
def test_scores_are_sacrebleus_exactly(data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(sentence, sentence), min_size=1, max_size=8))
    hypotheses, references = map(list, zip(*pairs, strict=True))
    lowercase = data.draw(st.booleans())
    tokenize = data.draw(st.sampled_from(["13a", "intl", "char", "none"]))
    bleu = BLEU(tokenize=tokenize, lowercase=lowercase)
    ours = corpus_bleu(hypotheses, references, tokenize=tokenize, lowercase=lowercase)
    assert ours.value == bleu.corpus_score(hypotheses, [references]).score
    assert ours.signature == bleu.get_signature().format()
    chrf = CHRF(lowercase=lowercase)
    ours = corpus_chrf(hypotheses, references, lowercase=lowercase)
    assert ours.value == chrf.corpus_score(hypotheses, [references]).score
    assert ours.signature == chrf.get_signature().format()


def test_score_of_real_size(references, system) -> None:
    hypotheses = system(0.3)
    score = corpus_bleu(hypotheses, references)
    assert score.value == BLEU().corpus_score(hypotheses, [references]).score
    assert 20 < score.value < 60
    assert score.name == "BLEU"
    assert score.interval is None
    assert re.fullmatch(r"nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:\S+", score.signature)
    assert str(score) == f"BLEU {score.value:.1f} ({score.signature})"
    assert corpus_bleu(references, references).value == pytest.approx(100)
    assert corpus_chrf(references, references).name == "chrF2"


@pytest.mark.parametrize(("ours", "theirs"), [(corpus_bleu, BLEU), (corpus_chrf, CHRF)])
def test_interval_is_that_of_sacrebleus_bootstrap(ours, theirs, references, system) -> None:
    """With sacreBLEU's seed the resamples are the same; it counts in float32, hence the tolerance."""
    hypotheses = system(0.3)
    score = ours(hypotheses, references, samples=1000, seed=12345)
    metric = theirs()
    expected = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
    low, high = score.interval
    assert (high - low) / 2 == pytest.approx(expected._ci, abs=1e-3)
    assert (low + high) / 2 == pytest.approx(expected._mean, abs=0.2)
    assert low < score.value < high
    assert score.signature == metric.get_signature().format()
    assert "bs:1000|seed:12345" in score.signature
    assert f"[{low:.1f}, {high:.1f}]" in str(score)


def test_other_seeds_draw_other_resamples(references, system) -> None:
    counts = count_sentences(system(0.3), references)
    a, again, other = (counts.resampled(samples=200, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, again)
    assert not np.array_equal(a, other)
    assert a.std() == pytest.approx(other.std(), rel=0.3)
    assert a.mean() == pytest.approx(counts.score().value, abs=3 * a.std() / np.sqrt(200) + 0.1)


def test_resampling_against_plain_repetition(references, system) -> None:
    """The first resample is the score of a corpus in which sentences are repeated as drawn."""
    hypotheses = system(0.4)
    counts = count_sentences(hypotheses, references, metric="chrf")
    drawn = np.random.default_rng(5).integers(len(references), size=len(references))
    corpus = [[side[i] for i in drawn] for side in (hypotheses, references)]
    assert counts.resampled(samples=1, seed=5)[0] == CHRF().corpus_score(corpus[0], [corpus[1]]).score


def test_counts_of_some_sentences(references, system) -> None:
    hypotheses = system(0.3)
    which = np.array([4, 17, 250])
    part = count_sentences(hypotheses, references).take(which)
    expected = BLEU().corpus_score([hypotheses[i] for i in which], [[references[i] for i in which]])
    assert len(part) == 3
    assert part.score().value == expected.score


def test_bootstrap_interval_cuts_one_in_forty_at_each_end() -> None:
    assert bootstrap_interval(np.arange(1000.0)[::-1]) == (25.0, 974.0)
    assert bootstrap_interval(np.array([3.0, 1.0, 2.0])) == (1.0, 3.0)


def test_to_dict_is_plain() -> None:
    score = corpus_bleu(["a b c d"], ["a b c d"], samples=40, seed=SEED)
    hundred = pytest.approx(100)
    assert score.to_dict() == {
        "name": "BLEU", "value": hundred, "signature": score.signature, "interval": (hundred, hundred),
    }  # fmt: skip


def test_errors() -> None:
    with pytest.raises(DataError, match="there are 2 hypotheses but 3 references"):
        corpus_bleu(["a", "b"], ["a", "b", "c"])
    with pytest.raises(DataError, match="there are no sentences to score"):
        corpus_chrf([], [])
    for one_text in (("abc", "abc"), ("abc", ["a", "b", "c"]), (["a", "b", "c"], "abc")):
        with pytest.raises(TypeError, match="lists of sentences, got one text"):
            corpus_bleu(*one_text)
    with pytest.raises(UsageError, match="unknown metric 'bleau'; did you mean 'bleu'"):
        count_sentences(["a"], ["a"], metric="bleau")
    with pytest.raises(UsageError, match="unknown tokenize '13'; did you mean '13a'"):
        corpus_bleu(["a"], ["a"], tokenize="13")
    with pytest.raises(UsageError, match="samples must be at least 1, got -1"):
        corpus_bleu(["a"], ["a"], samples=-1)


def test_a_splitter_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**_: object) -> None:
        raise RuntimeError("\nJapanese needs\n    pip install sacrebleu[ja]\n")

    monkeypatch.setattr("sacrebleu.metrics.bleu.BLEU", missing)
    with pytest.raises(UsageError, match=r"tokenize='ja-mecab' cannot be used here: Japanese needs pip install sacreb"):
        corpus_bleu(["a"], ["a"], tokenize="ja-mecab")
