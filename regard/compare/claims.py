"""Check the lectures' claims about the systems against the numbers of a comparison.

D16, D17, H1, H3. Every sentence is computed from the results, whether it agrees with the lectures or not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from regard.evaluation.bleu import Interval, Score
from regard.evaluation.by_length import Bucket
from regard.evaluation.significance import Comparison

WITHOUT, ALONE = "rnn", "transformer"  # without attention; with nothing but attention
LEVEL = 0.05  # of significance

HOLDS, PARTLY, FAILS, OPEN = "holds here", "holds in part here", "does not hold here", "cannot be told here"


@dataclass(frozen=True)
class SystemResult:
    """The scores of one system on the test part, and the cost of its training."""

    name: str
    title: str
    parameters: int
    steps: int
    tokens: int  # target tokens seen
    seconds: float  # in training steps; validation is not counted
    memory: int | None  # bytes, the peak of the training process
    bleu: Score
    chrf: Score
    buckets: Sequence[Bucket]  # by length of the source
    aer: float | None  # alignment error rate; None without attention or without gold
    curve: Sequence[tuple[int, float]]  # target tokens seen, validation BLEU
    decoding_seconds: float  # of the whole test part

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "tokens_per_second": self.tokens_per_second}


class Claim(NamedTuple):
    """A claim of the lectures, the verdict, and the numbers that support it."""

    claim: str
    verdict: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.claim}: {self.verdict}. {self.evidence}"


class Drop(NamedTuple):
    """How many BLEU points are lost from the shortest sentences to the longest."""

    value: float
    interval: Interval

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.interval[0]:.1f}, {self.interval[1]:.1f}]"


Results = Mapping[str, SystemResult]
Pairs = Mapping[tuple[str, str], Comparison]  # (a, b) in the order of the results: how far b is ahead of a


def judge_claims(results: Results, pairs: Pairs, diagonal: float | None) -> list[Claim]:
    """Judge each claim whose systems were compared; `diagonal` is the error rate of aligning words in order."""
    judged = (
        attention_helps(results, pairs),
        length_matters(results),
        scores_differ(results, pairs),
        attention_alone(results, pairs),
        attention_is_parallel(results),
        attention_aligns(results, diagonal),
    )
    return [claim for claim in judged if claim is not None]


def attention_helps(results: Results, pairs: Pairs) -> Claim | None:
    """D17, its first half."""
    attending = _attending(results)
    if WITHOUT not in results or not attending:
        return None
    found = {name: _ahead(pairs, name, over=WITHOUT) for name in attending}
    signs = [_sign(comparison) for comparison in found.values()]
    told = [f"{results[name].title} {_difference(comparison)}" for name, comparison in found.items()]
    evidence = f"Against the {results[WITHOUT].title} without it: {'; '.join(told)}."
    return Claim("With attention BLEU is better (D17)", _verdict(signs), evidence)


def length_matters(results: Results) -> Claim | None:
    """D17, its second half: without attention quality falls on long sentences, with it it holds."""
    attending = _attending(results)
    if WITHOUT not in results or not attending:
        return None
    name = "Without attention long sentences suffer, with it they do not (D17)"
    buckets = results[WITHOUT].buckets
    if len(buckets) < 2:
        return Claim(name, OPEN, "All test sentences are in one bucket of lengths.")
    drops = {system: length_drop(results[system].buckets) for system in (WITHOUT, *attending)}
    gains = {system: _less(drops[WITHOUT], drops[system]) for system in attending}
    if drops[WITHOUT].interval[0] > 0:
        verdict = _verdict([_side(gain.interval) for gain in gains.values()])
    else:
        verdict = FAILS if drops[WITHOUT].interval[1] < 0 else OPEN
    lengths = f"from {_lengths(buckets[0])} to {_lengths(buckets[-1])} words"
    told = [f"{results[system].title} {drops[system]} ({_kept(drops[system], gains[system])})" for system in attending]
    evidence = f"BLEU lost {lengths}: {results[WITHOUT].title} {drops[WITHOUT]}; {'; '.join(told)}."
    return Claim(name, verdict, evidence)


def scores_differ(results: Results, pairs: Pairs) -> Claim | None:
    """D5, D15: the lectures prefer none of the scores, so the verdict is only whether they differ."""
    attending = _attending(results)
    if len(attending) < 2:
        return None
    best = max(attending, key=lambda name: results[name].bleu.value)
    rest = {name: _ahead(pairs, best, over=name) for name in attending if name != best}
    beaten = [name for name, comparison in rest.items() if _sign(comparison) > 0]
    told = [f"over {results[name].title} {_difference(comparison)}" for name, comparison in rest.items()]
    verdict = "yes" if len(beaten) == len(rest) else "in part" if beaten else OPEN
    evidence = f"Most BLEU has {results[best].title}: {'; '.join(told)}."
    return Claim("One score of attention is the best (D5, D15)", verdict, evidence)


def attention_alone(results: Results, pairs: Pairs) -> Claim | None:
    """H3: attention works alone."""
    recurrent = [name for name in results if name != ALONE]
    if ALONE not in results or not recurrent:
        return None
    best = max(recurrent, key=lambda name: results[name].bleu.value)
    comparison = _ahead(pairs, ALONE, over=best)
    evidence = f"{results[ALONE].title} over the best recurrent system, {results[best].title}: "
    return Claim(
        "Attention alone is better than recurrent nets (H3)",
        _verdict([_sign(comparison)]),
        evidence + f"{_difference(comparison)}.",
    )


def attention_is_parallel(results: Results) -> Claim | None:
    """H1: no step waits for the one before, so training is faster. Time is a result, not a setting."""
    recurrent = [result for name, result in results.items() if name != ALONE]
    if ALONE not in results or not recurrent:
        return None
    own = results[ALONE].tokens_per_second
    told = [f"{result.title} {result.tokens_per_second:,.0f}" for result in recurrent]
    signs = [1 if own > result.tokens_per_second else -1 for result in recurrent]
    evidence = f"Target tokens a second on this machine: {results[ALONE].title} {own:,.0f}; {'; '.join(told)}."
    return Claim("Without recurrence training is faster (H1)", _verdict(signs), evidence)


def attention_aligns(results: Results, diagonal: float | None) -> Claim | None:
    """D16: where a system looks while it writes a word is the word it translates."""
    rates = {name: result.aer for name, result in results.items() if result.aer is not None}
    if not rates or diagonal is None:
        return None
    signs = [1 if rate < diagonal else -1 for rate in rates.values()]
    told = [f"{results[name].title} {rate:.1%}" for name, rate in sorted(rates.items(), key=lambda item: item[1])]
    evidence = f"Alignment error rates, the lowest is best: {'; '.join(told)}; for words taken in order {diagonal:.1%}."
    return Claim("Attention finds which words belong together (D16)", _verdict(signs), evidence)


def length_drop(buckets: Sequence[Bucket]) -> Drop:
    """BLEU of the shortest sentences less that of the longest.

    The buckets have no sentence in common, so the two intervals combine like independent errors (Zou & Donner 2008).
    """
    return _less(*(Drop(score.value, _interval(score)) for score in (buckets[0].bleu, buckets[-1].bleu)))


def _less(a: Drop, b: Drop) -> Drop:
    """a - b with its interval; too wide where a and b go up and down together, so never too sure."""
    value = a.value - b.value
    low = value - math.hypot(a.value - a.interval[0], b.interval[1] - b.value)
    high = value + math.hypot(a.interval[1] - a.value, b.value - b.interval[0])
    return Drop(value, (low, high))


def _kept(drop: Drop, gain: Drop) -> str:
    """What the drop of a system with attention says."""
    if drop.interval[0] <= 0:
        return "no fall to be told"
    return {1: "a smaller fall", 0: "as large a fall, as far as can be told", -1: "a larger fall"}[_side(gain.interval)]


def _attending(results: Results) -> list[str]:
    """The recurrent systems with attention."""
    return [name for name in results if name not in (WITHOUT, ALONE)]


def _ahead(pairs: Pairs, name: str, *, over: str) -> tuple[float, Interval, float]:
    """How far a system is ahead of another: difference, interval, p-value."""
    if (over, name) in pairs:
        found = pairs[over, name]
        return found.difference, found.interval, found.p_value
    found = pairs[name, over]
    return -found.difference, (-found.interval[1], -found.interval[0]), found.p_value


def _sign(comparison: tuple[float, Interval, float]) -> int:
    """1: ahead, -1: behind, 0: cannot be told; what reads as 0.0 is no difference."""
    difference, interval, p_value = comparison
    return 0 if p_value >= LEVEL or abs(difference) < 0.05 else _side(interval)


def _side(interval: Interval) -> int:
    return 1 if interval[0] > 0 else -1 if interval[1] < 0 else 0


def _verdict(signs: Sequence[int]) -> str:
    """Of a claim that says that all signs are 1."""
    if all(sign > 0 for sign in signs):
        return HOLDS
    if any(sign > 0 for sign in signs):
        return PARTLY
    return FAILS if any(sign < 0 for sign in signs) else OPEN


def _difference(comparison: tuple[float, Interval, float]) -> str:
    difference, (low, high), p_value = comparison
    return f"{difference:+.1f} [{low:+.1f}, {high:+.1f}], p = {p_value:.3f}"


def _interval(score: Score) -> Interval:
    return score.interval or (score.value, score.value)


def _lengths(bucket: Bucket) -> str:
    return str(bucket.low) if bucket.low == bucket.high else f"{bucket.low}–{bucket.high}"
