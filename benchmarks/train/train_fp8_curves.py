"""Losses of a training in bf16 and with 8-bit products, for train_fp8.py."""

from __future__ import annotations

import gzip
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.train.train_contenders import Setting
from benchmarks.train.train_fp8_ablations import ROUNDINGS, emulated
from benchmarks.train.train_fp8_checks import say
from benchmarks.train.train_fp8_heads import set_head
from benchmarks.train.train_gpu_batches import InMemory
from benchmarks.train.train_gpu_contenders import Ours
from regard.models.config import Config
from regard.text.batches.batch import Batch
from regard.training.loop.torch_compile import uncompiled
from regard.training.recipe.schema import TrainingRecipe

LAST = 100  # steps whose mean loss is compared
EVALUATION = 32  # batches of held-out text


class Curve:
    """One training: bf16, fp8, fp8/HEAD with another output layer, or a rounding of train_fp8_ablations.py."""

    def __init__(self, name: str, config: Config, recipe: TrainingRecipe, device: str) -> None:
        kind, _, head = name.partition("/")
        self.name, self.head = name, head or ("8-bit" if kind == "fp8" else "bf16")
        self.rounding = ROUNDINGS.get(kind)
        precision = "bf16" if kind.startswith("bf16") else "fp8"
        torch.manual_seed(0)
        self.ours = Ours(config, InMemory([]), replace(recipe, precision=precision), device)
        if kind == "bf16 again":  # how far apart are two trainings that differ by rounding only?
            with torch.no_grad():
                for weight in self.ours.model.parameters():
                    weight.mul_(1 + 2.0**-20)
        self.seconds, self.losses, self.last = 0.0, [], math.nan

    def steps(self, batches: list[Batch]) -> None:
        """Train on these batches, and note their mean loss."""
        began = time.perf_counter()
        set_head(self.ours.model, self.head)
        with self.context(), self.ours.kernels():
            for batch in batches:
                self.ours.step(batch)
            self.losses.append(round(self.ours.look(), 4))
        self.seconds += time.perf_counter() - began

    def context(self) -> AbstractContextManager[None]:
        return nullcontext() if self.rounding is None else emulated(self.rounding)

    def held_out(self, batches: list[Batch]) -> float:
        """The loss in 16 bits."""
        self.ours.model.eval()
        with torch.no_grad(), uncompiled():
            total = sum(self.ours.loss(batch).item() for batch in batches)
        self.ours.model.train()
        return total / len(batches)

    def result(self, batches: list[Batch]) -> dict:
        return {
            "losses": self.losses,
            "last": self.losses[-1],
            "held_out": self.held_out(batches),
            "skipped": self.ours.state.progress.skipped,
            "seconds": round(self.seconds, 1),
        }


def train_curves(
    names: list[str],
    setting: Setting,
    config: Config,
    recipe: TrainingRecipe,
    texts: tuple[Tensor, Tensor],
    device: str,
    *,
    steps: int,
    rows: int,
    until: float,
    out: Path | None,
) -> dict:
    """Train in turns, `LAST` steps each, from the same weights on the same windows; stop at the time `until`.

    So all have taken the same steps when the time is over.
    """
    recipe = replace(
        recipe, batch_tokens=rows * setting.length, lr=6e-4, schedule="cosine", warmup=max(1, steps // 10), steps=steps,
        floor=0.1,
    )  # fmt: skip
    curves = [Curve(name, config, recipe, device) for name in names]
    draw, every, slowest = torch.Generator().manual_seed(0), min(LAST, steps // 4), 0.0
    evaluation = torch.Generator().manual_seed(1)
    count = EVALUATION if steps >= LAST else 2
    held_out = [window_batch(texts[1], rows, setting.length, evaluation, device) for _ in range(count)]
    result: dict = {}
    for first in range(0, steps, every):
        began = time.time()
        batches = [window_batch(texts[0], rows, setting.length, draw, device) for _ in range(every)]
        for curve in curves:
            curve.steps(batches)
        done = first + every
        slowest = max(slowest if first > every else 0.0, time.time() - began)
        is_over = done >= steps or time.time() + slowest > until
        if done % (5 * every) == 0 or is_over:
            result = {curve.name: curve.result(held_out) for curve in curves}
            compare(result)
            result["steps"] = done
            say(f"step {done}: " + ", ".join(f"{curve.name} {curve.losses[-1]:.4f}" for curve in curves))
            if out is not None:
                out.write_text(json.dumps(result), encoding="utf-8")
        if is_over:
            if done < steps:
                say(f"stopped after {done} of {steps} steps: the time is over")
            break
    for curve in curves:
        say(f"{curve.name:24}{curve.seconds:>7.1f} s, losses {curve.losses}")
    return result


def compare(result: dict) -> None:
    """Add the distances from the first entry."""
    first, *others = result
    for name in others:
        apart = {key: result[name][key] - result[first][key] for key in ("last", "held_out")}
        say(f"{name} minus {first}: last steps {apart['last']:+.4f}, held-out text {apart['held_out']:+.4f}")
        result[name]["apart"] = apart


def window_batch(ids: Tensor, rows: int, length: int, draw: torch.Generator, device: str) -> Batch:
    starts = torch.randint(len(ids) - length - 1, (rows,), generator=draw)
    tokens = torch.stack([ids[start : start + length + 1] for start in starts]).to(device)
    return Batch(
        list(range(rows)), None, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), rows * length, fixed=True
    )


def read_texts(path: Path | None, vocabulary: int) -> tuple[Tensor, Tensor]:
    """The tokens of a file, or of all files of a folder: the first 95% of each for training, the rest held out."""
    if path is None:
        texts = ["the cat sees the dog , and the dog sees me . " * 400]
    else:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        packed = [(file.read_bytes(), file.suffix == ".gz") for file in files]
        texts = [(gzip.decompress(content) if is_gz else content).decode() for content, is_gz in packed]
    cuts = [int(0.95 * len(text)) for text in texts]
    parts = (
        [text[:cut] for text, cut in zip(texts, cuts, strict=True)],
        [text[cut:] for text, cut in zip(texts, cuts, strict=True)],
    )
    train, held_out = words_of(["\n".join(part) for part in parts], vocabulary)
    say(f"{len(train):,} and {len(held_out):,} tokens, {len(train.unique()):,} distinct")
    return train, held_out


def words_of(parts: list[str], vocabulary: int) -> list[Tensor]:
    """Words with the space before them, and signs; a rare word is spelled, so that no token is unknown."""
    split = [re.findall(r" ?\w+| ?[^\w\s]+|\s+", text) for text in parts]
    letters = sorted(set("".join(parts)))[: vocabulary // 2]
    first = 8  # below: special tokens
    frequent = [word for word, _ in Counter(split[0]).most_common(vocabulary - first - len(letters)) if len(word) > 1]
    table = {word: first + i for i, word in enumerate([*letters, *frequent])}

    def spelled(words: list[str]) -> Iterator[int]:
        for word in words:
            if word in table:
                yield table[word]
            else:
                yield from (table[letter] for letter in word if letter in table)

    return [torch.tensor(list(spelled(words))) for words in split]
