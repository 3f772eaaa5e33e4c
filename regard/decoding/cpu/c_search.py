"""Greedy and beam search with a translation model, wholly in C (regard/kernels/native/decoder/translate.h).

Python packs the requests of a call into batches and reads the hypotheses. Whatever C does not implement, the decoding
engine decodes step by step: other searches, rules, constraints, observers, and models that `module_search.why_not`
refuses.
The tests compare the results with those of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import c_int32, c_void_p
from functools import cache
from typing import Any

from regard.decoding.cpu.c_batch import MAX_BARRED, PackedBatch, SpecialStruct, Statistics, search_struct
from regard.decoding.cpu.c_network import CNetwork
from regard.decoding.cpu.transformer_arrays import TransformerArrays
from regard.decoding.requests import Request, make_batches
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import EachOnce
from regard.decoding.searches.search import Hypothesis, Search
from regard.machine import number_of_cores, share_of_threads
from regard.system import usable_cores
from regard.text.tokenizers.special_tokens import DEFAULT, SpecialTokens, special_tokens_of

MAX_ROWS = 128  # of a batch: more rows would not fit into the cache of a core
MAX_PLACEHOLDERS = 64  # of a text: bits of an integer
BATCHES_PER_THREAD = 4  # that a call begins at once, so that a thread which is done finds more work
CALL_MILLISECONDS = 100  # after which C returns, so that Ctrl-C is noticed
# Of decoder weights: with fewer, one thread decodes a single text faster than two that meet after each operation. With
# 33 MB of int8 weights, one thread takes 32 ms and two take 51 to 79; with 132 MB of float32, 117 and 111.
SHARED_BYTES = 2**26


def why_not(model: Any, search: Search, requests: Sequence[Request]) -> str | None:
    """Return the reason why the engine must decode these requests step by step, or None if C can decode them."""
    c_search: CSearch | None = getattr(model, "c_search", None)  # of models with packed weights
    if c_search is None:
        return "C does not implement the model, or its weights are not packed"
    special = special_tokens_of(model)
    return (
        why_not_special(special)
        or why_not_search(search)
        or why_not_rules(requests)
        or c_search.why_not_now()
        or why_not_tokens(c_search.network, requests, special)
    )


def search_of(model: Any) -> CSearch:
    """Return the search of a model with packed weights, for which `why_not` gave no reason."""
    return model.c_search


def why_not_special(special: SpecialTokens) -> str | None:
    """Return the reason why C does not implement these special tokens, or None if it does."""
    if len(special.ends) > 1:
        return "the model has several end tokens"
    most = len(special.never_chosen(allow_unknown=False))
    return f"{most} tokens are never chosen" if most > MAX_BARRED else None


def why_not_search(search: Search) -> str | None:
    """Return the reason why C does not implement a search, or None if it does."""
    if type(search) not in (Greedy, Beam):
        return f"the search is {type(search).__name__}"
    return f"the search has the rules {search.rules}" if search.rules else None


def why_not_rules(requests: Sequence[Request]) -> str | None:
    """Return which rule of a request C does not implement, or None."""
    for request in requests:
        rule = request.rule
        if rule is not None and not (type(rule) is EachOnce and len(rule.tokens) <= MAX_PLACEHOLDERS):
            return f"an input has the rule {rule!r}"
    return None


def why_not_tokens(network: CNetwork, requests: Sequence[Request], special: SpecialTokens) -> str | None:
    """Return what is wrong with the tokens of a request, or None; the modules raise the error."""
    positions = network.max_positions
    for request in requests:
        source: Any = request.source
        for tokens, size in ((source, network.source_vocabulary), (request.prefix, network.target_vocabulary)):
            if min(tokens) < 0 or max(tokens) >= size:
                return "a token is not in the vocabulary"
        if positions is not None and len(source) > positions:
            return "a source has more tokens than there are learned positions"
        if special.pad in source:
            return "a source contains padding"
    return None


class CSearch:
    """Searches with one model, whose matrices are laid out when the first text arrives."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.prepared: CNetwork | None = None
        self.statistics = Statistics()

    @property
    def network(self) -> CNetwork:
        assert self.prepared is not None  # why_not_now was asked
        return self.prepared

    def why_not_now(self) -> str | None:
        """Return the reason why C cannot translate with the model as it is now, or None if it can and is prepared."""
        raise NotImplementedError

    def search(
        self,
        requests: Sequence[Request],
        *,
        search: Any,
        alternatives: int,
        allow_unknown: bool,
        batch_tokens: int,
        special: SpecialTokens = DEFAULT,
    ) -> dict[int, list[Hypothesis]]:
        """Return the hypotheses of each request by its number."""
        network, threads = self.network, usable_threads()
        rows = search.rows(alternatives)
        together = threads > 1 and len(requests) < threads and network.weight_bytes >= SHARED_BYTES
        settings = search_struct(search, alternatives)
        barred = special.never_chosen(allow_unknown)
        size = network.target_vocabulary if special.tokenizer_size is None else special.tokenizer_size
        tokens = SpecialStruct(special.end, len(barred), (c_int32 * MAX_BARRED)(*barred), size)
        hypotheses: dict[int, list[Hypothesis]] = {}
        for window in windows(requests, rows, batch_tokens, threads):
            batches = [PackedBatch(batch, network, settings, tokens) for batch in window]
            self._decode(batches, threads, together)
            for batch in batches:
                hypotheses |= batch.hypotheses
        return hypotheses

    def _decode(self, batches: Sequence[PackedBatch], threads: int, together: bool) -> None:
        """Decode batches; between the calls of C, Python notices Ctrl-C."""
        runs: list[int] = []
        try:
            runs += [batch.begin(self.library) for batch in batches]
            pointers = (c_void_p * len(runs))(*runs)
            while self.library.advance_runs(pointers, len(runs), threads, together, CALL_MILLISECONDS):
                pass
            for batch, run in zip(batches, runs, strict=True):
                batch.read(self.library, run, self.statistics)
        finally:
            for run in runs:
                self.library.free_run(run)


class ArraySearch(CSearch):
    """Searches with arrays, which never change."""

    def __init__(self, arrays: TransformerArrays, library: Any) -> None:
        super().__init__(library)
        self.arrays = arrays

    def why_not_now(self) -> str | None:
        if self.prepared is None:
            self.prepared = CNetwork(self.arrays, self.library)
        return None


def usable_threads() -> int:
    """Return how many threads to use: as many as torch, or this thread's share, but no more than there are cores."""
    return min(share_of_threads(), _cores(usable_cores()))


@cache
def _cores(in_affinity_mask: int) -> int:
    """Count the cores; the control groups are read once for each size of the mask, which may take a millisecond."""
    return number_of_cores()


def windows(requests: Sequence[Request], rows: int, batch_tokens: int, threads: int) -> Iterator[list[list[Request]]]:
    """Yield lists of batches that are decoded at the same time, each of at most MAX_ROWS rows.

    Requests of similar length are in one batch; if there are few, they are spread over the threads.
    """
    most = max(1, MAX_ROWS // rows)
    window: list[list[Request]] = []
    for batch in make_batches(requests, rows=rows, batch_tokens=batch_tokens):
        count = max(-(-len(batch) // most), min(threads, len(batch)))
        window += [batch[i::count] for i in range(count)] if count <= threads else chunks(batch, most)
        if len(window) >= BATCHES_PER_THREAD * threads:
            yield window
            window = []
    if window:
        yield window


def chunks(batch: list[Request], size: int) -> list[list[Request]]:
    return [batch[i : i + size] for i in range(0, len(batch), size)]
