"""The decoding engine: sort the inputs by length, decode them in batches, return the results in their order.

E8, E10, C2. On the way from `generate_tokens` to a text:

    requests.py        checks the inputs and makes a request of each
    running_batch.py   holds the batch: requests that are done leave it, and waiting ones enter
    model_step.py      runs the model: encode, prefill, then a step for each token
    searches/          choose the tokens from the log-probabilities of a step

On a CPU, greedy and beam search with a packed Transformer run wholly in C (cpu/c_search.py). On a GPU, whole batches
can be decoded by CUDA graphs (gpu/captured_search.py). The results of an input do not
depend on the batch that it was in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from regard.decoding.cpu import c_search
from regard.decoding.ensemble import Ensemble
from regard.decoding.gpu import captured_search
from regard.decoding.model_step import evaluating
from regard.decoding.requests import FREE_SHARE, Request, RequestQueue, TextModel, Tokens, make_requests
from regard.decoding.running_batch import RunningBatch
from regard.decoding.searches.constraints import needed_phrases
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.observer import Observer, StepRecord
from regard.decoding.searches.search import Hypothesis, Search, with_rule
from regard.decoding.searches.speculative import Speculative
from regard.errors import UsageError

GREEDY = Greedy()


def generate_tokens(
    model: TextModel,
    source: Sequence[Tokens] | None,
    *,
    search: Search = GREEDY,
    prefixes: Sequence[Tokens] | None = None,
    constraints: Sequence[Sequence[Tokens]] | None = None,
    max_tokens: int | Sequence[int],
    alternatives: int = 1,
    allow_unknown: bool = True,
    allow_nonsense: bool = True,
    batch_tokens: int = 8192,
    cached: bool = True,
    observer: Observer | None = None,
    numbers: Sequence[int] | None = None,
    rules: Sequence[Rule | None] | None = None,
) -> list[list[Hypothesis]]:
    """Return the hypotheses that a search finds for each input, in the order of the inputs.

        source         token lists to translate; None for a language model
        prefixes       how each text begins: the first tokens of a translation, the prompt of a language model
        constraints    phrases, as lists of tokens, that the texts of each input must contain; only for a beam
                       (searches/constraints.py)
        max_tokens     the most tokens to write, END included; one number, or one for each input
        alternatives   how many hypotheses to return for each input: of a beam the best ones, best first (fewer if there
                       are fewer); of sampling independent samples in the order of their numbers
        allow_unknown  False bars the unknown token; padding and START are always barred. END is allowed from the first
                       step on, so a text may be empty
        allow_nonsense False bars empty texts, and a third copy of the same tokens right after the second
                       (searches/repetition.py)
        batch_tokens   rows x (source + prefix + max_tokens) that are decoded together; this limits the memory and has
                       no influence on the results
        cached         False recomputes the whole text for each token: slow, to test the caches
        numbers        one number for each input, all different, which seeds its samples together with the seed, the
                       alternative and the step; by default the place of the input in the list
        rules          a rule for each input, besides those of the search, or None for inputs without one

    The model is in eval mode meanwhile.
    """
    if alternatives < 1:
        raise UsageError(f"alternatives must be at least 1, got {alternatives}")
    search.rows(alternatives)  # raises an error if it cannot find so many
    requests = make_requests(model, source, prefixes, max_tokens, numbers)
    check_room(model, requests)
    if constraints is not None:
        requests = add_constraints(requests, constraints)
    if rules is not None:
        requests = [request._replace(rule=rule) for request, rule in zip(requests, rules, strict=True)]
    plain = allow_nonsense and cached and constraints is None and observer is None
    options: dict[str, Any] = {"alternatives": alternatives, "allow_unknown": allow_unknown}
    hypotheses: dict[int, list[Hypothesis]] = {}
    with evaluating(model):
        if plain and c_search.why_not(model, search, requests) is None:
            hypotheses = model.c_search.search(requests, search=search, **options, batch_tokens=batch_tokens)
        else:
            options |= {"allow_nonsense": allow_nonsense, "cached": cached, "observer": observer}
            for rule, group in group_by_rule(requests):
                ruled = search if rule is None else with_rule(search, rule)
                hypotheses |= _decode(model, group, ruled, plain=plain, batch_tokens=batch_tokens, options=options)
    return [hypotheses[request.number] for request in requests]


def _decode(
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


def stream_tokens(
    model: TextModel,
    prefix: Tokens,
    *,
    source: Tokens | None = None,
    search: Search = GREEDY,
    max_tokens: int,
    allow_unknown: bool = True,
) -> Iterator[int]:
    """Yield the tokens that generate_tokens would return for this input, each as soon as it is chosen."""
    if not search.streams:
        name = type(search).__name__
        raise UsageError(f"{name} does not know its first token before its last: stream with Greedy or Sample")
    (request,) = make_requests(model, None if source is None else [source], [prefix], max_tokens)
    check_room(model, [request])
    return _stream(model, request, search, allow_unknown)


def _stream(model: TextModel, request: Request, search: Search, allow_unknown: bool) -> Iterator[int]:
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


def longest_text(model: TextModel) -> int | None:
    """Return how many tokens the decoder has positions for, START and the prefix included; None: no limit."""
    models: Sequence[TextModel] = list(model.models) if isinstance(model, Ensemble) else [model]
    limits = [getattr(member.config, "max_positions", None) for member in models]
    return min((limit for limit in limits if limit is not None), default=None)


def check_room(model: TextModel, requests: Sequence[Request]) -> None:
    """Raise a UsageError if a request asks for no token, or for more than there are learned positions."""
    positions = longest_text(model)
    for request in requests:
        if request.limit < 1:
            raise UsageError(f"max_tokens must be at least 1, got {request.limit} for input {request.number}")
        prefix = len(request.prefix)
        room = math.inf if positions is None else positions + 1 - prefix  # the last token is not read
        if request.limit > room:
            raise UsageError(
                f"max_tokens={request.limit} for input {request.number} is too much: the model has learned {positions} "
                f"positions and {prefix} are taken by what stands before the text, so {max(room, 0)} tokens can follow"
            )


def add_constraints(requests: Sequence[Request], constraints: Sequence[Sequence[Tokens]]) -> list[Request]:
    """Return the requests with their constraints."""
    if len(constraints) != len(requests):
        raise UsageError(f"constraints has {len(constraints)} entries for {len(requests)} inputs: give one for each")
    return [
        request._replace(constraints=needed_phrases(phrases, request.limit))
        for request, phrases in zip(requests, constraints, strict=True)
    ]
