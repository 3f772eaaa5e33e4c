"""The attention weights of the same text and output as an attribution, to compare the two.

H4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.look.attribution.attribution import Attribution
from regard.look.trace.model_run import Face
from regard.look.trace.tracing import trace_text


def attention_beside(face: Face, text: str, attribution: Attribution) -> NDArray[Any] | None:
    """Return the attention weights (m, n) for the inputs and outputs of an attribution; None if there are none.

    Of a translator: its alignment, the heads that align best. Of a language model: the mean of all heads of its last
    layer. Of a classifier: the weights with which its query pools the tokens.
    """
    if hasattr(face, "classify"):
        return np.array([face.classify(text).weights])
    trace = trace_text(face, text, target=list(attribution.ids))
    if trace.alignment is not None:
        return trace.alignment.weights[0, 0]
    if "dec_self" in trace.maps and "source" not in trace.axes:
        return trace.maps["dec_self"].weights[-1].mean(0)
    return None
