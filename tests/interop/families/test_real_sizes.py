"""Models of the sizes that people use, with random weights of the real classes: the same outputs and greedy texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_encoders import make_encoder
from small_models import Original, make_original
from small_translators import make_marian

import regard
from regard.decoding.engine import generate_tokens
from regard.interop import import_model

pytestmark = pytest.mark.slow
OPUS_MT = {
    "d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048,
    "encoder_attention_heads": 8, "decoder_attention_heads": 8, "max_position_embeddings": 512,
}  # fmt: skip
GPT2 = {"n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024}
MINILM = {
    "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
    "vocab_size": 30522, "max_position_embeddings": 512,
}  # fmt: skip


def like_trained(original: Original) -> Any:
    """Give a model weights as large as those of trained ones, and save it again."""
    torch.manual_seed(1)
    model = original.model
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" in name:  # sinusoids
                continue
            is_scale = ("norm" in name.lower() or ".ln_" in name) and name.endswith("weight")
            weight.copy_(torch.randn_like(weight) * (0.04 if weight.dim() > 1 else 0.1) + is_scale)
        if hasattr(model, "final_logits_bias"):
            model.get_input_embeddings().weight[-1] = 0.0
    model.save_pretrained(original.folder)
    return model


def test_opus_mt(tmp_path: Path) -> None:
    """6 + 6 layers of width 512, and 58,101 tokens."""
    theirs = like_trained(make_marian(tmp_path / "original", size=58_101, **OPUS_MT))
    ours: Any = regard.load_model(import_model(tmp_path / "original", tmp_path / "ours"))
    assert ours.config.target_vocabulary == 58_101
    draws = torch.Generator().manual_seed(0)
    source, target = (torch.randint(2, 58_000, (2, n), generator=draws) for n in (20, 9))
    target[:, 0] = ours.config.start_id
    with torch.no_grad():
        expected = theirs(input_ids=source, decoder_input_ids=target).logits
        torch.testing.assert_close(ours(source, target), expected, atol=1e-5 * expected.abs().max().item(), rtol=0)
    rows = [row.tolist() for row in source]
    found = generate_tokens(ours, rows, search=regard.Greedy(), max_tokens=12)
    written = theirs.generate(source, num_beams=1, max_length=None, max_new_tokens=12)[:, 1:]
    for (best,), expected_row in zip(found, written.tolist(), strict=True):
        assert best.tokens == expected_row[: len(best.tokens)]


def test_gpt2(tmp_path: Path) -> None:
    """The smallest GPT-2: 124 million parameters."""
    theirs = like_trained(make_original("gpt2", tmp_path / "original", vocabulary_margin=50_257 - 270, **GPT2))
    folder = import_model(tmp_path / "original", tmp_path / "ours")
    ours: Any = regard.load_model(folder)
    assert sum(weight.numel() for weight in ours.parameters()) == 124_439_808
    tokens = torch.randint(0, 50_257, (2, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs(tokens).logits
        torch.testing.assert_close(ours(tokens), expected, atol=1e-5 * expected.abs().max().item(), rtol=0)
    prompt = tokens[0, :10].tolist()
    unused = [[token] for token in range(270, 50_257)]  # which the small tokenizer does not have
    ((best,),) = generate_tokens(ours, None, search=regard.Greedy(), prefixes=[prompt], max_tokens=12)
    written = theirs.generate(torch.tensor([prompt]), max_new_tokens=12, bad_words_ids=unused, pad_token_id=0)[0, 10:]
    assert best.tokens == written.tolist()[: len(best.tokens)]


def test_minilm(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2: 6 layers of width 384, and 30,522 tokens."""
    theirs = like_trained(Original(make_encoder("bert", tmp_path / "original", **MINILM), tmp_path / "original"))
    ours: Any = regard.load_model(import_model(tmp_path / "original", tmp_path / "ours"))
    tokens = torch.randint(4, 30_522, (4, 128), generator=torch.Generator().manual_seed(0))
    tokens[1, 60:] = ours.config.pad_id
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=(tokens != ours.config.pad_id).long()).last_hidden_state
        states = ours.encode(tokens).states
    torch.testing.assert_close(states[0], expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states[1, :60], expected[1, :60], atol=1e-5, rtol=0)
