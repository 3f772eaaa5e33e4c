"""The loss of word vectors on a batch of text, and the update of the weights in plain PyTorch.

A2. Skip-gram and CBOW take a gradient step for each example, not one for each batch. The plain update takes one for
some hundred examples, with their summed loss; regard/kernels/native/word_vectors.py takes them one by one, in C.

    N tokens   n examples   c input words   k negatives   w window
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.models.word_vectors import WordVectorModel, glove_loss, negative_sampling_loss
from regard.tasks.losses import Loss
from regard.text.batches.batch import Batch
from regard.text.random_streams import random_keys
from regard.text.tokenizers.special_tokens import PAD, SPECIAL_TOKENS, UNKNOWN

SLICE = 256  # examples of one gradient step
VALIDATION_SLICE = 8192  # examples whose loss is computed at a time
DRAWS = 8  # random stream


class Examples(NamedTuple):
    """What is predicted from what."""

    inputs: Tensor  # (n, c): the word in the middle, or the words around it, padded
    outputs: Tensor  # (n, 1 + k): the true word, and words of the noise distribution
    keep: Tensor  # (n, 1 + k): False where a word of the noise is the true one

    def slice(self, rows: Tensor) -> Examples:
        return Examples(*(part[rows] for part in self))


def draw_examples(model: WordVectorModel, tokens: Tensor, generator: torch.Generator) -> Examples:
    """Draw subsampled words, window sizes and negatives for tokens (B, L).

    Mikolov et al. 2013b. Each word has its own window of 1 to w words on each side; the next sentence is not part of
    it. Unknown words and those that subsampling leaves out take no place.
    """
    config, device = model.config, tokens.device
    padded = torch.nn.functional.pad(tokens, (0, 1), value=PAD).flatten()  # a row ends a sentence
    is_word = padded >= len(SPECIAL_TOKENS)
    sentence = ((padded != UNKNOWN) & ~is_word).cumsum(0)
    sampled = is_word & (torch.rand(len(padded), generator=generator, device=device) < model.keep_probability[padded])
    words, sentence = padded[sampled], sentence[sampled]  # (N,)
    reach = torch.randint(1, config.window + 1, (len(words),), generator=generator, device=device)  # (N,)
    offsets = [offset for offset in range(-config.window, config.window + 1) if offset]
    at = torch.arange(len(words), device=device)[:, None] + torch.tensor(offsets, device=device)  # (N, 2w)
    inside = (at >= 0) & (at < len(words)) & (torch.tensor(offsets, device=device).abs() <= reach[:, None])
    at = at * inside
    inside &= sentence[at] == sentence[:, None] if len(words) else inside
    around = torch.where(inside, words[at], PAD) if len(words) else at
    if config.method == "cbow":
        some = inside.any(1)
        inputs, true = around[some], words[some]  # (n, 2w), (n,)
    else:
        inputs, true = words[:, None].expand_as(around)[inside][:, None], around[inside]  # (n, 1), (n,)
    count = len(true) * config.negatives
    noise = model.noise.float().multinomial(count, replacement=True, generator=generator) if count else true[:0]
    outputs = torch.cat([true[:, None], noise.view(-1, config.negatives)], dim=1)
    keep = outputs != true[:, None]
    keep[:, 0] = True
    return Examples(inputs, outputs, keep)


def word_vector_loss(model: WordVectorModel, batch: Batch) -> Loss:
    """Return the summed loss of a batch; its examples are drawn in the same way each time."""
    if model.config.method == "glove":
        losses = glove_loss(model.log_counts(batch.inputs), batch.labels[:, 0], model.config.max_count)
        return Loss(losses.sum(), losses.detach().sum(), len(losses))
    examples = draw_examples(model, batch.inputs, torch.Generator(batch.inputs.device).manual_seed(0))
    total = model.words.weight.new_zeros(())
    for rows in torch.arange(len(examples.inputs), device=batch.inputs.device).split(VALIDATION_SLICE):
        inputs, outputs, keep = examples.slice(rows)
        total = total + negative_sampling_loss(model(inputs, outputs), keep).sum()
    return Loss(total, total.detach(), len(examples.inputs))


class PlainUpdate:
    """Changes the weights by a batch: a step of the optimizer for the summed loss of every SLICE examples."""

    def __init__(self, model: WordVectorModel, seed: int) -> None:
        self.model, self.seed = model, seed

    def __call__(self, batch: Batch, optimizer: torch.optim.Optimizer, step: int) -> Tensor:
        """Take the steps of a batch; return the mean loss of an example."""
        model, device = self.model, batch.inputs.device
        generator = torch.Generator(device).manual_seed(int(random_keys(1, self.seed, step, DRAWS)[0] >> 1))
        is_glove = model.config.method == "glove"
        examples = None if is_glove else draw_examples(model, batch.inputs, generator)
        count = len(batch.inputs if examples is None else examples.inputs)
        total = torch.zeros((), device=device)
        for rows in torch.randperm(count, generator=generator, device=device).split(SLICE):
            if examples is None:
                log_counts = model.log_counts(batch.inputs[rows])
                loss = glove_loss(log_counts, batch.labels[rows, 0], model.config.max_count).sum()
            else:
                inputs, outputs, keep = examples.slice(rows)
                loss = negative_sampling_loss(model(inputs, outputs), keep).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total / max(count, 1)
