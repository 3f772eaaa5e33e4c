"""Our Vision Transformer and that of `transformers` compute the same with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import regard
from regard.layers.normalization import LayerNorm

CONFIG = regard.ImageClassifierConfig(
    vocabulary=9,
    height=12,
    width=12,
    channels=3,
    patch=4,
    layers=2,
    dim=16,
    heads=4,
    hidden=32,
    max_length=10,
    dropout=0.0,
)


@pytest.fixture(scope="module")
def models() -> tuple[regard.VisionTransformer, nn.Module]:
    """The two models, with the weights of the second one in both."""
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(3)
    theirs = ViTForImageClassification(
        ViTConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, image_size=12,
            patch_size=4, num_channels=3, num_labels=5, hidden_dropout_prob=0.0, layer_norm_eps=LayerNorm(1).eps,
        )
    ).eval()  # fmt: skip
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.3)
    ours = regard.VisionTransformer(CONFIG).eval()
    with torch.no_grad():
        embeddings = theirs.vit.embeddings
        ours.patches.weight.copy_(embeddings.patch_embeddings.projection.weight.flatten(1))
        ours.patches.bias.copy_(embeddings.patch_embeddings.projection.bias)
        ours.class_token.copy_(embeddings.cls_token[0, 0])
        ours.position.table.copy_(embeddings.position_embeddings[0])
        ours.encoder.norm.load_state_dict(theirs.vit.layernorm.state_dict())
        ours.output.load_state_dict(theirs.classifier.state_dict())
        for block, layer in zip(ours.encoder.blocks, theirs.vit.layers, strict=True):
            copy_block(block, layer)
    return ours, theirs


NAMES = {  # of modules of our block -> of theirs
    "self_attention.output": "attention.o_proj",
    "self_norm": "layernorm_before",
    "feed_forward.up": "mlp.fc1",
    "feed_forward.down": "mlp.fc2",
    "feed_norm": "layernorm_after",
}


def copy_block(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy the weights of one of their layers into a block of ours."""
    for name, other in NAMES.items():
        ours.get_submodule(name).load_state_dict(theirs.get_submodule(other).state_dict())
    parts = [theirs.get_submodule(f"attention.{name}_proj") for name in "qkv"]
    joined = ours.get_submodule("self_attention.input")
    joined.load_state_dict(
        {kind: torch.cat([part.state_dict()[kind] for part in parts]) for kind in ("weight", "bias")}
    )


def test_logits(models: tuple[regard.VisionTransformer, nn.Module]) -> None:
    ours, theirs = models
    images = torch.rand(4, 3, 12, 12)
    torch.testing.assert_close(ours(images), theirs(2 * images - 1).logits, rtol=1e-4, atol=1e-4)


def test_attention(models: tuple[regard.VisionTransformer, nn.Module]) -> None:
    ours, theirs = models
    theirs.set_attn_implementation("eager")
    images = torch.rand(2, 3, 12, 12)
    with regard.record(ours) as maps:
        ours(images)
    expected = theirs(2 * images - 1, output_attentions=True).attentions
    for layer, weights in enumerate(expected):
        torch.testing.assert_close(maps[f"encoder.{layer}.self"], weights, rtol=1e-4, atol=1e-5)
