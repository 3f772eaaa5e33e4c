"""What train.py times: one Transformer, trained by regard's loop and by a plain loop round nn.Transformer.

B batch   n source tokens   m target tokens   p model width   V vocabulary
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels import fuse
from regard.models.config import TransformerConfig
from regard.models.presets import make_model
from regard.tasks.objective import objective
from regard.tasks.precision import autocast
from regard.text.batches.batch import Batch, Sampler, TokenRows
from regard.text.tokenizers.special_tokens import END, PAD, START
from regard.training.loop.train_step import TrainStep
from regard.training.recipe.schema import TrainingRecipe
from regard.training.state.train_state import TrainState

PAIRS, LONGEST = 20_000, 120  # of the synthetic text; tokens a sentence
SPECIAL = 4  # the first rows of every vocabulary
# Dropout on embeddings and sublayers' outputs, as in the paper; or also on attention's weights and inside the
# feed-forward nets, as nn.Transformer has it.
PLACES = ("sublayers", "everywhere")

# What the plain loop has in common with the recipe.
RECIPE = TrainingRecipe(
    steps=sys.maxsize,
    lr=1e-4,
    warmup=0,
    schedule="constant",
    label_smoothing=0.1,
    betas=(0.9, 0.98),
    eps=1e-9,
    clip=1.0,
)


@dataclass(frozen=True)
class Setting:
    """A model and its batches."""

    name: str
    layers: int  # of the encoder, and of the decoder
    dim: int
    heads: int
    hidden: int
    vocabulary: int  # one for both sides, and one table
    batch_tokens: int
    length: int  # the median sentence
    batches: int  # that each contender trains on in one round
    dropout: float = 0.1
    place: str = "sublayers"  # where dropout falls, see PLACES


def translator(setting: Setting) -> TransformerConfig:
    """The Transformer of a setting."""
    inside = setting.dropout if setting.place == "everywhere" else 0.0
    return TransformerConfig(
        layers=setting.layers,
        dim=setting.dim,
        heads=setting.heads,
        hidden=setting.hidden,
        dropout=setting.dropout,
        attention_dropout=inside,
        hidden_dropout=inside,
        source_vocabulary=setting.vocabulary,
        target_vocabulary=setting.vocabulary,
        share_embeddings=True,
    )


class Ours:
    """regard's trainer, as `regard train` runs it."""

    def __init__(self, setting: Setting, device: str, precision: str) -> None:
        self.device = torch.device(device)
        self.model = make_model(translator(setting)).to(self.device)
        if self.device.type == "cuda":
            fuse(self.model)
        recipe = replace(RECIPE, precision=precision)
        loss_function = objective(self.model, smoothing=RECIPE.label_smoothing or 0.0)
        self.train_step = TrainStep(TrainState(self.model, recipe, device=self.device), loss_function, recipe)

    def loss(self, batch: Batch) -> Tensor:
        """The mean over the batch's target tokens, as it is trained on."""
        return self.train_step.loss(batch).total / batch.tokens

    def step(self, batch: Batch) -> None:
        self.train_step([batch])


class Plain:
    """torch.nn.Transformer in the loop that its user would write."""

    def __init__(self, setting: Setting, device: str, precision: str) -> None:
        self.device, self.precision = torch.device(device), precision
        self.model = PlainModel(setting).to(self.device).train()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=RECIPE.lr, betas=RECIPE.betas, eps=RECIPE.eps, weight_decay=0.0
        )

    def loss(self, batch: Batch) -> Tensor:
        with autocast(self.device, self.precision):
            logits = self.model(batch.source, batch.inputs)  # (B, m, V)
            return F.cross_entropy(
                logits.flatten(0, 1),
                batch.labels.flatten(),
                ignore_index=PAD,
                label_smoothing=RECIPE.label_smoothing,
            )

    def step(self, batch: Batch) -> None:
        self.loss(batch).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), RECIPE.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class PlainModel(nn.Module):
    """Embeddings, positions and the tied output round torch.nn.Transformer."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        p = setting.dim
        self.embedding = nn.Embedding(setting.vocabulary, p)
        self.dropout = nn.Dropout(setting.dropout)
        self.transformer = nn.Transformer(
            p, setting.heads, setting.layers, setting.layers, setting.hidden, setting.dropout, batch_first=True
        )
        # The paper's post-norm blocks have no norm on top of a stack; torch adds one, which we do not, and need not.
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        if setting.place == "sublayers":
            leave_out_inner_dropout(self.transformer)
        position = torch.arange(LONGEST + 1)[:, None]
        angle = position * torch.exp(torch.arange(0, p, 2) * (-math.log(10000.0) / p))
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # (LONGEST + 1, p)
        self.register_buffer("positions", table)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, n), target (B, m) -> logits (B, m, V)."""
        padding = source == PAD
        later = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=later,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.linear(hidden, self.embedding.weight)

    def embed(self, tokens: Tensor) -> Tensor:
        vectors = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(vectors + self.positions[: tokens.shape[1]])


def leave_out_inner_dropout(transformer: nn.Transformer) -> None:
    """Dropout on the sublayers' outputs only, not on attention's weights nor inside the feed-forward nets."""
    for module in transformer.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            module.dropout = nn.Identity()


CONTENDERS: dict[str, type[Ours] | type[Plain]] = {"regard": Ours, "torch": Plain}

# Our names of the parts -> torch's. A norm's number depends on the sublayers before it.
PARTS = {
    "blocks.": "layers.",
    "self_attention.": "self_attn.",
    "cross_attention.": "multihead_attn.",
    "input.weight": "in_proj_weight",
    "input.bias": "in_proj_bias",
    "output.": "out_proj.",
    "feed_forward.up": "linear1",
    "feed_forward.down": "linear2",
    "self_norm": "norm1",
    "cross_norm": "norm2",
}


def copy_weights(ours: nn.Module, plain: PlainModel) -> None:
    """Give the plain model the weights of ours."""
    state = {"embedding.weight": ours.state_dict()["source.embedding.weight"], "positions": plain.positions}
    for stack, last_norm in (("encoder", "norm2"), ("decoder", "norm3")):
        for name, value in ours.get_submodule(stack).state_dict().items():
            for part, theirs in {**PARTS, "feed_norm": last_norm}.items():
                name = name.replace(part, theirs)
            state[f"transformer.{stack}.{name}"] = value
    plain.load_state_dict(state)


def make_batches(setting: Setting, device: str) -> list[Batch]:
    """The first batches of an epoch over synthetic pairs, batched as the trainer does it.

    Sentence lengths are log-normal, as those of real text nearly are, and a target is about as long as its source;
    tokens follow Zipf's law.
    """
    draw = np.random.default_rng(0)
    source_lengths = setting.length * draw.lognormal(sigma=0.5, size=PAIRS)
    target_lengths = source_lengths * draw.lognormal(sigma=0.15, size=PAIRS)
    lengths = np.stack([source_lengths, target_lengths]).round().astype(int).clip(2, LONGEST)  # (2, PAIRS)
    frequencies = 1 / np.arange(1, setting.vocabulary - SPECIAL + 1)
    tokens = SPECIAL + draw.choice(len(frequencies), size=lengths.sum(), p=frequencies / frequencies.sum())
    sentences = np.split(tokens, lengths.flatten().cumsum()[:-1])
    source, target = TokenRows.of(sentences[:PAIRS]), TokenRows.of(sentences[PAIRS:])
    sides = np.stack([source.lengths, target.lengths + 1], axis=1)
    batches = []
    for ids in Sampler(sides, batch_tokens=setting.batch_tokens, seed=0).batches(0)[: setting.batches]:
        inputs, labels = target.padded(ids, before=[START]), target.padded(ids, after=[END])
        batch = Batch(ids, source.padded(ids), inputs, labels, int(sides[ids, 1].sum()))
        batches.append(batch.to(device))
    return batches
