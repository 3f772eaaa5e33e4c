"""The decoding engine: sort the inputs by length, decode them in batches, return the results in their order.

E8, E10, C2. On the way from `generate_tokens` to a text:

    requests.py          checks the inputs and makes a request of each
    module_decoding.py   picks the fastest way to decode
    running_batch.py     holds the batch: requests that are done leave it, and waiting ones enter
    model_step.py        runs the model: encode, prefill, then a step for each token
    searches/            choose the tokens from the log-probabilities of a step

On a CPU, greedy and beam search with a packed Transformer run wholly in C (cpu/c_search.py), for the arrays of a model
folder without torch (cpu/folder_model.py). On a GPU, whole batches can be decoded by CUDA graphs
(gpu/captured_search.py). The results of an input do not depend on the batch that it was in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from regard.decoding.cpu import c_search
from regard.decoding.cpu.folder_model import FolderModel
from regard.decoding.requests import (
    Request,
    Tokens,
    check_model,
    check_room,
    make_requests,
)
from regard.decoding.searches.constraints import needed_phrases
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import Rule
from regard.decoding.searches.observer import Observer
from regard.decoding.searches.search import Hypothesis, Search
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import SpecialTokens, special_tokens_of

if TYPE_CHECKING:
    from regard.models.protocols import TextModel

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
    if not isinstance(model, FolderModel):  # which translates
        check_model(model, source)
    special = special_tokens_of(model)
    requests = make_requests(source, prefixes, max_tokens, numbers, special=special)
    check_room(model, requests)
    if constraints is not None:
        requests = add_constraints(requests, constraints, special)
    if rules is not None:
        requests = [request._replace(rule=rule) for request, rule in zip(requests, rules, strict=True)]
    plain = allow_nonsense and cached and constraints is None and observer is None
    options: dict[str, Any] = {
        "search": search,
        "alternatives": alternatives,
        "allow_unknown": allow_unknown,
        "batch_tokens": batch_tokens,
    }
    if isinstance(model, FolderModel):
        if plain and c_search.why_not(model, search, requests) is None:
            hypotheses = c_search.search_of(model).search(requests, **options, special=special)
            return [hypotheses[request.number] for request in requests]
        model = cast("TextModel", model.packed.of(model.module))
    from regard.decoding import module_decoding

    options |= {"allow_nonsense": allow_nonsense, "cached": cached, "observer": observer, "plain": plain}
    hypotheses = module_decoding.decode(model, requests, **options)
    return [hypotheses[request.number] for request in requests]


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
    sources = None if source is None else [source]
    check_model(model, sources)
    (request,) = make_requests(sources, [prefix], max_tokens, special=special_tokens_of(model))
    check_room(model, [request])
    from regard.decoding import module_decoding

    return module_decoding.stream(model, request, search, allow_unknown)


def add_constraints(
    requests: Sequence[Request], constraints: Sequence[Sequence[Tokens]], special: SpecialTokens
) -> list[Request]:
    """Return the requests with their constraints."""
    if len(constraints) != len(requests):
        raise UsageError(f"constraints has {len(constraints)} entries for {len(requests)} inputs: give one for each")
    return [
        request._replace(constraints=needed_phrases(phrases, request.limit, special))
        for request, phrases in zip(requests, constraints, strict=True)
    ]
