"""How much each input token contributed to each output token, beside the attention weights.

H4. Attention weights say how a layer mixed its vectors. They do not say what the output would have been without a
token: the mixed vectors come from earlier layers, residual connections pass around attention, and other heads may undo
what one does (Jain & Wallace 2019, Wiegreffe & Pinter 2019). Attribution asks about the output itself. It has limits of
its own: a gradient is true only for small changes, an integral depends on its baseline, and replacing a token makes a
text that the model has never seen.

    n input tokens   m outputs   d width of a token vector
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.model_step import evaluating
from regard.decoding.searches.search import Search
from regard.errors import UsageError, unknown_name
from regard.look.attribution.methods import METHODS
from regard.look.attribution.scored_text import ScoredText, score_text
from regard.look.trace.model_run import Face
from regard.look.trace.trace import Axis

if TYPE_CHECKING:
    from regard.look.pictures.drawing.figures import Picture

BASELINES = ("mean", "zero")
STEPS = 64  # of the integral


@dataclass(frozen=True, eq=False)
class Attribution:
    """The contributions (m, n) of input tokens to the log-probabilities of outputs, in nats."""

    method: str
    baseline: str
    inputs: Axis
    outputs: Axis
    output: str  # the text, or the class
    ids: tuple[int, ...]  # the tokens that the model wrote or was forced to write after its prompt; () for a class
    values: NDArray[np.float64]  # (m, n): positive: the token made the output more probable
    logps: NDArray[np.float64]  # (m,): log-probabilities of the outputs
    baseline_logps: NDArray[np.float64]  # (m,): the same with the baseline in place of every token

    @property
    def gap(self) -> float:
        """Return the largest difference between the sum of a row and F(x) - F(baseline).

        It is close to zero for integrated gradients (completeness), and says how far the other methods are from it.
        """
        return float(np.abs(self.values.sum(1) - (self.logps - self.baseline_logps)).max())

    def to_dict(self) -> dict[str, Any]:
        """Return the attribution as JSON data."""
        return {
            "method": self.method,
            "baseline": self.baseline,
            "inputs": [token.text for token in self.inputs.tokens],
            "outputs": [token.text for token in self.outputs.tokens],
            "output": self.output,
            "values": self.values.tolist(),
            "logps": self.logps.tolist(),
            "baseline_logps": self.baseline_logps.tolist(),
            "gap": self.gap,
        }

    def plot(self, path: str | Path | None = None) -> Path | Picture:
        """Draw the contributions as PNG, SVG or PDF; without a path, return a picture that a notebook shows."""
        from regard.look.attribution.picture import attribution_plot
        from regard.look.pictures.drawing.figures import save_or_show

        return save_or_show(attribution_plot([self]), path)


def attribute(
    face: Face,
    text: str,
    *,
    method: str = "integrated_gradients",
    baseline: str = "mean",
    steps: int = STEPS,
    target: str | Sequence[int] | None = None,
    search: Search | None = None,
    label: str | None = None,
    max_tokens: int | None = None,
) -> Attribution:
    """Return how much each input token contributed to each output of a translator, language model or classifier.

    `method` is integrated_gradients, gradient_times_input or occlusion (methods.py has the formulas). The baseline
    vector in place of a token is the "mean" of all token vectors or "zero". Models that normalize before their first
    sublayer (pre-norm) change abruptly near zero, so an integral that starts there needs very many `steps`; `gap` says
    how exact it is. The other arguments as in `score_text`.
    """
    written = {"target": target, "search": search, "label": label, "max_tokens": max_tokens}
    return attribute_all(face, text, methods=[method], baseline=baseline, steps=steps, **written)[0]


def attribute_all(
    face: Face,
    text: str,
    *,
    methods: Sequence[str] = tuple(METHODS),
    baseline: str = "mean",
    steps: int = STEPS,
    **arguments: Any,
) -> list[Attribution]:
    """Return the attributions of several methods for the same output; the arguments are those of `attribute`."""
    for method in methods:
        if method not in METHODS:
            raise UsageError(unknown_name("method", method, tuple(METHODS)))
    if steps < 1:
        raise UsageError(f"steps must be at least 1, got {steps}")
    if baseline not in BASELINES:
        raise UsageError(unknown_name("baseline", baseline, BASELINES))
    with evaluating(face.model):
        scored = score_text(face, text, **arguments)
        x = scored.vectors()
        base = baseline_vectors(scored, x, baseline)
        with torch.no_grad():
            logps, empty = (scored.score(vectors[None])[0].double().cpu().numpy() for vectors in (x, base))
        maps = [METHODS[method](scored.score, x, base, steps).double().cpu().numpy() for method in methods]
    return [
        Attribution(method, baseline, scored.inputs, scored.outputs, scored.output, scored.ids, values, logps, empty)
        for method, values in zip(methods, maps, strict=True)
    ]


def baseline_vectors(scored: ScoredText, x: Tensor, baseline: str) -> Tensor:
    """Return the vectors (n, d) that stand for no token: zeros, or the mean of all token vectors."""
    if baseline == "zero":
        return torch.zeros_like(x)
    return scored.mean_vector().to(x).expand_as(x)


def rank_agreement(weights: NDArray[Any], values: NDArray[Any]) -> float:
    """Return Spearman's rank correlation between attention weights and absolute contributions, averaged over rows.

    1: both rank the tokens alike, 0: unrelated. Rows without variation are left out; nan if none is left.
    """
    correlations = []
    for row, contributions in zip(weights, np.abs(values), strict=True):
        if len(np.unique(row)) > 1 and len(np.unique(contributions)) > 1:
            correlations.append(np.corrcoef(_ranks(row), _ranks(contributions))[0, 1])
    return float(np.mean(correlations)) if correlations else float("nan")


def _ranks(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Return the rank of each number; equal numbers share the mean of their ranks."""
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse]
