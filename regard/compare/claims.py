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

WITHOUT = "rnn"  # without attention
ALONE = ("transformer", "transformer-post")  # with attention alone
SIGNIFICANCE_LEVEL = 0.05

HOLDS, PARTLY, FAILS, OPEN = "holds here", "holds in part here", "does not hold here", "undecided here"


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
    """The share of BLEU that is lost from the length at which a system is best to the longest sentences."""

    value: float
    interval: Interval

    def __str__(self) -> str:
        return f"{self.value:.0%} [{self.interval[0]:.0%}, {self.interval[1]:.0%}]"


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
    """Judge the first half of D17: attention improves BLEU."""
    attending = _attending(results)
    if WITHOUT not in results or not attending:
        return None
    advantages = {name: _advantage(pairs, name, over=WITHOUT) for name in attending}
    signs = [_sign(comparison) for comparison in advantages.values()]
    parts = [f"{results[name].title} {_difference(comparison)}" for name, comparison in advantages.items()]
    evidence = f"Against the {results[WITHOUT].title} without it: {'; '.join(parts)}."
    return Claim("With attention BLEU is better (D17)", _verdict(signs), evidence)


def length_matters(results: Results) -> Claim | None:
    """Judge the second half of D17: only without attention does quality fall on long sentences."""
    attending = _attending(results)
    if WITHOUT not in results or not attending:
        return None
    claim = "Without attention long sentences suffer, with it they do not (D17)"
    buckets = results[WITHOUT].buckets
    if len(buckets) < 2:
        return Claim(claim, OPEN, "All test sentences are in one bucket of lengths.")
    drops = {system: length_drop(results[system].buckets) for system in (WITHOUT, *attending)}
    gains = {system: _subtract(drops[WITHOUT], drops[system]) for system in attending}
    verdict = FAILS if best_bucket(buckets) is buckets[-1] else OPEN
    if drops[WITHOUT].interval[0] > 0:
        verdict = _verdict([_side(gain.interval) for gain in gains.values()])
        if verdict == HOLDS and any(drops[system].interval[0] > 0 for system in attending):
            verdict = PARTLY  # they lose less, but they do lose
    parts = [
        f"{results[system].title} {_describe_losses(results[system].buckets, drops[system])} "
        f"({_describe_drop(drops[system], gains[system])})"
        for system in attending
    ]
    without = f"{results[WITHOUT].title} {_describe_losses(buckets, drops[WITHOUT])}"
    lengths = f"from the best length of each system to {_lengths(buckets[-1])} words"
    evidence = f"BLEU lost {lengths}: {without}; {'; '.join(parts)}."
    return Claim(claim, verdict, evidence)


def scores_differ(results: Results, pairs: Pairs) -> Claim | None:
    """Judge D5 and D15: the lectures prefer none of the scores, so the verdict is only whether they differ."""
    attending = _attending(results)
    if len(attending) < 2:
        return None
    best = max(attending, key=lambda name: results[name].bleu.value)
    rest = {name: _advantage(pairs, best, over=name) for name in attending if name != best}
    beaten = [name for name, comparison in rest.items() if _sign(comparison) > 0]
    parts = [f"over {results[name].title} {_difference(comparison)}" for name, comparison in rest.items()]
    verdict = "yes" if len(beaten) == len(rest) else "in part" if beaten else OPEN
    evidence = f"Most BLEU has {results[best].title}: {'; '.join(parts)}."
    return Claim("One score of attention is the best (D5, D15)", verdict, evidence)


def attention_alone(results: Results, pairs: Pairs) -> Claim | None:
    """Judge H3: attention works alone."""
    alone, recurrent = _split(results)
    if not alone or not recurrent:
        return None
    best = max(recurrent, key=lambda name: results[name].bleu.value)
    comparisons = {name: _advantage(pairs, name, over=best) for name in alone}
    parts = [f"{results[name].title} {_difference(comparison)}" for name, comparison in comparisons.items()]
    return Claim(
        "Attention alone is better than recurrent nets (H3)",
        _verdict([_sign(comparison) for comparison in comparisons.values()]),
        f"Over the best recurrent system, {results[best].title}: {'; '.join(parts)}.",
    )


def attention_is_parallel(results: Results) -> Claim | None:
    """Judge H1: no position waits for the one before, so training is faster. Time is a result, not a setting."""
    alone, recurrent = _split(results)
    if not alone or not recurrent:
        return None
    throughput = {name: results[name].tokens_per_second for name in (*alone, *recurrent)}
    signs = [1 if throughput[name] > throughput[other] else -1 for name in alone for other in recurrent]
    parts = [f"{results[name].title} {tokens:,.0f}" for name, tokens in throughput.items()]
    evidence = f"Target tokens a second on this machine: {'; '.join(parts)}."
    return Claim("Without recurrence training is faster (H1)", _verdict(signs), evidence)


def attention_aligns(results: Results, diagonal: float | None) -> Claim | None:
    """Judge D16: while a system generates a word, it attends to the word that it translates."""
    rates = {name: result.aer for name, result in results.items() if result.aer is not None}
    if not rates or diagonal is None:
        return None
    signs = [1 if rate < diagonal else -1 for rate in rates.values()]
    parts = [f"{results[name].title} {rate:.1%}" for name, rate in sorted(rates.items(), key=lambda item: item[1])]
    evidence = (
        f"Alignment error rates, the lowest is best: {'; '.join(parts)}; for words taken in order {diagonal:.1%}."
    )
    return Claim("Attention finds which words belong together (D16)", _verdict(signs), evidence)


def best_bucket(buckets: Sequence[Bucket]) -> Bucket:
    """Return the bucket with the highest BLEU. It is seldom the shortest: a very short sentence has little context."""
    return max(buckets, key=lambda bucket: bucket.bleu.value)


def length_drop(buckets: Sequence[Bucket]) -> Drop:
    """Return the share of its best BLEU that a system loses on the longest sentences: 1 - longest / best.

    A share, because systems of very different quality are compared. The buckets have no sentence in common, so the
    relative errors of the two scores combine like independent errors.
    """
    best, longest = best_bucket(buckets).bleu, buckets[-1].bleu
    if best is longest or best.value == 0:
        return Drop(0.0, (0.0, 0.0))
    ratio = longest.value / best.value
    (best_low, best_high), (low, high) = _interval(best), _interval(longest)
    # Errors in units of the best score: of the longest sentences' score, and of the best score times the ratio.
    down = math.hypot(longest.value - low, ratio * (best_high - best.value)) / best.value
    up = math.hypot(high - longest.value, ratio * (best.value - best_low)) / best.value
    return Drop(1 - ratio, (1 - ratio - up, 1 - ratio + down))


def _describe_losses(buckets: Sequence[Bucket], drop: Drop) -> str:
    best = best_bucket(buckets)
    return f"{drop}, from {best.bleu.value:.1f} at {_lengths(best)} words to {buckets[-1].bleu.value:.1f}"


def _subtract(a: Drop, b: Drop) -> Drop:
    """Return a - b with its interval, which is too wide, and so conservative, if a and b are correlated."""
    value = a.value - b.value
    low = value - math.hypot(a.value - a.interval[0], b.interval[1] - b.value)
    high = value + math.hypot(a.interval[1] - a.value, b.value - b.interval[0])
    return Drop(value, (low, high))


def _describe_drop(drop: Drop, gain: Drop) -> str:
    """Describe the drop of a system with attention."""
    if drop.interval[0] <= 0:
        return "no significant loss"
    return {1: "a smaller loss", 0: "no significantly smaller loss", -1: "a larger loss"}[_side(gain.interval)]


def _attending(results: Results) -> list[str]:
    """Return the recurrent systems with attention."""
    return [name for name in results if name not in (WITHOUT, *ALONE)]


def _split(results: Results) -> tuple[list[str], list[str]]:
    """Return the systems with attention alone, and the recurrent ones."""
    return [name for name in results if name in ALONE], [name for name in results if name not in ALONE]


def _advantage(pairs: Pairs, name: str, *, over: str) -> tuple[float, Interval, float]:
    """Return the advantage of one system over another: difference, interval, p-value."""
    if (over, name) in pairs:
        comparison = pairs[over, name]
        return comparison.difference, comparison.interval, comparison.p_value
    comparison = pairs[name, over]
    return -comparison.difference, (-comparison.interval[1], -comparison.interval[0]), comparison.p_value


def _sign(comparison: tuple[float, Interval, float]) -> int:
    """Return 1 for better, -1 for worse, 0 for no clear difference; what rounds to 0.0 is no difference."""
    difference, interval, p_value = comparison
    return 0 if p_value >= SIGNIFICANCE_LEVEL or abs(difference) < 0.05 else _side(interval)


def _side(interval: Interval) -> int:
    return 1 if interval[0] > 0 else -1 if interval[1] < 0 else 0


def _verdict(signs: Sequence[int]) -> str:
    """Return the verdict on the claim that all signs are 1."""
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
