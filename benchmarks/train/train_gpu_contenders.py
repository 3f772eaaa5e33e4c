"""What train_gpu.py times: regard's trainer, and the loops that a good engineer writes in plain PyTorch.

B batch   n source tokens   m target tokens   T tokens of a window   p model width   H heads   V vocabulary
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.train.train_contenders import RECIPE, PlainModel, Setting, copy_weights, translator
from benchmarks.train.train_gpu_batches import InMemory, chain_batches, full_batches, sentences
from regard.kernels import fuse
from regard.models.config import Config
from regard.models.presets import make_model, preset
from regard.tasks.corpora import Corpora
from regard.tasks.objective import objective
from regard.tasks.precision import autocast
from regard.text.batches.batch import Batch
from regard.text.batches.pairs import PairData
from regard.text.batches.prefetch import Prefetcher
from regard.text.files.corpus import make_corpus
from regard.text.tokenizers.special_tokens import PAD
from regard.training.loop.train_step import TrainStep
from regard.training.recipe.schema import DataRecipe, Recipe, TrainingRecipe
from regard.training.run.data import make_data
from regard.training.run.torch_settings import torch_settings
from regard.training.state.progress import Meter
from regard.training.state.train_state import TrainState

# What GPT-2 is trained with here; translators have RECIPE of train.py.
# Slow enough that no step goes wrong: after one, losses differ that were equal before.
GPT_RECIPE = replace(RECIPE, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, label_smoothing=0.0)


class Ours:
    """regard's trainer as `regard train` runs it: its kernels, its data in a thread, its loop."""

    def __init__(self, config: Config, data: Any, recipe: TrainingRecipe, device: str) -> None:
        self.device, self.recipe = torch.device(device), recipe
        self.model = make_model(config).to(self.device)
        if self.device.type == "cuda" or recipe.precision == "fp8":  # which a CPU emulates
            fuse(self.model, fp8=recipe.precision == "fp8")
        self.data = data
        self.objective = objective(self.model, smoothing=recipe.label_smoothing or 0.0)
        self.state = TrainState(self.model, recipe, device=self.device)
        one_shape = getattr(data, "one_shape", False)
        self.train_step = TrainStep(self.state, self.objective, recipe, one_shape=one_shape)
        self.epoch = 0

    def kernels(self) -> AbstractContextManager[None]:
        return torch_settings(self.recipe, self.device)

    def batches(self) -> Iterator[Batch]:
        """The batches of the next epoch."""
        prefetcher = Prefetcher(batch.to(self.device) for batch in self.data.batches(self.epoch))
        self.epoch += 1
        try:
            while (batch := prefetcher.take(lambda: False)) is not None:
                yield batch
        finally:
            prefetcher.close()

    def step(self, batch: Batch) -> None:
        self.train_step([batch])

    def look(self) -> float:
        """The mean loss since the last look; waits for the device."""
        self.train_step.record_losses()
        meter, self.state.meter = self.state.meter, Meter()
        return meter.values(self.state.group)["loss"]

    def loss(self, batch: Batch) -> Tensor:
        """What is trained on, by the eager model."""
        with autocast(self.device, self.recipe.precision):
            return self.objective(self.model, batch).total / batch.tokens


class Plain:
    """A plain loop round a model that gives its own loss."""

    def __init__(
        self,
        model: nn.Module,
        batches: list[Batch],
        recipe: TrainingRecipe,
        device: str,
        *,
        compiled: bool,
        ragged: bool,
    ) -> None:
        self.device, self.recipe, self.ragged = torch.device(device), recipe, ragged
        self.model = model.to(self.device).train()
        self.run = torch.compile(self.model) if compiled else self.model
        self.epoch_batches = batches
        decay = {True: recipe.weight_decay, False: 0.0}
        groups = [
            {
                "params": [tensor for tensor in model.parameters() if (tensor.dim() > 1) is matrix],
                "weight_decay": decay[matrix],
            }
            for matrix in decay
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, eps=recipe.eps, fused=True)

    @contextmanager
    def kernels(self) -> Iterator[None]:
        """torch's own choice; for ragged batches without cuDNN's attention, which would plan anew for each shape."""
        before = torch.backends.cuda.cudnn_sdp_enabled()
        torch.backends.cuda.enable_cudnn_sdp(before and not self.ragged)
        try:
            yield
        finally:
            torch.backends.cuda.enable_cudnn_sdp(before)

    def batches(self) -> list[Batch]:
        return self.epoch_batches

    def step(self, batch: Batch) -> None:
        with autocast(self.device, self.recipe.precision):
            self.last = self.run(*tensors_of(batch))
        self.last.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def look(self) -> float:
        return self.last.item()

    def loss(self, batch: Batch) -> Tensor:
        with autocast(self.device, self.recipe.precision):
            return self.model(*tensors_of(batch))


def tensors_of(batch: Batch) -> list[Tensor]:
    """The arguments of a plain model: (source,) inputs and labels."""
    return [tensor for tensor in (batch.source, batch.inputs, batch.labels) if tensor is not None]


Contender = Ours | Plain


class PlainBlock(nn.Module):
    """A block of GPT-2."""

    def __init__(self, p: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.out = nn.LayerNorm(p), nn.Linear(p, 3 * p), nn.Linear(p, p)
        self.norm2, self.up, self.down = nn.LayerNorm(p), nn.Linear(p, hidden), nn.Linear(hidden, p)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, p) -> (B, T, p)."""
        parts = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # (B, H, T, p / H)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class PlainGPT(nn.Module):
    """GPT-2 in plain PyTorch: one matrix for q, k and v, torch's attention, the table tied to the output."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        p = setting.dim
        self.embedding, self.positions = nn.Embedding(setting.vocabulary, p), nn.Embedding(setting.length, p)
        self.blocks = nn.ModuleList(PlainBlock(p, setting.heads, setting.hidden) for _ in range(setting.layers))
        self.norm = nn.LayerNorm(p)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch (B, T), from all logits (B, T, V) at once."""
        x = self.embedding(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class NanoGPT(nn.Module):
    """The model of nanoGPT (Karpathy), from its file model.py, in the loop of `Plain`, which is nanoGPT's."""

    def __init__(self, file: Path, setting: Setting) -> None:
        super().__init__()
        spec = importlib.util.spec_from_file_location("nanogpt_model", file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["nanogpt_model"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        config = module.GPTConfig(
            block_size=setting.length, vocab_size=setting.vocabulary, n_layer=setting.layers, n_head=setting.heads,
            n_embd=setting.dim, dropout=setting.dropout,
        )  # fmt: skip
        self.model = module.GPT(config)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch (B, T)."""
        return self.model(inputs, labels)[1]


class PlainTranslator(PlainModel):
    """torch.nn.Transformer with its loss. Without padding it gets no mask but the causal flag: its fastest kernels."""

    def __init__(self, setting: Setting, *, smoothing: float, padded: bool) -> None:
        super().__init__(setting)
        self.smoothing, self.padded = smoothing, padded

    def forward(self, source: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch: source (B, n), inputs and labels (B, m)."""
        padding = source == PAD if self.padded else None
        hidden = self.transformer(
            self.embed(source),
            self.embed(inputs),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(inputs.shape[1], device=inputs.device),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        logits = F.linear(hidden, self.embedding.weight).flatten(0, 1)  # (B m, V)
        return F.cross_entropy(logits, labels.flatten(), ignore_index=PAD, label_smoothing=self.smoothing)


# Our names of GPT-2's parts -> those of PlainGPT.
GPT_PARTS = {
    "input.embedding": "embedding",
    "input.position.table": "positions.weight",
    "decoder.blocks": "blocks",
    "decoder.norm": "norm",
    "self_attention.input": "qkv",
    "self_attention.output": "out",
    "feed_forward.up": "up",
    "feed_forward.down": "down",
    "self_norm": "norm1",
    "feed_norm": "norm2",
}


def copy_gpt_weights(ours: nn.Module, plain: PlainGPT) -> None:
    """Give the plain model the weights of ours."""
    state = {}
    for name, value in ours.state_dict().items():
        for part, theirs in GPT_PARTS.items():
            name = name.replace(part, theirs)
        state[name] = value
    plain.load_state_dict(state)


def gpt_contenders(setting: Setting, device: str, recipe: TrainingRecipe, *, compiled: bool) -> dict[str, Contender]:
    """GPT-2: regard and the plain model, from the same weights on the same batches."""
    config = preset(
        "gpt2",
        vocabulary=setting.vocabulary,
        layers=setting.layers,
        dim=setting.dim,
        heads=setting.heads,
        hidden=setting.hidden,
        max_length=setting.length,
        dropout=setting.dropout,
    )
    batches = chain_batches(setting, device, fixed=recipe.fixed_shapes)
    ours, model = Ours(config, InMemory(batches), recipe, device), PlainGPT(setting)
    copy_gpt_weights(ours.model, model)
    return {"regard": ours, "torch": Plain(model, batches, recipe, device, compiled=compiled, ragged=False)}


def base_contenders(setting: Setting, device: str, recipe: TrainingRecipe, *, compiled: bool) -> dict[str, Contender]:
    """The Transformer on sentences of one length: regard, and torch.nn.Transformer compiled and as it is."""
    batches = full_batches(setting, device, fixed=recipe.fixed_shapes)
    contenders: dict[str, Contender] = {"regard": Ours(translator(setting), InMemory(batches), recipe, device)}
    for name in ("torch", "torch eager") if compiled else ("torch",):
        model = PlainTranslator(setting, smoothing=recipe.label_smoothing or 0.0, padded=False)
        copy_weights(contenders["regard"].model, model)
        contenders[name] = Plain(model, batches, recipe, device, compiled=compiled and name == "torch", ragged=False)
    return contenders


def tiny_contenders(
    setting: Setting, device: str, recipe: TrainingRecipe, *, data: Path | None
) -> dict[str, Contender]:
    """Transformer-Tiny on sentences as long as they are: regard with all that it does, and a plain eager loop.

    Ours makes its batches while it trains, as always; those of the plain loop lie on the device before it starts.
    """
    corpus, tokens = sentences(setting, data)
    whole = Recipe(name="tiny", data=DataRecipe(demo=1), training=recipe)
    few = make_corpus(corpus.source[:1], corpus.target[:1], name="nothing to validate")
    ours_data, _ = make_data(whole, Corpora(corpus, few), tokens, tokens, device=torch.device(device))
    ours = Ours(translator(setting), ours_data, recipe, device)
    ragged = PairData(corpus, tokens, tokens, batch_tokens=setting.batch_tokens, seed=recipe.seed)
    model = PlainTranslator(setting, smoothing=recipe.label_smoothing or 0.0, padded=True)
    copy_weights(ours.model, model)
    batches = [batch.to(device) for batch in ragged.batches(0)]
    return {"regard": ours, "torch": Plain(model, batches, recipe, device, compiled=False, ragged=True)}


def flops_per_token(setting: Setting, parameters: int) -> float:
    """Of a target token, forward and backward: 6 N + 12 p (L T summed over all attentions), causal ones not halved.

    Chowdhery et al. 2022, appendix B. `parameters` without positions; source and target are of one length.
    """
    attentions = setting.layers * (1 if setting.name == "gpt2" else 3)  # encoder's, decoder's and between
    return 6 * parameters + 12 * attentions * setting.dim * setting.length
