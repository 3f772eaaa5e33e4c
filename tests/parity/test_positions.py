"""The position schemes against transformers' Llama, GPT-J, GPT-NeoX, T5, BLOOM and Marian."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close
from transformers import GPTNeoXConfig, LlamaConfig, T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from regard.positions import (
    Alibi,
    Interpolation,
    LlamaScaling,
    Rotary,
    Sinusoidal,
    T5Buckets,
    sinusoidal,
    slopes,
)

B, H, T, D = 2, 3, 17, 64
NEAR = torch.arange(T)
ROWS = torch.stack((torch.arange(T) + 5, torch.arange(T) + 3000))  # rows that stand at different places


def llama_pair(rope: dict[str, object], positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries, and the same turned by transformers."""
    config = LlamaConfig(hidden_size=H * D, num_attention_heads=H, max_position_embeddings=131072, rope_parameters=rope)
    q = torch.randn(B, H, T, D)
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, positions.expand(B, T))
    turned, _ = llama.apply_rotary_pos_emb(q, q, cos, sin)
    return q, turned


@pytest.mark.parametrize("positions", [NEAR, ROWS], ids=["near", "rows"])
@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_rotary_is_llamas(base: float, positions: torch.Tensor) -> None:
    q, turned = llama_pair({"rope_type": "default", "rope_theta": base}, positions)
    assert_close(Rotary(head_dim=D, base=base).rotate(q, positions), turned, atol=1e-5, rtol=0)


def test_rotary_scaling_is_llama_31s() -> None:
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    q, turned = llama_pair(rope, NEAR)
    rotary = Rotary(head_dim=D, base=500000.0, scaling=LlamaScaling())
    assert_close(rotary.rotate(q, NEAR), turned, atol=1e-5, rtol=0)
    reference = llama.ROPE_INIT_FUNCTIONS["llama3"](
        LlamaConfig(hidden_size=H * D, num_attention_heads=H, rope_parameters=rope)
    )
    assert_close(rotary.frequencies(), reference[0], rtol=1e-6, atol=0)


def test_rotary_interpolation_is_transformers_linear() -> None:
    q, turned = llama_pair({"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, ROWS)
    rotary = Rotary(head_dim=D, scaling=Interpolation(4.0))
    assert_close(rotary.rotate(q, ROWS), turned, atol=1e-5, rtol=0)


def test_interleaved_rotary_is_gptjs() -> None:
    q = torch.randn(B, H, T, D)
    sin, cos = gptj.create_sinusoidal_positions(T, D).chunk(2, -1)
    turned = gptj.apply_rotary_pos_emb(q.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    assert_close(Rotary(head_dim=D, layout="interleaved").rotate(q, NEAR), turned, atol=1e-5, rtol=0)


def test_partial_rotary_is_gpt_neoxs() -> None:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    config = GPTNeoXConfig(hidden_size=H * D, num_attention_heads=H, rope_parameters=rope)
    q = torch.randn(B, H, T, D)
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, NEAR[None])
    turned, _ = neox.apply_rotary_pos_emb(q, q, cos, sin)
    assert_close(Rotary(head_dim=D, fraction=0.25).rotate(q, NEAR), turned, atol=1e-5, rtol=0)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (64, 256), (32, 1000), (16, 9), (4, 20)])
def test_t5_buckets_are_t5s(buckets: int, max_distance: int, bidirectional: bool) -> None:
    apart = torch.arange(-5000, 5001)
    scheme = T5Buckets(heads=1, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
    reference = T5Attention._relative_position_bucket(
        apart, bidirectional=bidirectional, num_buckets=buckets, max_distance=max_distance
    )
    assert torch.equal(scheme.bucket(apart), reference)


@pytest.mark.parametrize("decoder", [False, True])
def test_t5_bias_is_t5s(decoder: bool) -> None:
    attention = T5Attention(T5Config(num_heads=H, is_decoder=decoder), has_relative_attention_bias=True, layer_idx=0)
    scheme = T5Buckets(heads=H, bidirectional=not decoder)
    scheme.load_state_dict({"table": attention.relative_attention_bias.weight})
    i = j = torch.arange(300)
    bias = scheme.bias(torch.randn(1, H, 300, 8), i, j)
    assert_close(bias[None], attention.compute_bias(300, 300), atol=0, rtol=0)


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12, 16, 20])
def test_alibi_is_blooms(heads: int) -> None:
    # BLOOM adds slope * j, which under a causal softmax is the same as -slope * (i - j).
    theirs = build_alibi_tensor(torch.ones(1, T), heads, torch.float32)  # (H, 1, T)
    assert_close(slopes(heads), theirs[:, 0, 1], rtol=1e-6, atol=0)
    scores = torch.randn(1, heads, T, T).masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), -torch.inf)
    ours = scores + Alibi(heads=heads).bias(torch.empty(1, heads, T, 8), NEAR, NEAR)
    assert_close(ours.softmax(-1), (scores + theirs).softmax(-1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dim", [8, 512, 33])
def test_halves_are_marians(dim: int) -> None:
    table = MarianSinusoidalPositionalEmbedding(600, dim).create_weight()
    assert_close(sinusoidal(600, dim, layout="halves"), table, atol=1e-6, rtol=0)
    x = torch.zeros(1, 600, dim)
    assert_close(Sinusoidal(dim=dim, layout="halves").embed(x, torch.arange(600))[0], table, atol=1e-6, rtol=0)
