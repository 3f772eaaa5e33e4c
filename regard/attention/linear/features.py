"""Random features as a module: the map, its rows W, the learned scale, and when W is drawn anew.

Peng et al. 2021, sections 3.1 and 3.3; F2, F3.

    B batch   H heads   G heads of keys   r = H/G   L length   d width   M rows of W   F features
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.linear.feature_maps import FeatureMap, Rows, make_map, map_trait
from regard.attention.linear.random_rows import KINDS, draw_rows
from regard.errors import unknown_name


class RandomFeatures(nn.Module):
    """phi of queries and keys.

    Rahimi & Recht 2007, Choromanski et al. 2021, Peng et al. 2021; F2, F3.

        dim            width of a head's queries and keys
        features       how many numbers phi makes of them, 128 when not given; more are exacter and slower
        heads          rows W of its own for each head of the keys; 1: all heads share them
        map            "hyperbolic", "positive", "optimal", "trig", "plain" (the lecture's formula, biased), "elu",
                       "rows" (not for causal attention), or a FeatureMap
        draw           "orthogonal" or "independent" rows
        normalize      bring queries and keys to length 1 first, which keeps the variance small; the default but of
                       "rows". False estimates the softmax attention of the queries and keys as they are
        scale          what q.k is multiplied by; 1 when normalised, else 1/sqrt(dim) as in exact attention, 1/dim of
                       "rows"
        learned_scale  a factor for each head and dimension of queries and keys, 1 at first
        seed           W is a function of seed and number of the draw; give each layer a seed of its own
        redraw_every   steps of training between two draws, 0: never; `redraw` says the step
    """

    W: Tensor
    drawn: Tensor

    def __init__(
        self,
        *,
        dim: int,
        features: int | None = None,
        heads: int = 1,
        map: str | FeatureMap = "hyperbolic",
        draw: str = "orthogonal",
        normalize: bool | None = None,
        scale: float | None = None,
        learned_scale: bool = False,
        seed: int = 0,
        redraw_every: int = 0,
    ) -> None:
        super().__init__()
        for name, size, least in (("dim", dim, 1), ("heads", heads, 1), ("redraw_every", redraw_every, 0)):
            if size < least:
                raise ValueError(f"{name} counts from {least}, got {size}")
        if draw not in KINDS:
            raise ValueError(unknown_name("draw", draw, KINDS))
        if scale is not None and not scale > 0:
            raise ValueError(f"scale must be greater than 0, for its root multiplies queries and keys; got {scale}")
        self.map = make_map(map)
        if self.map.raw and (normalize or scale is not None or learned_scale):
            raise ValueError(f"map {map!r} takes queries and keys as they are: no normalize, scale or learned_scale")
        self.each = isinstance(self.map, Rows)  # a quotient for each feature, not for each query
        self.normalize = not (self.map.raw or self.each) if normalize is None else normalize
        self.scale = scale if scale is not None else 1.0 if self.normalize else 1 / dim if self.each else dim**-0.5
        self.features, self.rows = self.map.sizes(features, dim)
        self.dim, self.heads, self.kind, self.redraw_every = dim, heads, draw, redraw_every
        self.sigma = nn.Parameter(torch.ones(heads, dim)) if learned_scale else None

        # W and the name of its draw are in the checkpoint. The name is here a second time, as plain numbers, for a
        # look at a tensor would make the CPU wait for the GPU.
        self.draw = (seed, 0)
        self.register_buffer("W", torch.empty(heads, self.rows, dim))
        self.register_buffer("drawn", torch.tensor(self.draw))
        self.register_load_state_dict_post_hook(lambda own, _: read_draws(own))
        if not self.W.is_meta:  # else it will be read
            self._fill(0)

    @property
    def traits(self) -> frozenset[str]:
        """What this module computes, by the map and the options in use; see regard.traits."""
        options = {
            "normalize": self.normalize,
            "feature-scale": self.scale != 1,
            "learned-scale": self.sigma is not None,
        }
        return frozenset({map_trait(self.map), *(name for name, used in options.items() if used)})

    def redraw(self, step: int) -> bool:
        """In training, the draw that belongs to this step; whether it is another one than before.

        A function of seed and step alone: all processes have the same W, and so has a training that is resumed. In
        evaluation nothing changes, so that a model is judged, and decodes, with one W.
        """
        if not self.training or not self.redraw_every or step // self.redraw_every == self.draw[1]:
            return False
        self._fill(step // self.redraw_every)
        return True

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(numbers (B, G, r, L, F), level (B, G, r, L)) with phi = numbers * e^level, of x (B, G, r, L, d)."""
        one = x.shape[3] == 1
        if one:  # the rows of a batch side by side: they have W in common, which a product would copy for each
            x = x.transpose(0, 3)
        numbers, level = self.map(self.prepare(x), self.W[:, None].to(x.dtype))
        return (numbers.transpose(0, 3), level.transpose(0, 3)) if one else (numbers, level)

    def prepare(self, x: Tensor) -> Tensor:
        """Queries or keys as the map wants them: such that x.y is the score."""
        if self.map.raw:
            return x
        if self.normalize:
            x = functional.normalize(x, dim=-1, eps=1e-6)
        if self.scale != 1:
            x = x * self.scale**0.5
        return x if self.sigma is None else x * self.sigma[:, None, None].to(x.dtype)

    def _fill(self, number: int) -> None:
        rows = draw_rows(self.rows, self.dim, heads=self.heads, kind=self.kind, seed=self.draw[0], number=number)
        self.draw = (self.draw[0], number)
        with torch.no_grad():  # in place, so that a recorded CUDA graph finds it
            self.W.copy_(rows)
            self.drawn[1] = number

    def extra_repr(self) -> str:
        name = type(self.map).__name__
        return f"{name}, dim={self.dim}, features={self.features}, {self.kind}, normalize={self.normalize}"


def read_draws(model: nn.Module) -> None:
    """Let every RandomFeatures in the model know by which draw the W was made that it was given."""
    for module in model.modules():
        if isinstance(module, RandomFeatures) and not module.drawn.is_meta:
            seed, number = module.drawn.tolist()
            module.draw = (seed, number)


def redraw_features(model: nn.Module, step: int) -> int:
    """Give every RandomFeatures in the model the draw of this step; how many changed."""
    return sum(module.redraw(step) for module in model.modules() if isinstance(module, RandomFeatures))
