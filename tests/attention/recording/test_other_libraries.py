"""regard.record on layers that are not ours: torch's MultiheadAttention, and those of transformers models."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
)

from regard import record
from regard.errors import UsageError
from regard.look import trace_maps
from regard.look.trace.trace import Axis, Token

SMALL: dict[str, Any] = {"vocab_size": 50, "attn_implementation": "eager", "bos_token_id": 1, "eos_token_id": 1}
SEQ2SEQ: dict[str, Any] = {
    **SMALL, "d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "pad_token_id": 0,
    "decoder_start_token_id": 0, "forced_eos_token_id": None,
}  # fmt: skip


@given(
    heads=st.sampled_from([1, 2, 3, 4]),
    first=st.booleans(),
    batch=st.sampled_from([None, 1, 3]),
    lengths=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    need=st.booleans(),
    average=st.booleans(),
    training=st.booleans(),
)
def test_torch_layers_give_their_weights_and_nothing_changes(
    heads: int, first: bool, batch: int | None, lengths: tuple[int, int], need: bool, average: bool, training: bool
) -> None:
    layer = nn.MultiheadAttention(12, heads, batch_first=first).train(training)
    m, n = lengths
    shapes = [(m, 12), (n, 12)] if batch is None else [(batch, m, 12), (batch, n, 12)]
    query, key = (torch.randn(shape) for shape in shapes)
    if batch is not None and not first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    plain = layer(query, key, key, need_weights=need, average_attn_weights=average)
    _, each = layer(query, key, key, average_attn_weights=False)
    with record(layer) as seen:
        by_name = layer(query, key, key, need_weights=need, average_attn_weights=average)
        by_place = layer(query, key, key, None, need, None, average)
    for found in (by_name, by_place):
        torch.testing.assert_close(found[0], plain[0])
        assert (found[1] is None) == (plain[1] is None)
        if plain[1] is not None:
            torch.testing.assert_close(found[1], plain[1])
    first_call, second_call = seen.steps("attention")
    assert first_call.shape == (batch or 1, heads, m, n)
    for call in (first_call, second_call):
        torch.testing.assert_close(call.detach(), (each if batch else each[None]).detach())
    assert not layer._forward_hooks and not layer._forward_pre_hooks


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_a_whole_torch_transformer(norm_first: bool, grad: bool) -> None:
    model = nn.Transformer(16, 4, 2, 3, 20, batch_first=True, norm_first=norm_first).eval()
    source, target = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    options: dict[str, Any] = {
        "src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": causal, "tgt_is_causal": True
    }  # fmt: skip
    with torch.set_grad_enabled(grad):
        plain = model(source, target, **options)
        with record(model) as seen:
            recorded = model(source, target, **options)
    torch.testing.assert_close(recorded, plain)
    assert torch.backends.mha.get_fastpath_enabled()
    self_names = [f"encoder.{i}.self" for i in range(2)]
    assert sorted(seen) == sorted([*self_names, *(f"decoder.{i}.{w}" for i in range(3) for w in ("self", "cross"))])
    for name, weights in seen.items():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert not weights.requires_grad
        if not name.endswith("cross") and name.startswith("decoder"):
            assert not weights.triu(1).any()
        else:
            assert not weights[1, :, :, 3:].any() and weights[0, :, :, 3:].all()
    tokens = [Token(text, pad=text == "<pad>") for text in ("a", "b", "c", "<pad>", "<pad>")]
    trace = trace_maps(seen, source=Axis(tuple(tokens)), target=list("wxyz"), row=1)
    assert {kind: one.weights.shape for kind, one in trace.maps.items()} == {
        "enc_self": (2, 4, 5, 5), "dec_self": (3, 4, 4, 4), "cross": (3, 4, 4, 5)
    }  # fmt: skip
    np.testing.assert_array_equal(trace.maps["cross"].mask[0], [True, True, True, False, False])


def test_parts_of_torch_transformers_have_names_that_say_what_they_are() -> None:
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 8, batch_first=True), 1)
    with record(decoder) as seen:
        decoder(torch.randn(1, 2, 8), torch.randn(1, 3, 8))
    assert list(seen) == ["decoder.0.self", "decoder.0.cross"]

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.look, self.again = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x, _ = self.look(x, x, x, need_weights=False)
            return self.again(x, x, x)[0]

    with record(Twice()) as seen:
        seen_model_output = Twice()(torch.randn(1, 2, 8))
        assert seen_model_output.shape == (1, 2, 8) and not len(seen)  # another model of the same kind is not watched
    model = Twice()
    with record(model) as seen:
        model(torch.randn(1, 2, 8))
    assert list(seen) == ["look", "again"]


def test_bert() -> None:
    config = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=20, **SMALL)
    model, tokens = BertModel(config).eval(), torch.randint(5, 50, (2, 6))
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    wanted = model(tokens, attention_mask=mask, output_attentions=True)
    with record(model) as seen:
        found = model(tokens, attention_mask=mask)
    torch.testing.assert_close(found.last_hidden_state, wanted.last_hidden_state)
    same(seen, {f"encoder.{i}.self": weights for i, weights in enumerate(wanted.attentions)})
    padded = Axis((*map(Token, "abcd"), *[Token("<pad>", pad=True)] * 2))
    assert trace_maps(seen, source=padded, row=1).maps["enc_self"].weights.shape == (2, 4, 6, 6)


def test_gpt2_and_its_generation() -> None:
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=4, **SMALL)).eval()
    tokens = torch.randint(5, 50, (1, 4))
    wanted = model(tokens, output_attentions=True)
    with record(model) as seen:
        found = model(tokens)
    torch.testing.assert_close(found.logits, wanted.logits)
    same(seen, {f"decoder.{i}.self": weights for i, weights in enumerate(wanted.attentions)})
    assert trace_maps(seen, target=list("abcd")).maps["dec_self"].mask is not None

    with record(model) as seen:
        text = model.generate(tokens, max_new_tokens=3, do_sample=False, eos_token_id=None, pad_token_id=0)
    # Generated one by one, the rows are those of one pass over the text.
    whole = model(text[:, :-1], output_attentions=True)
    same(seen, {f"decoder.{i}.self": weights for i, weights in enumerate(whole.attentions)})


def test_marian() -> None:
    model = MarianMTModel(MarianConfig(**SEQ2SEQ)).eval()
    source, target = torch.randint(5, 50, (2, 6)), torch.randint(5, 50, (2, 4))
    wanted = model(source, decoder_input_ids=target, output_attentions=True)
    with record(model) as seen:
        found = model(source, decoder_input_ids=target)
    torch.testing.assert_close(found.logits, wanted.logits)
    expected = {f"encoder.{i}.self": weights for i, weights in enumerate(wanted.encoder_attentions)}
    expected |= {f"decoder.{i}.self": weights for i, weights in enumerate(wanted.decoder_attentions)}
    expected |= {f"decoder.{i}.cross": weights for i, weights in enumerate(wanted.cross_attentions)}
    same(seen, expected)
    trace = trace_maps(seen, source=list("abcdef"), target=list("wxyz"), name="marian")
    assert trace.model.layers == {"encoder": 2, "decoder": 3} and trace.model.heads == 4


def test_t5_whose_layers_give_a_bias_as_well() -> None:
    config = T5Config(d_model=16, d_kv=4, d_ff=20, num_layers=2, num_heads=4, decoder_start_token_id=0, **SMALL)
    model, tokens = T5ForConditionalGeneration(config).eval(), torch.randint(5, 50, (1, 5))
    wanted = model(tokens, decoder_input_ids=tokens[:, :3], output_attentions=True)
    with record(model) as seen:
        model(tokens, decoder_input_ids=tokens[:, :3])
    same({name: seen[name] for name in seen if name.endswith("cross")},
         {f"decoder.{i}.cross": weights for i, weights in enumerate(wanted.cross_attentions)})  # fmt: skip
    same({name: seen[name] for name in seen if name.startswith("encoder")},
         {f"encoder.{i}.self": weights for i, weights in enumerate(wanted.encoder_attentions)})  # fmt: skip


def same(found: Any, wanted: dict[str, Tensor]) -> None:
    assert sorted(found) == sorted(wanted)
    for name, weights in wanted.items():
        torch.testing.assert_close(found[name], weights.detach())
    for one, other in itertools.combinations(wanted, 2):  # so that a mix-up would have been seen
        assert wanted[one].shape != wanted[other].shape or not torch.equal(wanted[one], wanted[other])


def test_attention_without_weights_says_what_to_do() -> None:
    small = {name: value for name, value in SMALL.items() if name != "attn_implementation"}
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=4, **small)
    with pytest.raises(UsageError, match='load it with attn_implementation="eager"'), record(BertModel(config)):
        pass
