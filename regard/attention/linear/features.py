"""Random features as a module: the map, its rows W, the learned scale, and when W is redrawn.

Peng et al. 2021, sections 3.1 and 3.3; F2, F3.

    B batch   H heads   G key-value heads   r = H/G   L length   d width   M rows of W   F features
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.linear.feature_maps import FeatureMap, Rows, make_map, map_trait
from regard.attention.linear.random_rows import KINDS, draw_rows
from regard.errors import unknown_name


class RandomFeatures(nn.Module):
    """The feature map phi of queries and keys.

    Rahimi & Recht 2007, Choromanski et al. 2021, Peng et al. 2021; F2, F3.

        dim            width of a head's queries and keys
        features       the number of features, 128 by default; more are more exact and slower
        heads          the number of key-value heads with rows W of their own; 1: all heads share W
        map            "hyperbolic", "positive", "optimal", "trig", "plain" (the lecture's formula, biased), "elu",
                       "rows" (not for causal attention), or a FeatureMap
        draw           "orthogonal" or "independent" rows
        normalize      scale queries and keys to length 1 first, which keeps the variance small; the default for all
                       maps except "rows". False estimates the softmax attention of the queries and keys as they are
        scale          the factor of q.k: by default 1 if normalised, else 1/sqrt(dim) as in exact attention, and 1/dim
                       for "rows"
        learned_scale  a learned factor for each head and dimension of queries and keys, initialised to 1
        sigma          the standard deviation of the random rows, w from N(0, sigma^2 I) in F2: phi(x).phi(y) of the
                       map "plain" estimates exp(-sigma^2 |x-y|^2 / 2), so sigma^2 multiplies q.k
        seed           W is a function of the seed and the number of the draw; give each layer another seed
        redraw_every   training steps between two draws, 0: never; see `redraw`
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
        sigma: float = 1.0,
        seed: int = 0,
        redraw_every: int = 0,
    ) -> None:
        super().__init__()
        for name, size, least in (("dim", dim, 1), ("heads", heads, 1), ("redraw_every", redraw_every, 0)):
            if size < least:
                raise ValueError(f"{name} must be at least {least}, got {size}")
        if draw not in KINDS:
            raise ValueError(unknown_name("draw", draw, KINDS))
        if scale is not None and not scale > 0:
            raise ValueError(f"scale must be greater than 0, for its root multiplies queries and keys; got {scale}")
        if not sigma > 0:
            raise ValueError(f"sigma is a standard deviation and must be greater than 0, got {sigma}")
        self.map = make_map(map)
        if self.map.raw and (normalize or scale is not None or learned_scale or sigma != 1):
            raise ValueError(
                f"map {map!r} takes queries and keys as they are: no normalize, scale, learned_scale or sigma"
            )
        self.per_feature = isinstance(self.map, Rows)  # one quotient per feature, not per query
        self.normalize = not (self.map.raw or self.per_feature) if normalize is None else normalize
        self.scale = (
            scale if scale is not None else 1.0 if self.normalize else 1 / dim if self.per_feature else dim**-0.5
        )
        self.scale *= sigma**2  # rows of N(0, sigma^2 I) times x are rows of N(0, I) times sigma x
        self.features, self.rows = self.map.sizes(features, dim)
        self.dim, self.heads, self.kind, self.redraw_every = dim, heads, draw, redraw_every
        self.sigma = nn.Parameter(torch.ones(heads, dim)) if learned_scale else None

        # W and its draw, (seed, number), are in the checkpoint. The draw is stored a second time as plain numbers,
        # because reading a tensor would make the CPU wait for the GPU.
        self.draw = (seed, 0)
        self.register_buffer("W", torch.empty(heads, self.rows, dim))
        self.register_buffer("drawn", torch.tensor(self.draw))
        self.register_load_state_dict_post_hook(lambda module, _: read_draws(module))
        if not self.W.is_meta:  # else it will be loaded
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
        """In training, draw the W of this step; return whether it changed.

        The draw depends on the seed and the step only, so all processes have the same W, and so does a resumed
        training run. In evaluation nothing changes: a model is evaluated, and decodes, with one W.
        """
        if not self.training or not self.redraw_every or step // self.redraw_every == self.draw[1]:
            return False
        self._fill(step // self.redraw_every)
        return True

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map x (B, G, r, L, d) to (values (B, G, r, L, F), log_scale (B, G, r, L)), phi = values * e^log_scale."""
        single = x.shape[3] == 1
        if single:  # one token of each row: put the rows on the length axis, or the product would copy W for each
            x = x.transpose(0, 3)
        values, log_scale = self.map(self.prepare(x), self.W[:, None].to(x.dtype))
        return (values.transpose(0, 3), log_scale.transpose(0, 3)) if single else (values, log_scale)

    def prepare(self, x: Tensor) -> Tensor:
        """Normalise and scale queries or keys for the map: afterwards x.y is the score."""
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
        with torch.no_grad():  # in place, because a captured CUDA graph reads it there
            self.W.copy_(rows)
            self.drawn[1] = number

    def extra_repr(self) -> str:
        name = type(self.map).__name__
        return f"{name}, dim={self.dim}, features={self.features}, {self.kind}, normalize={self.normalize}"


def read_draws(model: nn.Module) -> None:
    """Set the draw of every RandomFeatures in the model to that of the W which was loaded."""
    for module in model.modules():
        if isinstance(module, RandomFeatures) and not module.drawn.is_meta:
            seed, number = module.drawn.tolist()
            module.draw = (seed, number)


def redraw_features(model: nn.Module, step: int) -> int:
    """Redraw every RandomFeatures in the model for this training step; return how many changed."""
    return sum(module.redraw(step) for module in model.modules() if isinstance(module, RandomFeatures))
