"""The encoder-decoder Transformer: how it is put together. That it computes the right thing: tests/parity.

B batch   n source tokens   m target tokens   p model width   V vocabulary
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import Transformer, TransformerConfig, make_model
from regard.models.decoding_state import Encoded
from regard.positions import sinusoidal

TINY: dict[str, Any] = {"layers": 2, "dim": 8, "heads": 2, "hidden": 12, "dropout": 0.0}
SAME: dict[str, Any] = {"source_vocabulary": 13, "target_vocabulary": 13}


def tiny(**settings: Any) -> Transformer:
    return Transformer(TransformerConfig(**{**TINY, **SAME, **settings})).eval()


def test_seams_add_up(transformer: Any, source: Tensor, target: Tensor) -> None:
    model = transformer.model
    encoded = model.encode(source)
    assert encoded.states.shape == (3, 6, 8) and torch.equal(encoded.keep, source != 0) and encoded.final is None
    hidden = model.decode(target, encoded)
    assert hidden.shape == (3, 5, 8)
    assert torch.equal(model.project(hidden), model(source, target))


def test_the_input_is_the_scaled_row_plus_the_position(source: Tensor) -> None:
    """Sections 3.4 and 3.5: E[token] sqrt(p) + PE(pos)."""
    model = tiny()
    want = model.source.embedding.weight[source] * 8**0.5 + sinusoidal(6, 8)
    torch.testing.assert_close(model.source(source), want)
    unscaled = tiny(scale_embedding=False, position="none")
    assert torch.equal(unscaled.source(source), unscaled.source.embedding.weight[source])


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("tie", [False, True])
def test_shared_tables_share_storage(share: bool, tie: bool, source: Tensor, target: Tensor) -> None:
    model = tiny(share_embeddings=share, tie_output=tie)
    tables = [model.source.embedding.weight, model.target.embedding.weight]
    assert (tables[0] is tables[1]) == share
    assert (model.output is None) == tie
    names = [name for name, _ in model.named_parameters() if "embedding" in name or name.startswith("output")]
    assert len(names) == 3 - share - tie
    target = target.clamp(max=11)
    before = model(source, target)
    with torch.no_grad():
        tables[1][12] += 1  # token 12 is in no sentence here, so only the output can notice
    change = (model(source, target) - before).abs().sum((0, 1))  # (V,)
    assert not change[:12].any() and (change[12] > 0) == tie


def test_the_tied_output_is_the_target_table(source: Tensor, target: Tensor) -> None:
    model = tiny()
    hidden = model.decode(target, model.encode(source))
    torch.testing.assert_close(model(source, target), hidden @ model.target.embedding.weight.T)


@pytest.mark.parametrize(("decoder_layers", "want"), [(None, 2), (1, 1), (3, 3)])
def test_decoder_layers(decoder_layers: int | None, want: int) -> None:
    model = tiny(decoder_layers=decoder_layers)
    assert len(model.encoder.blocks) == 2 and len(model.decoder.blocks) == want
    assert all(block.cross_attention is None for block in model.encoder.blocks)
    assert all(block.cross_attention is not None for block in model.decoder.blocks)


def test_a_pre_norm_stack_ends_with_a_norm() -> None:
    assert tiny(order="post").encoder.norm is None
    model = tiny(order="pre")
    assert isinstance(model.encoder.norm, nn.Module) and model.encoder.norm is not model.decoder.norm


def test_positions_inside_attention_are_one_for_the_stack_but_for_shaws() -> None:
    for name, own in (("rotary", False), ("t5", False), ("alibi", False), ("relative", True)):
        schemes = {id(block.self_attention.position) for block in tiny(position=name).encoder.blocks}
        assert len(schemes) == (2 if own else 1), name
        assert all(block.cross_attention.position is None for block in tiny(position=name).decoder.blocks)
    model = tiny(position="t5")
    assert model.encoder.blocks[0].self_attention.position.bidirectional
    assert not model.decoder.blocks[0].self_attention.position.bidirectional


def test_settings_arrive(source: Tensor) -> None:
    model = tiny(dropout=0.25, attention_dropout=0.5, hidden_dropout=0.125, qk_norm=True, bias=False, kv_heads=1)
    block = model.decoder.blocks[0]
    assert model.source.dropout.p == block.dropout.p == 0.25
    assert block.self_attention.dropout == block.cross_attention.dropout == 0.5
    assert block.feed_forward.dropout == 0.125
    assert block.self_attention.q_norm is not None and block.self_attention.kv_heads == 1
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())


def test_pad_id_is_a_setting(source: Tensor, target: Tensor) -> None:
    """The same sentences, padded with another number."""
    torch.manual_seed(3)
    zero = tiny()
    torch.manual_seed(3)
    twelve = tiny(pad_id=12)
    torch.testing.assert_close(twelve(torch.where(source == 0, 12, source), target), zero(source, target))


@torch.no_grad()
def test_a_source_of_padding_alone_gives_no_nan(source: Tensor, target: Tensor) -> None:
    source[1] = 0
    for order in ("post", "pre"):
        assert tiny(order=order)(source, target).isfinite().all()


def test_empty_batches_and_targets(target: Tensor) -> None:
    model = tiny()
    assert model(torch.ones(0, 3, dtype=torch.long), target[:0]).shape == (0, 5, 13)
    assert model(torch.ones(3, 4, dtype=torch.long), target[:, :0]).shape == (3, 0, 13)


def test_learned_positions_end(target: Tensor) -> None:
    model = tiny(position="learned", max_length=4)
    with pytest.raises(ValueError, match="4"):
        model(torch.ones(3, 4, dtype=torch.long), target)
    state = model.start(model.encode(target[:, :4]), 8)
    model.decode(target[:, :4], state=state)
    with pytest.raises(ValueError, match="4"):
        model.decode(target[:, :1], state=state)


def test_the_rejected_fraction_cannot_be_decoded_step_by_step(source: Tensor, target: Tensor) -> None:
    model = tiny(position="fraction")
    assert model(source, target).isfinite().all()
    state = model.start(model.encode(source), 8)
    model.decode(target[:, :2], state=state)
    with pytest.raises(ValueError, match="fraction needs the whole sentence"):
        model.decode(target[:, 2:], state=state)


def test_the_source_is_projected_once(source: Tensor, target: Tensor) -> None:
    """A step with a state needs no encoded source any more, and the memory is (B, H, n, d_k) a block."""
    model = tiny()
    state = model.start(model.encode(source), 8)
    assert [tuple(memory.k.shape) for memory in state.memory] == [(3, 2, 6, 4)] * 2
    calls: list[int] = []
    for block in model.decoder.blocks:
        block.cross_attention.input.register_forward_hook(lambda *_: calls.append(1))
    model.decode(target[:, :1], state=state)
    assert calls == []


def test_anything_can_be_the_encoded_source(target: Tensor) -> None:
    """decode asks only for vectors and for which of them are real."""
    states, keep = torch.randn(3, 4, 8), torch.tensor([[True] * 4, [True] * 2 + [False] * 2, [True] * 3 + [False]])
    model: Any = make_model(TransformerConfig(**TINY, **SAME)).eval()
    y = model.decode(target, Encoded(states, keep))
    alone = model.decode(target[1:2], Encoded(states[1:2, :2], keep[1:2, :2]))
    torch.testing.assert_close(y[1:2], alone)


@pytest.mark.parametrize("settings", [{}, {"order": "pre", "norm": "rms", "activation": "swiglu", "bias": False}])
def test_residuals_in_half_precision(settings: dict[str, Any], source: Tensor, target: Tensor) -> None:
    """Under autocast all blocks hand on bfloat16, half the bytes; the result stays within 5% of the scores' spread."""
    model = tiny(dim=64, layers=4, **settings)
    seen: list[torch.dtype] = []
    for block in [*model.encoder.blocks, *model.decoder.blocks]:
        block.register_forward_hook(lambda _, inputs, output: seen.extend((inputs[0].dtype, output.dtype)))
    wanted = model(source, target)
    assert set(seen) == {torch.float32}
    seen.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(source, target)
    assert len(seen) == 16 and set(seen) == {torch.bfloat16}
    assert 0 < (found.float() - wanted).abs().max() < 0.05 * wanted.std()
