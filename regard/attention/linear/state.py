"""The state of linear attention: two sums over the keys and values so far, of a fixed size.

Katharopoulos et al. 2020, eqs. 18 and 19; Peng et al. 2021, eqs. 6 and 7; F3.

    S = sum_j phi(k_j) v_j^T     z = sum_j phi(k_j)     stored without a factor e^log_scale, to avoid overflow

    B batch   G key-value heads   F features   e width of values
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

EMPTY = -1e30  # the log_scale of an empty state: below any other, and unlike -inf, EMPTY - EMPTY is a number
SAVED_NAMES = {"S": "S", "z": "z", "log_scale": "level", "log_decay": "forgotten"}  # in a file


@dataclass(frozen=True, eq=False)
class FeatureState:
    """The keys and values so far. A state is immutable: each step returns a new one.

    S (B, G, F, e) and z (B, G, F) are in float32 or float64, whatever the inputs are. log_scale (B, G) is the logarithm
    of the factor that multiplies both; log_decay (B, G) is the sum of the logarithms of all gates, 0 without gates.
    draw is the draw of W, (seed, number), of the features: features of another draw cannot be added. Inside a call of
    attention a state has no draw, so that compiled code does not depend on it.
    """

    S: Tensor
    z: Tensor
    log_scale: Tensor
    log_decay: Tensor
    draw: tuple[int, int] | None

    length: ClassVar[int] = 0  # tokens that a mask must cover: padding is already left out

    def __len__(self) -> int:
        return len(self.S)

    def select(self, rows: Tensor) -> FeatureState:
        """Return the given rows in the given order, with repetitions: beams, finished sentences."""
        return self._map(lambda x: x[rows])

    def fork(self) -> FeatureState:
        """Return a copy that shares no memory with this state."""
        return self._map(torch.clone)

    def detach(self) -> FeatureState:
        """Return the state without its history: truncate backpropagation through time here."""
        return self._map(torch.detach)

    def to(self, device: torch.device | str) -> FeatureState:
        return self._map(lambda x: x.to(device))

    def merge(self, later: FeatureState) -> FeatureState:
        """Return the state after these keys and then those of `later`: parts of a text can be processed in parallel."""
        draw = _common_draw([self, later])
        if later.S.shape != self.S.shape:
            raise ValueError(f"states of one shape can be merged, got {tuple(self.S.shape)} and {tuple(later.S.shape)}")
        old, new = self.log_scale + later.log_decay, later.log_scale
        log_scale = torch.maximum(old, new).detach()
        a, b = (old - log_scale).exp(), (new - log_scale).exp()  # (B, G)
        return FeatureState(
            a[..., None, None] * self.S + b[..., None, None] * later.S,
            a[..., None] * self.z + b[..., None] * later.z,
            log_scale,
            self.log_decay + later.log_decay,
            draw,
        )

    @staticmethod
    def join(states: Sequence[FeatureState]) -> FeatureState:
        """Return one state with the rows of all, in this order: texts of different lengths in one batch."""
        S, z, log_scale, log_decay = (torch.cat([getattr(state, name) for state in states]) for name in SAVED_NAMES)
        return FeatureState(S, z, log_scale, log_decay, _common_draw(states))

    def save(self, path: str | Path) -> None:
        """Write the state to a safetensors file."""
        tensors = {saved: getattr(self, name).detach().contiguous() for name, saved in SAVED_NAMES.items()}
        save_file({**tensors, "draw": torch.tensor(self.draw or (), dtype=torch.long)}, str(path))

    @staticmethod
    def load(path: str | Path, device: torch.device | str = "cpu") -> FeatureState:
        """Read a state that `save` wrote."""
        tensors = load_file(str(path), device=str(device))
        missing = {*SAVED_NAMES.values(), "draw"} - tensors.keys()
        if missing:
            raise ValueError(f"{path} is not a state of random features: it has no {', '.join(sorted(missing))}")
        S, z, log_scale, log_decay = (tensors[saved] for saved in SAVED_NAMES.values())
        draw = tensors["draw"].tolist()
        return FeatureState(S, z, log_scale, log_decay, (draw[0], draw[1]) if draw else None)

    def _map(self, change: Callable[[Tensor], Tensor]) -> FeatureState:
        return FeatureState(change(self.S), change(self.z), change(self.log_scale), change(self.log_decay), self.draw)


def empty_state(v: Tensor, features: int) -> FeatureState:
    """Return the state before the first key, for values v (B, G, n, e)."""
    rows, width = v.shape[:2], v.shape[-1]
    log_scale = v.new_full(rows, EMPTY)
    return FeatureState(
        v.new_zeros(*rows, features, width), v.new_zeros(*rows, features), log_scale, torch.zeros_like(log_scale), None
    )


def check_draw(state: FeatureState, draw: tuple[int, int] | None) -> None:
    """Raise ValueError unless the state was computed with this draw: features of two draws are not comparable."""
    if state.draw is not None and draw is not None and state.draw != draw:
        raise ValueError(
            f"the state was computed with draw {state.draw[1]} of seed {state.draw[0]}, and W is now draw {draw[1]} of "
            f"seed {draw[0]}: finish a text with the W that it was started with, or start it again"
        )


def _common_draw(states: Sequence[FeatureState]) -> tuple[int, int] | None:
    """Return the draw of the states that have one; raise ValueError if these differ."""
    known = [state for state in states if state.draw is not None]
    for state in known[1:]:
        check_draw(known[0], state.draw)
    return known[0].draw if known else None
