"""Decode with the modules of a model: in C where it can, by CUDA graphs on a GPU, otherwise step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from regard.decoding.cpu import c_search
from regard.decoding.gpu import captured_search
from regard.decoding.model_step import evaluating
from regard.decoding.requests import FREE_SHARE, Request, RequestQueue, check_room
from regard.decoding.running_batch import RunningBatch
from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.observer import Observer, StepRecord
from regard.decoding.searches.search import Hypothesis, Search, with_rule
from regard.decoding.searches.speculative import Speculative
from regard.models.protocols import TextModel
from regard.text.tokenizers.special_tokens import special_tokens_of


def decode(
    model: TextModel,
    requests: Sequence[Request],
    *,
    search: Search,
    alternatives: int,
    allow_unknown: bool,
    batch_tokens: int,
    plain: bool,  # without the options below, and without constraints
    allow_nonsense: bool,
    cached: bool,
    observer: Observer | None,
) -> dict[int, list[Hypothesis]]:
    """Return the hypotheses of each request by its number; the options are those of `engine.generate_tokens`."""
    options: dict[str, Any] = {"alternatives": alternatives, "allow_unknown": allow_unknown}
    with evaluating(model):
        if plain and c_search.why_not(model, search, requests) is None:
            special = special_tokens_of(model)
            return c_search.search_of(model).search(
                requests, search=search, **options, batch_tokens=batch_tokens, special=special
            )
        options |= {"allow_nonsense": allow_nonsense, "cached": cached, "observer": observer}
        hypotheses: dict[int, list[Hypothesis]] = {}
        for rule, group in group_by_rule(requests):
            ruled = search if rule is None else with_rule(search, rule)
            hypotheses |= _decode_group(model, group, ruled, plain=plain, batch_tokens=batch_tokens, options=options)
    return hypotheses


def _decode_group(
    model: TextModel,
    requests: Sequence[Request],
    search: Search,
    *,
    plain: bool,
    batch_tokens: int,
    options: dict[str, Any],  # of the running batch
) -> dict[int, list[Hypothesis]]:
    """Decode step by step, on a GPU also by CUDA graphs; `plain`: without options that these do not implement."""
    alternatives, allow_unknown = options["alternatives"], options["allow_unknown"]
    if plain and isinstance(search, Speculative):
        check_room(search.draft_model, requests)
        texts = search.write(model, requests, allow_unknown=allow_unknown)
        return {request.number: [text] for request, text in zip(requests, texts, strict=True)}
    hypotheses: dict[int, list[Hypothesis]] = {}
    if plain and captured_search.why_not(model, search) is None:
        hypotheses |= captured_search.search_captured(
            model,
            requests,
            search=search,
            alternatives=alternatives,
            allow_unknown=allow_unknown,
            batch_tokens=batch_tokens,
        )
    batch = RunningBatch(model, search=search, **options)
    free_share = FREE_SHARE.get(next(model.parameters()).device.type, FREE_SHARE["other"])
    remaining = [request for request in requests if request.number not in hypotheses]
    rows = search.rows(alternatives)
    queue = RequestQueue(remaining, rows=rows, batch_tokens=batch_tokens, free_share=free_share)
    while queue.waiting or batch.rows:
        if batch.open and (entering := queue.take(batch.rows)):
            batch.add(entering)
        hypotheses |= batch.step()
    return hypotheses


def group_by_rule(requests: Sequence[Request]) -> Iterable[tuple[Rule | None, list[Request]]]:
    """Return the requests that have the same rule, for each rule."""
    groups: dict[Rule | None, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.rule, []).append(request)
    return groups.items()


def stream(model: TextModel, request: Request, search: Search, allow_unknown: bool) -> Iterator[int]:
    """Yield the tokens of a request, each as soon as it is chosen."""
    last = _LastToken()
    batch = RunningBatch(model, search=search, allow_unknown=allow_unknown, observer=last)
    with evaluating(model):
        batch.add([request])
    while batch.rows:
        with evaluating(model):  # but not while the caller has the token
            batch.feed()
            batch.choose()
        yield last.token


class _LastToken:
    """An observer that keeps the token chosen last."""

    candidates = 1
    token: int

    def step(self, record: StepRecord) -> None:
        self.token = int(record.tokens[0, 0])
