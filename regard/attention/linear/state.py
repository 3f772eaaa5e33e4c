"""What linear attention remembers of the keys and values so far: two sums, of one size however long the text is.

Katharopoulos et al. 2020, eqs. 18 and 19; Peng et al. 2021, eqs. 6 and 7; F3.

    S = sum_j phi(k_j) v_j^T     z = sum_j phi(k_j)     each times e^level, so that nothing overflows

    B batch   G heads of keys   F features   e width of values
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

EMPTY = -1e30  # the level of nothing: smaller than any, and unlike -inf its difference to itself is a number


@dataclass(frozen=True, eq=False)
class FeatureState:
    """The keys and values so far. It never changes: each step makes a new one, so keeping one is a fork for free.

    S (B, G, F, e) and z (B, G, F) are in float32 or float64 whatever the inputs are, level (B, G) is the logarithm of
    what they are to be multiplied by, forgotten (B, G) that of all gates so far (0 without gates), and draw is the
    draw of W, (seed, number), that the features are made with: no other may be added to them. A state that never
    leaves a call of attention bears no draw: compiled code need not know it, and so lasts from draw to draw.
    """

    S: Tensor
    z: Tensor
    level: Tensor
    forgotten: Tensor
    draw: tuple[int, int] | None

    length: ClassVar[int] = 0  # tokens that a mask must tell about: padding is left out already

    def __len__(self) -> int:
        return len(self.S)

    def select(self, rows: Tensor) -> FeatureState:
        """The given rows in the given order, each as often as it is named: beams, finished sentences."""
        return self._each(lambda x: x[rows])

    def fork(self) -> FeatureState:
        """A copy with memory of its own."""
        return self._each(torch.clone)

    def detach(self) -> FeatureState:
        """The same numbers as constants: where backpropagation through time ends."""
        return self._each(torch.detach)

    def to(self, device: torch.device | str) -> FeatureState:
        return self._each(lambda x: x.to(device))

    def merge(self, later: FeatureState) -> FeatureState:
        """The state after the keys of both, those of `later` after these: a long text may be read in parts at once."""
        draw = _one_draw([self, later])
        if later.S.shape != self.S.shape:
            raise ValueError(f"states of one shape can be merged, got {tuple(self.S.shape)} and {tuple(later.S.shape)}")
        old, new = self.level + later.forgotten, later.level
        level = torch.maximum(old, new).detach()
        a, b = (old - level).exp(), (new - level).exp()  # (B, G)
        return FeatureState(
            a[..., None, None] * self.S + b[..., None, None] * later.S,
            a[..., None] * self.z + b[..., None] * later.z,
            level,
            self.forgotten + later.forgotten,
            draw,
        )

    @staticmethod
    def join(states: Sequence[FeatureState]) -> FeatureState:
        """One state with the rows of all, in this order: texts of different ages in one batch."""
        S, z, level, forgotten = (
            torch.cat([getattr(state, name) for state in states]) for name in ("S", "z", "level", "forgotten")
        )
        return FeatureState(S, z, level, forgotten, _one_draw(states))

    def save(self, path: str | Path) -> None:
        """Write the state to a safetensors file."""
        tensors = {name: getattr(self, name).detach().contiguous() for name in ("S", "z", "level", "forgotten")}
        save_file({**tensors, "draw": torch.tensor(self.draw or (), dtype=torch.long)}, str(path))

    @staticmethod
    def load(path: str | Path, device: torch.device | str = "cpu") -> FeatureState:
        """Read a state that `save` wrote."""
        tensors = load_file(str(path), device=str(device))
        missing = {"S", "z", "level", "forgotten", "draw"} - tensors.keys()
        if missing:
            raise ValueError(f"{path} holds no state of random features: {', '.join(sorted(missing))} is not there")
        S, z, level, forgotten = (tensors[name] for name in ("S", "z", "level", "forgotten"))
        draw = tensors["draw"].tolist()
        return FeatureState(S, z, level, forgotten, (draw[0], draw[1]) if draw else None)

    def _each(self, change: Callable[[Tensor], Tensor]) -> FeatureState:
        return FeatureState(change(self.S), change(self.z), change(self.level), change(self.forgotten), self.draw)


def empty_state(v: Tensor, features: int) -> FeatureState:
    """The state before the first key, for values v (B, G, n, e)."""
    rows, width = v.shape[:2], v.shape[-1]
    level = v.new_full(rows, EMPTY)
    return FeatureState(
        v.new_zeros(*rows, features, width), v.new_zeros(*rows, features), level, torch.zeros_like(level), None
    )


def check_draw(state: FeatureState, draw: tuple[int, int] | None) -> None:
    """Raise ValueError unless the state was made with this draw: features of two draws have nothing in common."""
    if state.draw is not None and draw is not None and state.draw != draw:
        raise ValueError(
            f"the state was made with draw {state.draw[1]} of seed {state.draw[0]}, and W is now draw {draw[1]} of "
            f"seed {draw[0]}: finish a text with the W that it was begun with, or begin it anew"
        )


def _one_draw(states: Sequence[FeatureState]) -> tuple[int, int] | None:
    """The draw that all of them have who have one."""
    known = [state for state in states if state.draw is not None]
    for state in known[1:]:
        check_draw(known[0], state.draw)
    return known[0].draw if known else None
