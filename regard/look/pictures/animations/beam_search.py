"""Beam search step by step: the continuations of each step, which are kept, and the best path at the end.

E8. The tree is that of a trace, so every score is one that a model computed.
"""

from __future__ import annotations

from collections.abc import Iterator

from regard.errors import UsageError
from regard.look.pictures.animations.animation import Frame
from regard.look.pictures.search_steps import tree_depth, tree_plot
from regard.look.trace.trace import Trace

PROPOSED_SECONDS = 0.9
DECIDED_SECONDS = 1.1
LAST_SECONDS = 4.0


def beam_search_frames(trace: Trace) -> Iterator[Frame]:
    """Yield two frames for each step: the proposed continuations, and what becomes of them; then the best path."""
    if trace.tree is None:
        raise UsageError("this trace has no tree: trace a beam search (search=Beam(5), or --beam 5)")
    for step in range(tree_depth(trace.tree)):
        yield Frame(tree_plot(trace, steps=step + 1, decided=step), PROPOSED_SECONDS)
        yield Frame(tree_plot(trace, steps=step + 1, decided=step + 1), DECIDED_SECONDS)
    yield Frame(tree_plot(trace), LAST_SECONDS)
