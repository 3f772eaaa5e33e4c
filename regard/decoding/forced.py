"""A given text through the model, not one that it chose: the score of each token, and what was looked at for it.

Teacher forcing; C2, E7.

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
from regard.decoding.requests import Job, TextModel, Tokens, make_batches, make_jobs
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import pad_batch


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """A text and the log-probability that the model gives to each of its tokens after those before it."""

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
    """The log-probability of each token of each target, in the order of the targets.

    A target is scored as it is given: one whose end shall count has END last. `prefixes` stand before the targets and
    are not scored. source, prefixes and batch_tokens are those of generate_tokens; a language model needs no prefixes
    here.
    """
    scored = {}
    jobs = _target_jobs(model, source, target, prefixes)
    with evaluating(model):
        for batch in make_batches([job for job in jobs if job.limit], rows=1, batch_tokens=batch_tokens):
            scored.update(_score_batch(model, batch, target))
    return [ScoredTokens(list(tokens), scored.get(number, [])) for number, tokens in enumerate(target)]


@torch.inference_mode()
def _score_batch(model: TextModel, jobs: Sequence[Job], target: Sequence[Tokens]) -> dict[int, list[float]]:
    labels = pad_batch([target[job.number] for job in jobs], pad_id=model.config.pad_id)  # (B, longest target)
    hidden = _read(model, jobs, target)[:, -labels.shape[1] :]  # prefixes of one length: targets begin together
    logps = log_probabilities(model.project(hidden))  # (B, longest target, V)
    scores = logps.gather(2, labels.to(logps.device)[..., None])[..., 0].tolist()
    return {job.number: row[: job.limit] for job, row in zip(jobs, scores, strict=True)}


@torch.no_grad()
def forced_attention(
    model: TextModel, source: Tokens | None, target: Tokens, *, prefix: Tokens = ()
) -> dict[str, Tensor]:
    """Where the model looks while it writes the target: the weights (H, m, n) of each layer, by its name.

    H4. Row i of a decoder's map is the distribution used when target token i was produced; the keys of its
    self-attention are what it had read: START, the prefix and the target up to there. The names are those of
    regard.record, which this is, on one pass over the whole text. Of an ensemble it is the first model that looks.
    """
    model = model.models[0] if isinstance(model, Ensemble) else model
    (job,) = _target_jobs(model, None if source is None else [source], [target], [prefix])
    if not job.limit:
        raise UsageError("the target holds no token: nothing was produced, so nothing was looked at")
    with evaluating(model), record(model) as maps:
        _read(model, [job], [target])
    return {
        name: weights[0, :, -job.limit :] if name.startswith("decoder") else weights[0]
        for name, weights in maps.items()
    }


def _target_jobs(
    model: TextModel,
    source: Sequence[Tokens] | None,
    target: Sequence[Tokens],
    prefixes: Sequence[Tokens] | None,
) -> list[Job]:
    """The targets as jobs of the engine, which are to write just as many tokens."""
    if prefixes is None:
        prefixes = [()] * len(target)
    if source is not None and len(source) != len(target):
        raise UsageError(f"{len(source)} sources and {len(target)} targets: each source has one target")
    return make_jobs(model, source, prefixes, [len(tokens) for tokens in target])


def _read(model: TextModel, jobs: Sequence[Job], target: Sequence[Tokens]) -> Tensor:
    """The decoder's vectors (B, m, ·), each of which predicts a token: those of prefix and target, but for the last."""
    inputs = pad_batch([[*job.prefix, *target[job.number][:-1]] for job in jobs], pad_id=model.config.pad_id)
    inputs = inputs.to(next(model.parameters()).device)  # (B, m)
    if jobs[0].source is None:
        return model.decode(inputs)
    return model.decode(inputs, encode(model, [job.source or () for job in jobs]))
