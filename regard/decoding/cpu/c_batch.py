"""A batch of requests as C reads it, and its results: the structs of run.h in regard/kernels/native/decoder.

The arrays of tokens are integers of 32 bits in Python's `array`, which C reads in place.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int32, c_int64, c_void_p, pointer
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from regard.decoding.cpu.c_network import CNetwork, NetworkStruct
from regard.decoding.requests import Request
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Hypothesis, make_hypothesis

MAX_BARRED = 4  # tokens that are never chosen
OUT_OF_MEMORY = 1  # as run.h reports it; scores that are not finite show in the log-probabilities
INT = next(code for code in "il" if array(code).itemsize == 4)


class SearchStruct(Structure):
    """The struct Search of hypotheses.h; the classes below mirror structs of candidates.h, run.h and translate.h."""

    _fields_ = (
        *((name, c_int32) for name in ("width", "wanted", "greedy")),
        ("length_penalty", c_float),
        ("max_finished", c_int32),
    )


def search_struct(search: Greedy | Beam, alternatives: int) -> SearchStruct:
    """Describe a search to C."""
    if isinstance(search, Greedy):
        return SearchStruct(1, alternatives, True, 0.0, 0)
    return SearchStruct(
        search.width, alternatives, False, search.length_penalty, search.max_finished(alternatives) or 0
    )


class SpecialStruct(Structure):
    _fields_ = (("end", c_int32), ("barred_count", c_int32), ("barred", c_int32 * MAX_BARRED), ("size", c_int32))


class RuleStruct(Structure):
    _fields_ = (*((name, c_void_p) for name in ("tokens", "barred")), ("count", c_int32), ("barred_count", c_int32))


class BatchStruct(Structure):
    _fields_ = (
        ("network", POINTER(NetworkStruct)),
        ("search", SearchStruct),
        ("special", SpecialStruct),
        ("rules", POINTER(RuleStruct)),
        *((name, c_void_p) for name in ("tokens", "prefixes")),
        *((name, c_int32) for name in ("texts", "source_tokens", "prefix", "capacity")),
    )


class ResultStruct(Structure):
    _fields_ = (*((name, c_int32) for name in ("text", "start", "length", "ended")), ("ranking", c_float))


class OutcomeStruct(Structure):
    _fields_ = (
        ("results", POINTER(ResultStruct)),
        ("tokens", POINTER(c_int32)),
        ("logps", POINTER(c_float)),
        *((name, c_int32) for name in ("count", "failure")),
        *((name, c_int64) for name in ("steps", "rows")),
        ("seconds", c_double * 3),
    )


@dataclass
class Statistics:
    """What the batches of a search took so far, for benchmarks."""

    encoder_seconds: float = 0.0
    step_seconds: float = 0.0
    choice_seconds: float = 0.0
    steps: int = 0
    rows: int = 0  # of all steps

    def add(self, outcome: OutcomeStruct) -> None:
        encoder, step, choice = outcome.seconds
        self.encoder_seconds += encoder
        self.step_seconds += step
        self.choice_seconds += choice
        self.steps += outcome.steps
        self.rows += outcome.rows


class PackedBatch:
    """Requests with prefixes of one length, which C decodes together."""

    def __init__(
        self, requests: Sequence[Request], network: CNetwork, search: SearchStruct, special: SpecialStruct
    ) -> None:
        self.requests, self.hypotheses = requests, dict[int, list[Hypothesis]]()
        sources: list[Any] = [request.source for request in requests]
        prefix, longest = len(requests[0].prefix), max(request.limit for request in requests)
        capacity = prefix + longest - 1  # the last token is not read
        struct, self.tables = network.for_positions(max(capacity, *map(len, sources)))
        self.tokens = array(INT, chain.from_iterable(sources))
        self.prefixes = array(INT, chain.from_iterable(request.prefix for request in requests))
        self.rules, numbers = _rules(requests)
        self.columns = array(INT, map(len, sources)), array(INT, (request.limit for request in requests)), numbers
        self.struct = BatchStruct(
            network=pointer(struct),
            search=search,
            special=special,
            rules=self.rules.structs,
            tokens=_address(self.tokens),
            prefixes=_address(self.prefixes),
            texts=len(requests),
            source_tokens=len(self.tokens),
            prefix=prefix,
            capacity=capacity,
        )

    def begin(self, library: Any) -> int:
        """Return a new run of C, which the caller frees."""
        run: int | None = library.begin_run(byref(self.struct), *map(_address, self.columns))
        if run is None:
            raise MemoryError(f"no memory to translate {len(self.requests)} texts at once")
        return run

    def read(self, library: Any, run: int, statistics: Statistics) -> None:
        """Read the hypotheses of a run that is done."""
        outcome = OutcomeStruct()
        library.read_run(run, byref(outcome))
        if outcome.failure == OUT_OF_MEMORY:
            raise MemoryError(f"no memory to translate {len(self.requests)} texts at once")
        if outcome.failure:
            make_hypothesis([], [float("nan")], False)  # which raises the error
        statistics.add(outcome)
        for result in outcome.results[: outcome.count]:
            end = result.start + result.length
            tokens, logps = outcome.tokens[result.start : end], outcome.logps[result.start : end]
            hypothesis = make_hypothesis(tokens, logps, bool(result.ended), result.ranking)
            self.hypotheses.setdefault(self.requests[result.text].number, []).append(hypothesis)


@dataclass
class RuleTable:
    """The rules of a batch: the first one is empty."""

    structs: Any  # an array of RuleStruct
    arrays: list[array[int]] = field(default_factory=list)  # keeps alive what the structs point to


def _rules(requests: Sequence[Request]) -> tuple[RuleTable, array[int]]:
    """Return the different rules of requests, and the number of each request's rule among them."""
    numbers: dict[Any, int] = {None: 0}
    column = array(INT, (numbers.setdefault(request.rule, len(numbers)) for request in requests))
    rules = RuleTable((RuleStruct * len(numbers))())
    for rule, number in numbers.items():
        if rule is not None:
            tokens, barred = array(INT, rule.tokens), array(INT, rule.barred)
            rules.arrays += [tokens, barred]
            rules.structs[number] = RuleStruct(_address(tokens), _address(barred), len(tokens), len(barred))
    return rules, column


def _address(numbers: array[int]) -> int:
    return numbers.buffer_info()[0]
