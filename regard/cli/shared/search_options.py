"""Options of a search, and the search that they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.shared.model_options import Face, load_as
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.decoding.searches.greedy import Greedy
    from regard.decoding.searches.logit_rules import Rule
    from regard.decoding.searches.sample import Sample
    from regard.decoding.searches.search import Search
    from regard.decoding.searches.speculative import Speculative

SEARCH = "Search"  # the panel of --help that lists these options


def search_option(text: str, *, minimum: int | None = None) -> Any:
    """Make an option that --help lists in the panel of the search."""
    return typer.Option(min=minimum, rich_help_panel=SEARCH, help=text)


Temperature = Annotated[
    float | None, search_option("Divide the logits by it before sampling: below 1 is sharper, above 1 more varied.")
]
TopK = Annotated[int | None, search_option("Sample from the k most probable tokens.")]
TopP = Annotated[
    float | None, search_option("Sample from the smallest set of tokens whose probabilities sum to at least p.")
]
MinP = Annotated[float | None, search_option("Sample from tokens at least p times as probable as the most probable.")]
Seed = Annotated[int | None, search_option("Seed of the sampling; the same seed gives the same text.")]
MinTokens = Annotated[int | None, search_option("Generate at least this many tokens.", minimum=1)]
Penalty = Annotated[
    float | None,
    typer.Option(
        "--repetition-penalty",
        rich_help_panel=SEARCH,
        help="Lower the probability of earlier tokens; 1 (no effect) or more.",
    ),
]
NoRepeat = Annotated[int | None, search_option("Never repeat an n-gram of this many tokens.", minimum=1)]
Draft = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        rich_help_panel=SEARCH,
        help="Speculative decoding: a smaller model with the same tokenizer proposes tokens.",
    ),
]


def make_rules(
    repetition_penalty: float | None, no_repeat: int | None, min_tokens: int | None, max_tokens: int | None
) -> tuple[Rule, ...]:
    """Return the rules on the logits that the options describe."""
    from regard.decoding.searches import logit_rules

    if min_tokens is not None and max_tokens is not None and min_tokens > max_tokens:
        raise UsageError(f"--min-tokens {min_tokens} is more than --max-tokens {max_tokens}")
    rules: list[Rule] = []
    if repetition_penalty is not None:
        rules.append(logit_rules.RepetitionPenalty(repetition_penalty))
    if no_repeat is not None:
        rules.append(logit_rules.NoRepeat(no_repeat))
    if min_tokens is not None:
        rules.append(logit_rules.MinTokens(min_tokens))
    return tuple(rules)


def make_sample(
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    seed: int | None,
    rules: tuple[Rule, ...],
    *,
    greedy: str,
) -> Sample:
    """Return the sampling that the options describe; `greedy` names the option that a temperature of 0 stands for."""
    from regard.decoding.searches.sample import Sample

    if temperature == 0:
        raise UsageError(f"--temperature 0 would always take the most probable token: use {greedy} instead")
    return Sample(
        temperature=1.0 if temperature is None else temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=0 if seed is None else seed,
        rules=rules,
    )


def make_random_search(
    sample: bool,
    minimum_risk: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    seed: int | None,
    rules: tuple[Rule, ...],
) -> Search | None:
    """Return the search of --sample or --minimum-risk, or None; UsageError for their options without them."""
    options = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--min-p": min_p, "--seed": seed}
    if sample and minimum_risk is not None:
        raise UsageError("--minimum-risk chooses among samples, and --sample takes the first: pass one of them")
    if not sample and minimum_risk is None:
        for name, value in options.items():
            if value is not None:
                raise UsageError(f"{name} is an option of sampling: add --sample or --minimum-risk")
        return None
    greedy = "--beam 1 without --sample or --minimum-risk"
    sampling = make_sample(temperature, top_k, top_p, min_p, seed, rules, greedy=greedy)
    if minimum_risk is None:
        return sampling
    from regard.decoding.searches.minimum_risk import MinimumRisk

    return MinimumRisk(minimum_risk, sampling)


def make_search(
    beam: int | None,
    length_penalty: float | None,
    random_search: Search | None,
    alternatives: int,
    rules: tuple[Rule, ...] = (),
) -> Search:
    """Return the search that the options describe: the random one if there is one, else greedy or beam search."""
    from regard.api.translation.default_search import BEAM
    from regard.decoding.searches.beam import Beam
    from regard.decoding.searches.greedy import Greedy

    if random_search is not None:
        if beam is not None or length_penalty is not None:
            raise UsageError("--beam and --length-penalty have no effect on samples: leave them out")
        return random_search
    if beam == 1:
        if length_penalty is not None:
            raise UsageError("--length-penalty ranks the hypotheses of a beam, and --beam 1 has only one")
        return Greedy(rules=rules)
    power = 1.0 if length_penalty is None else length_penalty
    return Beam(beam or max(BEAM, alternatives), length_penalty=power, rules=rules)


def with_recommended(
    search: Search,
    beam: int | None,
    length_penalty: float | None,
    alternatives: int,
    recommended: Mapping[str, Any] | None,
) -> Search:
    """Return the search as the authors of an imported model recommend it, except for what options set."""
    from regard.decoding.searches.beam import Beam
    from regard.decoding.searches.greedy import Greedy

    if not recommended or not isinstance(search, Beam):
        return search
    width = search.width if beam is not None else max(recommended["beam"], alternatives)
    if width == 1 and length_penalty is None:
        return Greedy(rules=search.rules)
    power = search.length_penalty if length_penalty is not None else recommended["length_penalty"]
    return replace(search, width=width, length_penalty=power)


def check_draft_options(search: Search, models: Sequence[str] | None, alternatives: int) -> Greedy | Sample:
    """Return the search if it supports a draft model; UsageError if it, or another option, does not."""
    from regard.decoding.searches.greedy import Greedy
    from regard.decoding.searches.sample import Sample

    if not isinstance(search, Greedy | Sample):
        raise UsageError("--draft is for greedy search and sampling: add --beam 1 or --sample")
    if len(models or ()) > 1 or alternatives > 1:
        raise UsageError("--draft is for one translation by one model: leave out --alternatives and other --model")
    return search


def with_draft(search: Greedy | Sample, draft: str, face: Face, device: str, dtype: str) -> Speculative:
    """Return the search with a draft model, a folder or a name, which must be of the same task as `face`."""
    from regard.api.draft_model import check_draft
    from regard.decoding.searches.speculative import Speculative

    speculative = Speculative(load_as(type(face), draft, device, dtype), search)
    check_draft(face, speculative)
    return speculative
