"""The map "rows": every row of W looks at the text exactly, and queries mix what the rows found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard import RandomFeatureAttention, RandomFeatures, attend_features, make_model, masks
from regard.attention.linear.dispatch import query_state, sum_keys
from regard.attention.linear.state import FeatureState
from regard.errors import UsageError


def features_for(**given: Any) -> RandomFeatures:
    return RandomFeatures(dim=8, heads=2, features=12, map="rows", **given)


def inputs(m: int = 7, n: int = 11, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """q (2, 4, m, 8), k and v for half as many heads."""
    torch.manual_seed(m)
    q, k, v = (torch.randn(2, heads, length, 8, dtype=dtype) for heads, length in ((4, m), (2, n), (2, n)))
    return q, k, v


def test_each_row_of_w_is_a_query_of_exact_attention() -> None:
    """sum_f p_f S_f / z_f with S_f / z_f = attend(w_f, k, v) and p = softmax(W q / sqrt(d)); Shen et al. 2021."""
    features = features_for().double()
    q, k, v = inputs()
    for b in range(2):
        for head in range(4):
            W, keys, values = features.W[head // 2], k[b, head // 2], v[b, head // 2]
            found = regard.attend(W, keys, values)  # exact attention of F queries
            want = (q[b, head] @ W.T / 8**0.5).softmax(-1) @ found
            y = attend_features(q, k, v, features=features)[b, head]
            torch.testing.assert_close(y, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_sums_equal_the_oracle(normalize: bool, padded: bool) -> None:
    """Every pair in float64 against the sums in float32, and the weights that make the output; padding has none."""
    features = features_for(normalize=normalize, learned_scale=True)
    q, k, v = inputs(dtype=torch.float32)
    mask = masks.padding([11, 5]) if padded else None
    y, weights = attend_features(q, k, v, features=features, mask=mask, return_weights=True)
    torch.testing.assert_close(attend_features(q, k, v, features=features, mask=mask), y, rtol=1e-5, atol=1e-5)
    assert weights.min() >= 0
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 7))
    torch.testing.assert_close(weights @ v.repeat_interleave(2, 1), y, rtol=1e-5, atol=1e-5)
    if padded:
        assert weights[1, :, :, 5:].abs().max() == 0
        other = k.clone()
        other[1, :, 5:] += 100.0
        torch.testing.assert_close(attend_features(q, other, v, features=features, mask=mask), y, rtol=1e-5, atol=1e-5)


def test_a_text_in_parts_and_in_a_file(tmp_path: Path) -> None:
    """S and z are the same sums as ever: merged, saved and asked they give what the whole text gives."""
    features = features_for()
    q, k, v = inputs(dtype=torch.float32)
    first, second = (sum_keys(k[:, :, part], v[:, :, part], features=features) for part in (slice(4), slice(4, None)))
    first.merge(second).save(tmp_path / "text.safetensors")
    y = query_state(q, FeatureState.load(tmp_path / "text.safetensors"), features=features)
    torch.testing.assert_close(y, attend_features(q, k, v, features=features), rtol=1e-5, atol=1e-5)


def test_gradients() -> None:
    features = features_for(learned_scale=True).double()
    leaves = [x.requires_grad_() for x in inputs(3, 4)]
    assert features.sigma is not None
    assert torch.autograd.gradcheck(
        lambda q, k, v, _: attend_features(q, k, v, features=features), (*leaves, features.sigma)
    )


def test_nothing_to_look_at_is_zero() -> None:
    q, k, v = inputs(dtype=torch.float32)
    mask = masks.padding([11, 0])
    y = attend_features(q, k, v, features=features_for(), mask=mask)
    assert y[1].abs().max() == 0 and y.isfinite().all()


def test_it_points_where_the_estimate_is_noise() -> None:
    """Twelve keys of which one equals the query, at scores of 16 and 0: who gives that one most of the weight?"""
    k = torch.eye(16)[:12]
    v = torch.eye(12)
    right = {}
    for name in ("positive", "rows"):
        found = []
        for seed in range(20):
            features = RandomFeatures(dim=16, features=128, map=name, normalize=False, scale=16.0, seed=seed)
            y = attend_features(k, k, v, features=features)
            found.append((y.argmax(-1) == torch.arange(12)).float().mean().item())
        right[name] = sum(found) / len(found)
    assert right["rows"] > 0.95 > right["positive"] + 0.1, right


def test_what_cannot_be_had_says_so() -> None:
    q, k, v = inputs(5, 5, torch.float32)
    with pytest.raises(ValueError, match="not causal"):
        attend_features(q, k, v, features=features_for(), causal=True)
    with pytest.raises(ValueError, match="not causal"):
        attend_features(q, k, v, features=features_for(), mask=masks.causal())
    with pytest.raises(ValueError, match="a cache is for causal"):
        RandomFeatureAttention(dim=16, heads=2, map="rows").new_cache(1)
    with pytest.raises(ValueError, match="triton"):
        attend_features(q, k, v, features=features_for(), backend="triton")


def config_of(kind: str, **given: Any) -> Any:
    sizes = {"layers": 1, "dim": 16, "heads": 2, "hidden": 16, "attention": "random-features"}
    if kind == "lm":
        return regard.TransformerLMConfig(vocabulary=20, **sizes, **given)
    return regard.TransformerConfig(source_vocabulary=20, target_vocabulary=20, **sizes, **given)


def test_a_model_has_it_in_cross_attention() -> None:
    model = make_model(config_of("translator", feature_cross_map="rows"))
    assert model.decoder.blocks[0].cross_attention.features.per_feature
    assert not model.encoder.blocks[0].self_attention.features.per_feature
    assert not model.decoder.blocks[0].self_attention.features.per_feature
    with pytest.raises(UsageError, match="none of it is random"):
        config_of("lm", feature_cross_map="rows")
    with pytest.raises(UsageError, match="none of it is random"):
        config_of("translator", feature_cross_map="rows", exact_heads="decoder.*.cross")
    with pytest.raises(UsageError, match=r"random_features\.map .rows."):
        config_of("translator", feature_map="rows")


def test_a_translator_decodes_as_it_reads() -> None:
    """The sum of the source, asked step by step, against the whole target at once."""
    torch.manual_seed(0)
    model = make_model(config_of("translator", feature_cross_map="rows", feature_gate=True)).eval()
    source, target = torch.randint(4, 20, (2, 9)), torch.randint(4, 20, (2, 6))
    source[1, 5:] = model.config.pad_id
    with torch.no_grad():
        encoded = model.encode(source)
        whole = model.decode(target, encoded)
        state = model.start(encoded, 6)
        steps = torch.cat([model.decode(target[:, t : t + 1], state=state) for t in range(6)], dim=1)
    torch.testing.assert_close(steps, whole, rtol=1e-4, atol=1e-5)
