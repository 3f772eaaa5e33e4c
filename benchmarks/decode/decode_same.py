"""Do regard, CTranslate2 and transformers compute the same, and write the same? Token for token, but for ties.

B sources   m target tokens   V vocabulary   w beam
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile

import torch

from benchmarks.decode.decode_peers import Contender, CTranslate2, Ours, Setting, Tokens, Transformers, make_sources
from regard.decoding.engine import generate_tokens
from regard.decoding.model_step import log_probabilities
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.observer import Recorder, StepRecord
from regard.text.tokenizers.special_tokens import END, START

TIE = 1e-4  # in log-probability: what is closer than this, rounding decides
TOLERANCE = 1e-4  # of logits and log-probabilities in fp32


@dataclass(frozen=True)
class Difference:
    """Where a peer's text and ours part."""

    peer: str
    beam: int
    source: int  # which of them
    step: int  # tokens before the choice that rounding may have made; the length: the last ranking
    margin: float  # how much better our model finds what was kept than what was let go
    tie: bool


@torch.inference_mode()
def check_forced(ours: Ours, peers: dict[str, Contender], setting: Setting) -> dict[str, float]:
    """How far each peer's numbers are from ours for the same sources and targets; AssertionError where it is too far.

    transformers gives its logits, CTranslate2 the log-probabilities of the target's tokens.
    """
    sources, targets = (make_sources(setting, 8, seed=seed) for seed in (2, 3))
    inputs = torch.tensor([[START, *target] for target in targets])  # (B, m + 1)
    labels = torch.tensor([[*target, END] for target in targets])
    logits = ours.model(torch.tensor(sources), inputs)  # (B, m + 1, V)
    logps = log_probabilities(logits).gather(2, labels[..., None])[..., 0]  # (B, m + 1)
    distances = {}
    for name, peer in peers.items():
        if isinstance(peer, Transformers):
            distances[name] = float((peer.logits(sources, inputs) - logits).abs().max())
        elif isinstance(peer, CTranslate2):
            distances[name] = float((peer.logps(sources, targets) - logps).abs().max())
        assert distances[name] < TOLERANCE, (
            f"{name} is {distances[name]:.1e} from regard: they do not compute the same thing"
        )
    return distances


def compare(
    ours: Ours, peers: dict[str, Contender], sources: Sequence[Tokens], *, beams: Sequence[int]
) -> dict[str, object]:
    """What all write for these sources, compared with what ours writes; each difference is named."""
    length = ours.setting.length
    differences, lengths = [], set()
    for beam in beams:
        mine = ours.generate(sources, beam)
        lengths |= set(map(len, mine))
        for name, peer in peers.items():
            theirs = peer.generate(sources, beam)
            lengths |= set(map(len, theirs))
            for number, texts in enumerate(zip(mine, theirs, strict=True)):
                if texts[0] != texts[1]:
                    step, margin = explain(ours, sources[number], texts, beam)
                    differences.append(Difference(name, beam, number, step, margin, margin < TIE))
    return {
        "sources": len(sources),
        "beams": list(beams),
        "peers": list(peers),
        "exactly_as_long": lengths == {length},
        "differences": [asdict(difference) for difference in differences],
        "met": lengths == {length} and bool(peers) and all(difference.tie for difference in differences),
    }


def explain(ours: Ours, source: Tokens, texts: Sequence[Tokens], beam: int) -> tuple[int, float]:
    """The step and the margin by which our search, watched on this source alone, lets one of the texts go.

    A text that our search itself finds has margin 0; of two others the one that is harder to explain counts.
    """
    watch = Recorder(candidates=2)
    search = Greedy() if beam == 1 else Beam(beam)
    generate_tokens(ours.model, [source], search=search, max_tokens=ours.setting.length, observer=watch)
    return max((let_go(watch.records, text, beam) for text in texts), key=lambda step_and_margin: step_and_margin[1])


def let_go(records: Sequence[StepRecord], text: Tokens, beam: int) -> tuple[int, float]:
    """Where a recorded search of one source lets a text go, and how much was between the last kept and the next.

    The margin of a step lies between candidate w, the last that lives on, and the one after it. A beam that differs
    in another slot may keep what ours lets go only later: so the smallest margin up to there counts, but in greedy
    search, which has no other slot, only that of the step itself.
    """
    slots: list[tuple[int, ...]] = [()]
    margins: list[float] = []
    for record in records:
        parents, tokens, scores, survivors = (
            x[0].tolist() for x in (record.parents, record.tokens, record.scores, record.kept)
        )
        margins.append(scores[beam - 1] - scores[beam])
        candidates = [
            (*slots[parent], token) if parent < len(slots) else ()
            for parent, token in zip(parents, tokens, strict=True)
        ]
        slots, alive = [candidates[c] for c in survivors], [scores[c] for c in survivors]
        if tuple(text[: record.step + 1]) not in slots:
            first = record.step if beam == 1 else 0
            margin = min(margins[first:])
            return margins.index(margin, first), margin
    return len(records), alive[0] - alive[slots.index(tuple(text))]


def penalties_cancel(contenders: dict[str, Contender], sources: Sequence[Tokens], beam: int) -> bool:
    """Whether each finds the same with and without a length penalty, which the three define differently.

    It must be so where all texts are of one length.
    """
    return all(
        contender.generate(sources, beam, length_penalty=0.0) == contender.generate(sources, beam, length_penalty=1.0)
        for contender in contenders.values()
    )


def agreement(texts: Sequence[Tokens], others: Sequence[Tokens]) -> float:
    """The share of tokens up to the first that differs: how much of a text rounding to int8 leaves as it was."""
    same = sum(
        len(list(takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=True))))
        for text, other in zip(texts, others, strict=True)
    )
    return same / sum(map(len, texts))
