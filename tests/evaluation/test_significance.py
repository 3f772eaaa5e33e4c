"""The paired bootstrap against sacreBLEU's own."""

from __future__ import annotations

import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from regard.errors import DataError
from regard.evaluation.bleu import corpus_bleu
from regard.evaluation.significance import paired_bootstrap

from ..repeats import some


@pytest.mark.parametrize(("metric", "theirs", "name"), [("bleu", BLEU, "BLEU"), ("chrf", CHRF, "chrF2")])
@pytest.mark.parametrize("errors", some([0.28, 0.32, 0.36], 2))
def test_against_sacrebleus_paired_test(metric, theirs, name, errors, references, system) -> None:
    """The same resamples with sacreBLEU's seed, so the same p-value but for its float32."""
    baseline, other = system(0.3, 1), system(errors, 2)
    _, results = PairedTest(
        [("a", baseline), ("b", other)], {"m": theirs()}, [references], test_type="bs", n_samples=1000
    )()
    comparison = paired_bootstrap(baseline, other, references, metric=metric, samples=1000, seed=12345)
    a, b = results[name]
    assert comparison.a.value == a.score
    assert comparison.b.value == b.score
    assert comparison.difference == pytest.approx(b.score - a.score)
    assert comparison.p_value == pytest.approx(b.p_value, abs=2.1 / 1001)
    for score, result in ((comparison.a, a), (comparison.b, b)):
        assert (score.interval[1] - score.interval[0]) / 2 == pytest.approx(result.ci, abs=1e-3)


def test_a_clear_winner(references, system) -> None:
    worse, better = system(0.5, 1), system(0.2, 2)
    comparison = paired_bootstrap(worse, better, references, samples=200)
    assert comparison.difference == corpus_bleu(better, references).value - corpus_bleu(worse, references).value > 5
    assert 0 < comparison.interval[0] < comparison.difference < comparison.interval[1]
    assert comparison.wins == 1
    assert comparison.p_value == 1 / 201
    back = paired_bootstrap(better, worse, references, samples=200)
    assert back.difference == -comparison.difference
    assert back.interval == (-comparison.interval[1], -comparison.interval[0])
    assert back.wins == 0
    assert back.p_value == comparison.p_value


def test_resamples_are_paired(references, system) -> None:
    """Two systems with one sentence between them differ by far less than each one moves."""
    one = system(0.3)
    other = [references[0], *one[1:]]
    comparison = paired_bootstrap(one, other, references, samples=200)
    moves = comparison.a.interval[1] - comparison.a.interval[0]
    assert comparison.interval[1] - comparison.interval[0] < moves / 5


def test_a_system_and_itself(references, system) -> None:
    same = paired_bootstrap(system(0.3), system(0.3), references, samples=50)
    assert (same.difference, same.interval, same.wins, same.p_value) == (0, (0, 0), 0, 1)


def test_equally_good_systems_are_not_told_apart(references, system) -> None:
    comparison = paired_bootstrap(system(0.3, 3), system(0.3, 4), references, samples=300)
    assert comparison.p_value > 0.05
    assert comparison.interval[0] < 0 < comparison.interval[1]
    assert 0 < comparison.wins < 1


def test_to_dict_and_errors(references) -> None:
    comparison = paired_bootstrap(references, references, references, samples=40)
    assert comparison.to_dict()["a"]["name"] == "BLEU"
    assert comparison.to_dict()["p_value"] == 1
    with pytest.raises(DataError, match="1 hypotheses but 2 references"):
        paired_bootstrap(["a", "b"], ["a"], ["a", "b"])
