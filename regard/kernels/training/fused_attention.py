"""Multi-head attention in training on NVIDIA GPUs: a kernel for short texts, and one for the gradients of q, k and v.

D4, D9, D10, D11. torch's attention kernels process the scores in tiles, which a sentence does not need: one program
holds all scores of a head for up to 128 tokens. Both kernels also sum up the gradient of the projection's bias.

    B batch   H heads   m queries   n keys   d width of a head
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from regard.attention.checks import check_mask, one_dtype
from regard.attention.masks.algebra import Mask
from regard.attention.masks.rules import Lengths, Padding, split_causal
from regard.attention.multihead import Cache, MultiHeadAttention
from regard.attention.projections import StackedProjection, cut_heads
from regard.attention.scores import Score
from regard.attention.sdpa import HALVES
from regard.kernels.fp8.linear import linear
from regard.kernels.fp8.scales import training_scales
from regard.kernels.fused_class import FusedClass
from regard.kernels.training.fused_dropout import draw_seed, has_known_traits, is_plain, why_not_train

MAX_TOKENS = 128  # queries or keys
MAX_WIDTH = 128  # d
# What the short kernel computes together with the projection, and what it leaves to the plain layer around it.
SHORT = frozenset({"attention", "attention-bias", "no-output"})
KNOWN = SHORT | {"grouped-query", "head-widths", "input-widths", "slice", "qk-norm", "window"}


class FusedStackedProjection(FusedClass, StackedProjection):
    """StackedProjection whose backward pass joins the gradients of q, k and v, and sums up that of the bias."""

    traits = StackedProjection.traits

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if key is not query or value is not query or not has_known_traits(self, frozenset()):
            return super().forward(query, key, value)
        amax = training_scales(self)
        if self.bias is None or self.why_not(query) is not None:
            q, k, v = self.split_heads(linear(query, self.weight, self.bias, amax))
        elif amax is None:
            from regard.kernels.training.split_heads_triton import CutHeads

            x = F.linear(query, self.weight, self.bias.detach())
            q, k, v = CutHeads.apply(x, self.bias, self.sizes.heads)
        else:
            from regard.kernels.fp8.projection_triton import Fp8Heads

            q, k, v = Fp8Heads.apply(query, self.weight, self.bias, self.sizes.heads, amax)
        return q, k, v

    def why_not(self, query: Tensor) -> str | None:
        """Return the reason why the kernel cannot join the gradients, or None if it can."""
        if self.bias is None:
            return "the projection has no bias"
        if self.sizes.heads != self.sizes.kv_heads or self.sizes.d_k != self.sizes.d_v:
            return "q, k and v differ in size"
        return why_not_train(self, frozenset(), query)


class FusedMultiHeadAttention(FusedClass, MultiHeadAttention):
    """MultiHeadAttention that computes short texts with dropout in one kernel."""

    traits = MultiHeadAttention.traits

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        score: Score | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        if value is None and bias is None and cache is None and score is None and not return_weights:
            heads = self._short_heads(query, key, mask, causal, seed=None)
            if heads is not None:
                return self._join(heads, detach_bias=False)
        return super().forward(
            query, key, value, mask=mask, bias=bias, causal=causal, cache=cache, score=score,
            return_weights=return_weights,
        )  # fmt: skip

    def why_not(self, query: Tensor, key: Tensor, mask: Mask | Tensor | None) -> str | None:
        """Return the reason why one kernel cannot compute the heads from the projections, or None if it can."""
        if not self.dropout:
            return "without dropout torch's kernels are as fast"
        if self.backend != "auto":
            return "the backend was chosen by hand"
        if self.position is not None:
            return "positions act between the projection and the kernel"
        if not self.has_bias or not is_plain(self.input, StackedProjection, FusedStackedProjection):
            return "the projection has no bias or several matrices, or it was replaced or hooked"
        if query.dim() != 3 or key.dim() != 3 or query.shape[2] != self.dim or key.shape[2] != self.dim:
            return "the inputs have other widths"
        reason = why_not_train(self, SHORT, query, self.dropout)
        if reason is not None:
            return reason
        q, k = cut_heads(query, self.heads, self.d_k), cut_heads(key, self.heads, self.d_k)  # the shapes suffice
        return why_not_short(q, k, k, mask)

    def _short_heads(
        self, query: Tensor, key: Tensor | None, mask: Mask | Tensor | None, causal: bool, seed: Tensor | None
    ) -> Tensor | None:
        """Return the heads (B, H, m, d), if the kernel can compute them together with the bias of the projection."""
        key = query if key is None else key
        if self.why_not(query, key, mask) is not None or not isinstance(self.input, StackedProjection):
            return None
        q, k, v = _project_with_constant_bias(self.input, query, key)
        if isinstance(mask, Tensor):
            mask = check_mask(mask, q, k)
        scale = 1 / math.sqrt(self.d_k)
        return attend_short(q, k, v, mask, causal, scale, self.dropout, bias=self.input.bias, seed=seed)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, bias: Tensor | None, causal: bool, p: float
    ) -> Tensor:
        if not p or bias is not None or self.backend != "auto" or why_not_train(self, KNOWN, q, p) is not None:
            return super()._attend(q, k, v, mask, bias, causal, p)
        rest, also_causal = mask, causal
        if isinstance(mask, Mask):
            contains_causal, rest = split_causal(mask)
            also_causal = causal or contains_causal
        q, k, v = one_dtype(q, k, v)
        if why_not_short(q, k, v, rest) is not None:
            return super()._attend(q, k, v, mask, bias, causal, p)
        if isinstance(rest, Tensor):
            rest = check_mask(rest, q, k)
        return attend_short(q, k, v, rest, also_causal, 1 / math.sqrt(self.d_k), p)

    def _in_block(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        mask: Mask | Tensor | None,
        causal: bool = False,
        seed: Tensor | None,
        detach_bias: bool,
    ) -> Tensor:
        """Run inside a FusedBlock: it supplies the seed and, if `detach_bias`, computes the gradient of W^O's bias."""
        heads = self._short_heads(query, key, mask, causal, seed)
        if heads is None:
            q, k, v = self._project(query, key, None, None)
            heads, _ = self._heads(q, k, v, mask=mask, causal=causal)
        return self._join(heads, detach_bias=detach_bias)

    def _join(self, heads: Tensor, *, detach_bias: bool) -> Tensor:
        y = heads.transpose(1, 2).flatten(2)
        if self.output is None:
            return y
        return F.linear(y, self.output.weight, self.output.bias.detach()) if detach_bias else self.output(y)


def why_not_short(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None) -> str | None:
    """Return the reason why the kernel for short texts cannot attend, or None if it can.

    It takes few tokens in half precision, and masks of keys that all heads and queries share.
    """
    if q.dtype not in HALVES:
        return "in float32 its products are slow"
    if isinstance(mask, Tensor):
        if mask.dim() != 4 or mask.shape[1] != 1 or mask.shape[2] != 1 or mask.shape[3] != k.shape[2]:
            return "the mask is not (B, 1, 1, n)"
    elif not (mask is None or isinstance(mask, Padding | Lengths)):
        return "the mask hides more than padding"
    if k.shape != v.shape or k.shape[1] != q.shape[1] or q.shape[3] > MAX_WIDTH:
        return "the heads differ in number or width, or are wider than 128"
    if q.shape[2] > MAX_TOKENS or k.shape[2] > MAX_TOKENS:
        return "there are more than 128 tokens"
    return None


def attend_short(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
    *,
    bias: Tensor | None = None,
    seed: Tensor | None = None,
) -> Tensor:
    """Attend as attend_sdpa does; `bias`, that of the projection of q, k and v, gets its gradient here."""
    from regard.kernels.training import short_attention_triton

    if isinstance(mask, Mask):
        mask = mask.matrix(q.shape[2], k.shape[2], device=q.device)
    keep = None if mask is None else mask[:, 0, 0]  # (B, n)
    seed = draw_seed(q) if seed is None else seed
    return short_attention_triton.attend_short(q, k, v, bias, keep, seed, causal, scale, dropout)


def _project_with_constant_bias(projection: StackedProjection, query: Tensor, key: Tensor) -> list[Tensor]:
    """q, k and v (B, H, length, d), with no gradient for the bias; values come from the keys."""
    assert projection.bias is not None
    weight, bias, rows = projection.weight, projection.bias.detach(), projection.rows[0]
    if key is query:
        return projection.split_heads(linear(query, weight, bias, training_scales(projection)))
    q = cut_heads(F.linear(query, weight[:rows], bias[:rows]), projection.sizes.heads, projection.sizes.d_k)
    return [q, *projection.split_heads(F.linear(key, weight[rows:], bias[rows:]), first=1)]
