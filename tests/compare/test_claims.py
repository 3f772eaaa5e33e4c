"""The text under the table: each claim of the lectures is judged by the numbers, also when it fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from regard.compare.claims import (
    FAILS,
    HOLDS,
    OPEN,
    PARTLY,
    Claim,
    Drop,
    SystemResult,
    judge_claims,
    length_drop,
)
from regard.compare.report import Outcome
from regard.compare.systems import SYSTEMS
from regard.evaluation.bleu import Score
from regard.evaluation.by_length import Bucket
from regard.evaluation.significance import Comparison

ATTENTION, LENGTH, SCORES, ALONE, PARALLEL, ALIGNS = range(6)


def score(value: float, spread: float = 1.0) -> Score:
    return Score("BLEU", value, "nrefs:1", (value - spread, value + spread))


def made(
    name: str,
    bleu: float,
    *,
    by_length: tuple[float, ...] | None = None,
    aer: float | None = 0.2,
    speed: float = 1000.0,
    memory: int | None = 300 * 2**20,
) -> SystemResult:
    values = (bleu, bleu) if by_length is None else by_length
    buckets = [Bucket(5 * i + 1, 5 * i + 5, 200, score(v), score(v)) for i, v in enumerate(values)]
    return SystemResult(
        name=name,
        title=SYSTEMS[name].title,
        parameters=1_000_000,
        steps=100,
        tokens=90_000,
        seconds=90_000 / speed,
        memory=memory,
        bleu=score(bleu),
        chrf=score(bleu),
        buckets=buckets,
        aer=aer,
        curve=[(45_000, bleu / 2), (90_000, bleu)],
        decoding_seconds=1.0,
    )


def outcome(*results: SystemResult, diagonal: float | None = 0.5, noise: float = 1.0) -> Outcome:
    """Each two systems compared: a difference larger than `noise` is significant."""
    pairs = {}
    for i, a in enumerate(results):
        for b in results[i + 1 :]:
            d = b.bleu.value - a.bleu.value
            p = 0.001 if abs(d) > noise else 0.4
            pairs[a.name, b.name] = Comparison(a.bleu, b.bleu, d, (d - noise, d + noise), 0.5, p)
    return Outcome({result.name: result for result in results}, pairs, diagonal=diagonal, seed=3)


def as_in_the_lectures() -> list[SystemResult]:
    return [
        made("rnn", 50, by_length=(80, 20), aer=None, speed=900),
        made("bahdanau", 90, by_length=(91, 90), aer=0.2, speed=500),
        made("luong-dot", 85, by_length=(88, 80), aer=0.3, speed=800),
        made("luong-bilinear", 90.5, by_length=(90, 91), aer=0.25, speed=700),
        made("transformer", 96, by_length=(96, 95), aer=0.15, speed=1500),
        made("transformer-post", 97, by_length=(97, 96), aer=0.16, speed=1400),
    ]


def judged(results: list[SystemResult], which: int) -> Claim:
    return outcome(*results).claims[which]


def test_all_as_in_the_lectures() -> None:
    claims = outcome(*as_in_the_lectures()).claims
    assert [claim.verdict for claim in claims] == [HOLDS, PARTLY, "in part", HOLDS, HOLDS, HOLDS]
    assert "RNN + Bahdanau +40.0 [+39.0, +41.0], p = 0.001" in claims[ATTENTION].evidence
    length = claims[LENGTH].evidence
    # 20 of 80 are left, ±1 each: the relative error is sqrt(1/400 + 1/6400), about 5% of a quarter.
    assert "to 6–10 words: RNN 75% [74%, 76%], from 80.0 at 1–5 words to 20.0" in length
    assert "RNN + Bahdanau 1% [-0%, 3%], from 91.0 at 1–5 words to 90.0 (no significant loss)" in length
    assert "RNN + Luong dot 9% [8%, 11%], from 88.0 at 1–5 words to 80.0 (a smaller loss)" in length
    assert "Luong bilinear 0% [0%, 0%], from 91.0 at 6–10 words to 91.0 (no significant loss)" in length
    assert claims[SCORES].evidence.startswith("Most BLEU has RNN + Luong bilinear: over RNN + Bahdanau +0.5 [-0.5,")
    assert "system, RNN + Luong bilinear: Transformer, pre-norm +5.5 [+4.5, +6.5]" in claims[ALONE].evidence
    post = "Transformer, post-norm"
    assert f"Transformer, pre-norm 1,500; {post} 1,400; RNN 900; RNN + Bahdanau 500" in claims[PARALLEL].evidence
    assert f"{post} 16.0%; RNN + Bahdanau 20.0%; RNN + Luong bilinear 25.0%" in claims[ALIGNS].evidence
    assert "for words taken in order 50.0%" in claims[ALIGNS].evidence


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ((50, 40, 41, 42), FAILS),
        ((50, 50.4, 49.8, 50), OPEN),
        ((50, 60, 50.2, 45), PARTLY),
        ((50, 50.4, 45, 50), FAILS),
        ((50, 60, 60, 60), HOLDS),
    ],
)
def test_attention_that_does_not_help_is_told(scores: tuple[float, ...], verdict: str) -> None:
    names = ("rnn", "bahdanau", "luong-dot", "luong-bilinear")
    claim = judged([made(name, value) for name, value in zip(names, scores, strict=True)], ATTENTION)
    assert claim.verdict == verdict
    assert str(claim).startswith(f"With attention BLEU is better (D17): {verdict}. ")


@pytest.mark.parametrize(
    ("without", "with_attention", "verdict", "said"),
    [
        ((50, 50), (90, 90), OPEN, "no significant loss"),  # nothing falls
        ((50, 50), (60, 90), OPEN, "no significant loss"),  # only with attention are they better
        ((50, 70), (90, 90), FAILS, "no significant loss"),  # without attention long sentences are better
        ((80, 50), (90, 57), OPEN, "no significantly smaller loss"),
        ((80, 50), (90, 40), FAILS, "a larger loss"),
        ((80, 50), (90, 80), PARTLY, "a smaller loss"),  # the claim is that nothing is lost
        ((80, 50), (90, 95), HOLDS, "no significant loss"),
    ],
)
def test_quality_by_length(
    without: tuple[float, float], with_attention: tuple[float, float], verdict: str, said: str
) -> None:
    results = [made("rnn", 60, by_length=without), made("bahdanau", 80, by_length=with_attention)]
    claim = judged(results, LENGTH)
    assert claim.verdict == verdict
    assert claim.evidence.endswith(f"({said}).")


def test_each_system_is_measured_from_the_length_at_which_it_is_best() -> None:
    """A system that is poor on short sentences too must not pass for one that loses nothing on long ones."""
    results = [made("rnn", 60, by_length=(80, 5, 50)), made("bahdanau", 38, by_length=(31, 42, 33))]
    claim = judged(results, LENGTH)
    assert "RNN 38% [36%, 39%], from 80.0 at 1–5 words to 50.0" in claim.evidence
    assert "RNN + Bahdanau 21% [18%, 24%], from 42.0 at 6–10 words to 33.0 (a smaller loss)" in claim.evidence
    assert claim.verdict == PARTLY


def test_one_bucket_tells_nothing_of_length() -> None:
    results = [made("rnn", 60, by_length=(60,)), made("bahdanau", 80, by_length=(80,))]
    assert judged(results, LENGTH).verdict == OPEN


def test_scores_that_cannot_be_told_apart() -> None:
    close = [made("bahdanau", 90), made("luong-dot", 90.3), made("luong-bilinear", 89.9)]
    assert outcome(*close).claims[0].verdict == OPEN
    clear = [made("bahdanau", 80), made("luong-dot", 90.3), made("luong-bilinear", 85)]
    claim = outcome(*clear).claims[0]
    assert claim.verdict == "yes"
    assert "RNN + Luong dot: over RNN + Bahdanau +10.3" in claim.evidence


@pytest.mark.parametrize(("bleu", "verdict"), [(99, HOLDS), (90.5, OPEN), (80, FAILS)])
def test_a_transformer_that_is_not_ahead(bleu: float, verdict: str) -> None:
    results = [made("rnn", 50), made("bahdanau", 90), made("transformer", bleu)]
    assert judged(results, 2).verdict == verdict  # with one score there is no claim about scores
    assert f"RNN + Bahdanau: Transformer, pre-norm {bleu - 90:+.1f}" in judged(results, 2).evidence


def test_a_difference_that_reads_as_nothing_is_none() -> None:
    """However small its p-value: two systems at BLEU 0 differ in the third digit."""
    assert outcome(made("rnn", 0.01), made("bahdanau", 0.03), noise=0.001).claims[0].verdict == OPEN


def test_a_difference_needs_its_p_value_too() -> None:
    results = {name: made(name, bleu) for name, bleu in (("rnn", 50), ("bahdanau", 55))}
    for p_value, verdict in ((0.04, HOLDS), (0.06, OPEN)):
        pair = Comparison(score(50), score(55), 5.0, (0.5, 9.5), 0.9, p_value)
        assert judge_claims(results, {("rnn", "bahdanau"): pair}, None)[0].verdict == verdict


@pytest.mark.parametrize(("speed", "verdict"), [(2000, HOLDS), (700, PARTLY), (400, FAILS)])
def test_a_slow_transformer(speed: float, verdict: str) -> None:
    results = [made("rnn", 50, speed=900), made("bahdanau", 90, speed=500), made("transformer", 95, speed=speed)]
    assert judged(results, 3).verdict == verdict


@pytest.mark.parametrize(("rates", "verdict"), [((0.2, 0.3), HOLDS), ((0.2, 0.6), PARTLY), ((0.9, 0.6), FAILS)])
def test_attention_that_does_not_align(rates: tuple[float, float], verdict: str) -> None:
    results = [made("rnn", 50, aer=None), made("bahdanau", 90, aer=rates[0]), made("luong-dot", 90, aer=rates[1])]
    assert judged(results, -1).verdict == verdict


def test_claims_about_systems_that_were_not_compared_are_left_out() -> None:
    assert outcome(made("rnn", 50, aer=None)).claims == []
    only = outcome(made("bahdanau", 90), made("transformer", 95), diagonal=None).claims
    assert [claim.claim[-4:] for claim in only] == ["(H3)", "(H1)"]
    assert judge_claims({}, {}, None) == []


def test_length_drop_by_hand() -> None:
    """80 in [79, 82], then 60 in [56, 63]: a quarter is lost. 60/80 errs up by 3/60 and 1/80, down by 4/60 and 2/80."""
    short = Bucket(1, 5, 200, Score("BLEU", 80, "", (79, 82)), score(0))
    long = Bucket(6, 9, 200, Score("BLEU", 60, "", (56, 63)), score(0))
    drop = length_drop([short, long])
    assert isinstance(drop, Drop)
    assert drop.value == 0.25
    up, down = (0.05**2 + (1 / 80) ** 2) ** 0.5, ((4 / 60) ** 2 + (2 / 80) ** 2) ** 0.5
    assert drop.interval == pytest.approx((1 - 0.75 * (1 + up), 1 - 0.75 * (1 - down)))


def test_the_table() -> None:
    heading, rows = outcome(*as_in_the_lectures()).table()
    assert heading == ["system", "BLEU", "AER", "parameters", "time", "tokens/s", "memory"]
    assert rows[0] == ["RNN", "50.0 [49.0, 51.0]", "–", "1,000,000", "1 min 40 s", "900", "300 MB"]
    assert [row[0] for row in rows] == [system.title for system in SYSTEMS.values()]


def test_a_column_without_numbers_is_left_out() -> None:
    heading, rows = outcome(made("rnn", 50, aer=None, memory=None), made("bahdanau", 60, aer=None, memory=None)).table()
    assert heading == ["system", "BLEU", "parameters", "time", "tokens/s"]
    assert {len(row) for row in rows} == {5}


def test_the_report_says_how_the_numbers_came_about() -> None:
    results = as_in_the_lectures()
    first, second = outcome(replace(results[0], parameters=1_100_000), *results[1:]).notes()
    assert "the same 90,000 target tokens in the same order (100 steps)" in first
    assert "are 10% above the fewest" in first and "nrefs:1" in first
    assert "seed 3" in second


def test_files(tmp_path: Path) -> None:
    found = outcome(*as_in_the_lectures())
    found.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"table.md", "results.json", "by-length.png", "learning.png"}
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    for claim in found.claims:
        assert claim.evidence in text
    assert text.splitlines()[1].count("---:") == 6
    told = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert told["systems"]["rnn"]["tokens_per_second"] == pytest.approx(900)
    assert len(told["comparisons"]) == 15 and told["claims"][0]["verdict"] == HOLDS
    assert (tmp_path / "by-length.png").read_bytes().startswith(b"\x89PNG")
