"""Teacher forcing: read a given text, and return the score of each token or the attention behind it.

C2, E7.

    B texts   n source tokens   m tokens read   V vocabulary   H heads
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.recording.recorder import record
from regard.decoding.ensemble import Ensemble
from regard.decoding.model_step import encode, evaluating, log_probabilities
from regard.decoding.requests import Request, Tokens, check_model, make_batches, make_requests
from regard.errors import UsageError
from regard.models.protocols import TextModel
from regard.text.tokenizers.special_tokens import pad_batch, special_tokens_of


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """A text, and the log-probability of each of its tokens given the tokens before it."""

    tokens: list[int]
    logps: list[float]

    @property
    def score(self) -> float:
        """log p(text | source, prefix)."""
        return math.fsum(self.logps)


def score_tokens(
    model: TextModel,
    source: Sequence[Tokens] | None,
    target: Sequence[Tokens],
    *,
    prefixes: Sequence[Tokens] | None = None,
    batch_tokens: int = 2048,
) -> list[ScoredTokens]:
    """Return the log-probability of each token of each target, in the order of the targets.

    Targets are scored as they are: add END if the end of the text should count. `prefixes` precede the targets and are
    not scored. source, prefixes and batch_tokens are those of generate_tokens; a language model needs no prefixes here.
    """
    scored = {}
    requests = _target_requests(model, source, target, prefixes)
    with evaluating(model):
        for batch in make_batches(
            [request for request in requests if request.limit], rows=1, batch_tokens=batch_tokens
        ):
            scored.update(_score_batch(model, batch, target))
    return [ScoredTokens(list(tokens), scored.get(number, [])) for number, tokens in enumerate(target)]


@torch.inference_mode()
def _score_batch(model: TextModel, requests: Sequence[Request], target: Sequence[Tokens]) -> dict[int, list[float]]:
    labels = pad_batch(
        [target[request.number] for request in requests], pad_id=model.config.pad_id
    )  # (B, longest target)
    hidden = _read(model, requests, target)[
        :, -labels.shape[1] :
    ]  # the prefixes have one length, so all targets begin together
    logps = log_probabilities(model.project(hidden))  # (B, longest target, V)
    scores = logps.gather(2, labels.to(logps.device)[..., None])[..., 0].tolist()
    return {request.number: row[: request.limit] for request, row in zip(requests, scores, strict=True)}


@torch.no_grad()
def forced_attention(
    model: TextModel, source: Tokens | None, target: Tokens, *, prefix: Tokens = ()
) -> dict[str, Tensor]:
    """Return the attention weights (H, m, n) of each layer, by its name, while the model reads the target.

    H4. Row i of a decoder's map is the distribution that was used to predict target token i; the keys of its
    self-attention are START, the prefix and the target up to there. The weights are recorded by regard.record in one
    pass over the whole text. For an ensemble they are those of its first model.
    """
    model = model.members[0] if isinstance(model, Ensemble) else model
    (request,) = _target_requests(model, None if source is None else [source], [target], [prefix])
    if not request.limit:
        raise UsageError("the target holds no token: nothing was produced, so nothing was looked at")
    with evaluating(model), record(model) as maps:
        _read(model, [request], [target])
    return {
        name: weights[0, :, -request.limit :] if name.startswith("decoder") else weights[0]
        for name, weights in maps.items()
    }


def _target_requests(
    model: TextModel,
    source: Sequence[Tokens] | None,
    target: Sequence[Tokens],
    prefixes: Sequence[Tokens] | None,
) -> list[Request]:
    """Return the targets as requests that write as many tokens as the targets have."""
    if prefixes is None:
        prefixes = [()] * len(target)
    if source is not None and len(source) != len(target):
        raise UsageError(f"{len(source)} sources and {len(target)} targets: each source has one target")
    check_model(model, source)
    lengths = [len(tokens) for tokens in target]
    return make_requests(source, prefixes, lengths, special=special_tokens_of(model))


def _read(model: TextModel, requests: Sequence[Request], target: Sequence[Tokens]) -> Tensor:
    """Return the decoder's vectors (B, m, ·) for prefix and target without its last token; each predicts a token."""
    inputs = pad_batch(
        [[*request.prefix, *target[request.number][:-1]] for request in requests], pad_id=model.config.pad_id
    )
    inputs = inputs.to(next(model.parameters()).device)  # (B, m)
    if requests[0].source is None:
        return model.decode(inputs)
    return model.decode(inputs, encode(model, [request.source for request in requests if request.source is not None]))
