"""`transformers`' Speech2Text (Wang et al. 2020) with the sizes of regard's recognizer, trained on the same batches."""

from __future__ import annotations

import copy
import math
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.api.arrays.transcriber import Transcriber, Transcript
from regard.arrays.speech.mel import pad_frames
from regard.evaluation.word_errors import word_errors
from regard.models.arrays.speech_input import scale_frames
from regard.models.presets import make_model
from regard.tasks import task_for
from regard.text.tokenizers.special_tokens import END, PAD, START
from regard.training.recipe.defaults import complete, this_machine
from regard.training.recipe.schema import Recipe

MOST_TOKENS = 24  # of a transcript


class SpeechToText(nn.Module):
    """Speech2Text on our scale_framesd frames."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        from transformers import Speech2TextConfig, Speech2TextForConditionalGeneration

        self.config = config
        self.network = Speech2TextForConditionalGeneration(
            Speech2TextConfig(
                vocab_size=config.vocabulary,
                d_model=config.dim,
                encoder_layers=config.layers,
                decoder_layers=config.decoder_layers or config.layers,
                encoder_attention_heads=config.heads,
                decoder_attention_heads=config.heads,
                encoder_ffn_dim=config.hidden,
                decoder_ffn_dim=config.hidden,
                conv_channels=2 * config.dim,
                input_feat_per_channel=config.mels,
                num_conv_layers=config.halvings,
                dropout=config.dropout,
                max_source_positions=3000,
                max_target_positions=64,
                pad_token_id=PAD,
                bos_token_id=START,
                eos_token_id=END,
                decoder_start_token_id=START,
            )
        )

    def forward(self, frames: Tensor, target: Tensor) -> Tensor:
        """frames (B, T, M), target (B, m) -> logits (B, m, V)."""
        x, keep = scale_frames(frames, self.config)
        return self.network(input_features=x, attention_mask=keep.long(), decoder_input_ids=target).logits

    @torch.inference_mode()
    def write(self, frames: Tensor) -> list[list[int]]:
        """Return the most probable tokens, one after the other, without END."""
        x, keep = scale_frames(frames, self.config)
        encoded = self.network.model.encoder(input_features=x, attention_mask=keep.long())
        target = torch.full((len(frames), 1), START, device=frames.device)
        while target.shape[1] < MOST_TOKENS and not (target == END).any(1).all():
            logits = self.network(encoder_outputs=encoded, attention_mask=keep.long(), decoder_input_ids=target).logits
            target = torch.cat([target, logits[:, -1:].argmax(-1)], dim=1)
        return [row[: row.index(END)] for row in ([*tokens[1:], END] for tokens in target.tolist())]


class PeerTranscriber:
    """The part of regard's Transcriber that the benchmark uses."""

    step = 0.0

    def __init__(self, model: SpeechToText, tokenizer: Any, ours: Transcriber, device: torch.device) -> None:
        self.model, self.tokenizer, self.ours, self.device, self.rate = model, tokenizer, ours, device, ours.rate

    def transcribe(self, recordings: list[Any], attention: bool = False) -> list[Transcript]:
        self.model.eval()
        results = []
        for start in range(0, len(recordings), 64):
            frames = [self.ours.frames(item) for item in recordings[start : start + 64]]
            for tokens in self.model.write(pad_frames(frames).to(self.device)):
                results.append(Transcript("recording", self.tokenizer.decode(tokens), 0.0, 0.0, []))
        return results

    def evaluate(self, recordings: Any, beam: int = 1) -> dict[str, float]:
        pairs = [(samples, recordings.rate) for samples in recordings.audio]
        return word_errors([transcript.text for transcript in self.transcribe(pairs)], recordings.texts)


def train_peer(recipe: Recipe, device: torch.device, *, seconds: float) -> tuple[PeerTranscriber, int]:
    """Train Speech2Text on regard's batches as the recipe says; return it with its best weights, and the steps."""
    started, task = time.monotonic(), task_for(recipe.kind)
    corpora = task.read(recipe)
    recipe, _ = complete(recipe, task.facts(recipe, corpora), this_machine())
    tokenizers = task.make_tokenizers(recipe, corpora.train)
    train, validation = (
        task.make_data(recipe, part, tokenizers, training=learns, cache=None)
        for part, learns in ((corpora.train, True), (corpora.validation, False))
    )
    for part in (train, validation):
        part.move(device)
    config: Any = recipe.config(source_vocabulary=tokenizers[0].size, target_vocabulary=tokenizers[1].size)
    torch.manual_seed(recipe.training.seed)
    model, training = SpeechToText(config).to(device), recipe.training
    ours = Transcriber(make_model(config), tokenizers[1])
    lr, steps, warmup = training.lr or 1e-3, training.steps or 1, training.warmup or 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=training.weight_decay, betas=training.betas)
    best, best_weights, step, epoch = math.inf, copy.deepcopy(model.state_dict()), 0, 0
    while step < steps and time.monotonic() - started < seconds:
        for batch in train.batches(epoch):
            rate = step / warmup if step < warmup else (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
            for group in optimizer.param_groups:
                group["lr"] = lr * rate
            model.train()
            logits = model(batch.source.to(device), batch.inputs.to(device))
            labels, smoothing = batch.labels.to(device).flatten(), training.label_smoothing or 0.0
            loss = F.cross_entropy(logits.flatten(0, 1), labels, ignore_index=PAD, label_smoothing=smoothing)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), training.clip)
            optimizer.step()
            step += 1
            due = step % (training.validate_every or steps) == 0 or step == steps
            if due and (errors := validation_errors(model, validation, tokenizers[1], device)) <= best:
                best, best_weights = errors, copy.deepcopy(model.state_dict())
            if step == steps or time.monotonic() - started > seconds:
                break
        epoch += 1
    model.load_state_dict(best_weights)
    return PeerTranscriber(model, tokenizers[1], ours, device), step


def validation_errors(model: SpeechToText, data: Any, tokenizer: Any, device: torch.device) -> float:
    """Return the word error rate on the validation part."""
    model.eval()
    texts, references = [], []
    for batch in data.batches(0):
        texts += [tokenizer.decode(tokens) for tokens in model.write(batch.source.to(device))]
        references += [tokenizer.decode([token for token in row if token != END]) for row in batch.labels.tolist()]
    return word_errors(texts, references)["wer"]
