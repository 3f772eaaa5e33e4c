"""One clear message for each way to call attend and MultiHeadAttention wrongly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard import MultiHeadAttention, attend


def t(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    return torch.zeros(*shape, device=device).to(dtype)


x = t(2, 4, 3, 8)
half = x.half()
far = t(2, 4, 3, 8, device="meta")


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        # tensors
        (lambda: attend([[1.0]], x, x), TypeError, r"q must be a tensor, got list"),
        (lambda: attend(x, None, x), TypeError, r"k must be a tensor, got NoneType"),
        (lambda: attend(x, x, x.numpy()), TypeError, r"v must be a tensor, got ndarray"),
        (lambda: attend(x.long(), x, x), TypeError, r"q must be floating point, got torch.int64"),
        (lambda: attend(x.long(), x.long(), x.long()), TypeError, r"q must be floating point, got torch.int64"),
        (lambda: attend(x, half, half), TypeError, r"one dtype, got torch.float32, torch.float16, torch.float16"),
        (lambda: attend(x, x, half), TypeError, r"one dtype, got torch.float32, torch.float32, torch.float16"),
        (lambda: attend(x, far, far), ValueError, r"must be on one device, got cpu, meta, meta"),
        (lambda: attend(x, x, far), ValueError, r"must be on one device, got cpu, cpu, meta"),
        # ranks and sizes
        (lambda: attend(x, x[0], x[0]), ValueError, r"must all be \(B, H, length, width\).*q \(2, 4, 3, 8\), k \(4, 3"),
        (lambda: attend(x[0, 0, 0], x[0, 0, 0], x[0, 0, 0]), ValueError, r"\(length, width\); got q \(8,\)"),
        (lambda: attend(x[None], x[None], x[None]), ValueError, r"must all be.*got q \(1, 2, 4, 3, 8\)"),
        (lambda: attend(x, t(2, 4, 3, 7), x), ValueError, r"queries and keys must have one width, got 8 and 7"),
        (lambda: attend(x, t(2, 4, 5, 8), x), ValueError, r"k and v must be equal in number, got 5 keys and 3 values"),
        (
            lambda: attend(x, t(1, 4, 3, 8), t(1, 4, 3, 8)),
            ValueError,
            r"one batch size; got q \(2, 4, 3, 8\), k \(1",
        ),
        (lambda: attend(x, x, t(1, 4, 3, 8)), ValueError, r"one batch size"),
        (lambda: attend(x, t(2, 3, 3, 8), t(2, 3, 3, 8)), ValueError, r"same number of heads, a divisor of that of q"),
        (lambda: attend(x, t(2, 8, 3, 8), t(2, 8, 3, 8)), ValueError, r"same number of heads, a divisor of that of q"),
        (lambda: attend(x, t(2, 0, 3, 8), t(2, 0, 3, 8)), ValueError, r"same number of heads, a divisor of that of q"),
        (lambda: attend(x, x, t(2, 2, 3, 8)), ValueError, r"k and v must have the same number of heads"),
        # mask and bias; the masks' own errors are in test_masks
        (lambda: attend(x, x, x, mask=t(3, 3, device="meta").bool()), ValueError, r"mask is on meta, but q is on cpu"),
        (lambda: attend(x, x, x, bias=t(3, 3, device="meta")), ValueError, r"bias is on meta, but q is on cpu"),
        (
            lambda: attend(x, x, x, bias=t(3, 3).bool()),
            TypeError,
            r"must be floating.*torch.bool; bools go into mask=",
        ),
        (lambda: attend(x, x, x, bias=1.0), TypeError, r"bias is added to the scores.*got float"),
        (lambda: attend(x[0], x[0], x[0], bias=[1.0]), TypeError, r"bias is added to the scores.*got list"),
        (lambda: attend(x, x, x, bias=t(3, 2)), ValueError, r"bias of shape \(3, 2\) does not.*\(2, 4, 3, 3\)"),
        (lambda: attend(x, x, x, bias=t(3, 1, 1)), ValueError, r"bias of shape \(3, 1, 1\) does not"),
        (lambda: attend(x, x, x, bias=t(1, 1, 1, 3, 3)), ValueError, r"bias of shape \(1, 1, 1, 3, 3\) does not"),
        # dropout, score, backend
        (lambda: attend(x, x, x, dropout=1.0), ValueError, r"dropout must be at least 0 and less than 1.*got 1.0"),
        (lambda: attend(x, x, x, dropout=-0.1), ValueError, r"dropout must be at least 0 and less than 1.*got -0.1"),
        (lambda: attend(x, x, x, score="scalde"), ValueError, r"unknown score 'scalde'; did you mean 'scaled'\?"),
        (
            lambda: attend(x, x, x, score="additive"),
            ValueError,
            r"'additive' has parameters.*regard.AdditiveScore",
        ),
        (lambda: attend(x, x, x, score="bilinear"), ValueError, r"score 'bilinear' has.*regard.BilinearScore"),
        (lambda: attend(x, x, x, score=3), TypeError, r"score must be a name or a callable.*got int"),
        (
            lambda: attend(x, x, x, backend="flsh"),
            ValueError,
            r"unknown backend 'flsh'; did you mean 'flash'\?",
        ),
        (
            lambda: attend(x, x, x, backend="flex"),
            ValueError,
            r"'flex' needs a CUDA.*one on cpu.*has no backward",
        ),
        (lambda: attend(x, x, x, backend="sdpa", return_weights=True), ValueError, r"'sdpa' cannot give weights: use"),
        (lambda: attend(x, x, x, backend="math", return_weights=True), ValueError, r"'math' cannot give weights: use"),
        (
            lambda: attend(x, x, x, backend="flash", score=lambda q, k: q @ k.mT),
            ValueError,
            r"'flash' cannot compute a score of your own: use backend='auto' or 'reference'",
        ),
    ],
)
def test_attend(wrong: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()


def layer(**options: object) -> MultiHeadAttention:
    return MultiHeadAttention(**{"dim": 8, "heads": 2, **options})


y = t(2, 3, 8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: layer(heads=3), r"dim=8 does not split into heads=3 equal parts; give d_k and d_v, or other heads"),
        (lambda: layer(heads=3, d_k=4), r"dim=8 does not split into heads=3"),
        (lambda: layer(heads=4, kv_heads=3), r"heads=4 is not a multiple of kv_heads=3"),
        (lambda: layer(heads=0), r"heads must be at least 1, got 0"),
        (lambda: layer(kv_heads=0), r"kv_heads must be at least 1, got 0"),
        (lambda: layer(dim=-8), r"dim must be at least 1, got -8"),
        (lambda: layer(d_k=0), r"d_k must be at least 1, got 0"),
        (lambda: layer(d_v=-1), r"d_v must be at least 1, got -1"),
        (lambda: layer(form="slices"), r"unknown form 'slices'; did you mean 'slice'\?"),
        (lambda: layer(form="slice", kv_heads=1), r"form 'slice' cuts one input.*no kv_heads, key_dim or value_dim"),
        (lambda: layer(form="slice", key_dim=4), r"form 'slice' cuts one input"),
        (lambda: layer(position="sinusoidal"), r"Sinusoidal acts on the embeddings; inside attention: rotary"),
        (lambda: layer(position="rotaty"), r"unknown position 'rotaty'; did you mean 'rotary'\?"),
        (lambda: layer()(t(2, 3, 7)), r"query must be \(B, length, 8\), got \(2, 3, 7\)"),
        (lambda: layer()(t(3, 8)), r"query must be \(B, length, 8\), got \(3, 8\)"),
        (lambda: layer()(y, t(2, 5, 7)), r"key must be \(B, length, 8\), got \(2, 5, 7\)"),
        (lambda: layer()(y, y, t(2, 3, 7)), r"value must be \(B, length, 8\), got \(2, 3, 7\)"),
        (lambda: layer(key_dim=5)(y), r"key must be \(B, length, 5\), got \(2, 3, 8\)"),
        (lambda: layer(key_dim=5, value_dim=6)(y, t(2, 4, 5)), r"value must be \(B, length, 6\), got \(2, 4, 5\)"),
        (lambda: layer().project_source(t(2, 5, 7)), r"key must be \(B, length, 8\), got \(2, 5, 7\)"),
        (lambda: layer(position="rotary")(y, t(2, 5, 8)), r"positions inside attention are for self-attention"),
        (lambda: layer()(y, t(3, 3, 8)), r"q, k and v must have one batch size"),
        (
            lambda: layer(position="rotary")(y, cache=layer().project_source(y)),
            r"a ProjectedSource is for cross-attention",
        ),
        (
            lambda: layer()(y, t(2, 5, 8), cache=layer().project_source(y)),
            r"a ProjectedSource holds the keys and values already",
        ),
    ],
)
def test_multi_head_attention(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


def test_arguments_of_layers_are_keywords() -> None:
    with pytest.raises(TypeError, match="positional argument"):
        MultiHeadAttention(8, 2)


def test_a_layer_checks_its_options_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="unknown backend 'spda'; did you mean 'sdpa'"):
        MultiHeadAttention(dim=8, heads=2, backend="spda")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"dropout must be at least 0 .* got 1.5"):
        MultiHeadAttention(dim=8, heads=2, dropout=1.5)


@pytest.mark.parametrize("shape", [(3, 1, 1, 5), (1, 1, 4, 5), (1, 3, 1, 5), (1, 1, 1, 4)])
def test_a_mask_never_makes_the_output_larger(shape: tuple[int, ...]) -> None:
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 5, 8)
    with pytest.raises(ValueError, match="does not broadcast to the weights"):
        attend(q, k, k, mask=torch.ones(shape, dtype=torch.bool))


def test_numbers_are_no_mask() -> None:
    """torch would add them to the scores."""
    q = torch.randn(1, 2, 3, 8)
    with pytest.raises(TypeError, match=r"mask must be bool .* bias="):
        attend(q, q, q, mask=torch.zeros(1, 1, 3, 3))
