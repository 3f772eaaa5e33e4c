"""Fashion-MNIST: regard's Vision Transformer against the ViT of `transformers` and a plain CNN, by test accuracy.

    python benchmarks/uses/images.py --data data --seeds 1 2 3

All three learn from the same batches (the same files, augmentation and order) for the same number of steps, with AdamW,
the same warm-up and cosine schedule, label smoothing and precision; each keeps the weights with the best accuracy on
the same held-out images. The two ViTs have the same sizes. The CNN has a learning rate of its own (--cnn-lr).
Target: regard's accuracy on the 10,000 test images is at or above the better of the others. Nothing is ever tuned on
the same images with noise (`noisy`), which no training has seen.
Prints a table and a last line of JSON.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from benchmarks.timing import command, hardware, keep
from benchmarks.uses.deadline import over, train_until
from regard.arrays.images import Images, read_images
from regard.demo.images import demo_images
from regard.models.config import ImageClassifierConfig
from regard.recipes.model_table import model_config
from regard.tasks import task_for
from regard.tasks.losses import image_label_loss
from regard.training.recipe.schema import Recipe
from regard.training.recipe.toml_file import read_recipe

Model = Callable[[Tensor], Tensor]  # bytes (B, 1, H, W) -> logits (B, K)
CLASSES = 10
SYSTEMS = ("regard", "transformers", "cnn")
NOISE = 32  # standard deviation, of 255


class PlainCNN(nn.Module):
    """Two pairs of convolutions with pooling after each, and two linear layers: the usual network for such images."""

    def __init__(self, side: int = 28) -> None:
        super().__init__()

        def pair(before: int, after: int) -> list[nn.Module]:
            layers: list[nn.Module] = []
            for channels in (before, after):
                layers += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            return [*layers, nn.MaxPool2d(2)]

        self.features = nn.Sequential(*pair(1, 32), *pair(32, 64), nn.Flatten())
        self.output = nn.Sequential(
            nn.Linear(64 * (side // 4) ** 2, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.output(self.features(images.float() / 127.5 - 1))


class TransformersViT(nn.Module):
    """The Vision Transformer of `transformers` with the sizes of ours."""

    def __init__(self, config: ImageClassifierConfig) -> None:
        super().__init__()
        from transformers import ViTConfig, ViTForImageClassification

        self.vit = ViTForImageClassification(
            ViTConfig(
                hidden_size=config.dim,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                intermediate_size=config.hidden,
                hidden_dropout_prob=config.dropout,
                attention_probs_dropout_prob=config.attention_dropout,
                image_size=config.height,
                patch_size=config.patch,
                num_channels=config.channels,
                num_labels=CLASSES,
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.vit(images.float() / 127.5 - 1).logits


def train_peer(
    model: nn.Module, recipe: Recipe, data: tuple[Any, Any], lr: float, device: torch.device, deadline: float | None
) -> tuple[nn.Module, float, int]:
    """Train a network on regard's batches as the recipe says.

    Return it with its best weights, their accuracy on the validation part, and the steps it took.
    """
    training, (train, validation) = recipe.training, data
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=training.weight_decay, betas=training.betas)
    steps, warmup = training.steps or 1, training.warmup or 0
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(training.ema), use_buffers=True)
    judged = average if training.ema else model
    best, best_weights = -1.0, copy.deepcopy(judged.state_dict())
    step = epoch = 0
    while step < steps:
        for batch in train.batches(epoch):
            rate = step / warmup if step < warmup else (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
            for group in optimizer.param_groups:
                group["lr"] = lr * rate
            model.train()
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = model(batch.source.to(device))
            total = image_label_loss(logits, batch.labels.to(device), smoothing=training.label_smoothing or 0.0).total
            loss = total / len(logits)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), training.clip)
            optimizer.step()
            if training.ema and step >= warmup:
                average.update_parameters(model)
            step += 1
            late = over(deadline)
            if step % (training.validate_every or steps) == 0 or step == steps or late:
                right = sum(correct(judged, part.source, part.labels[:, 0], device) for part in validation.batches(0))
                if right > best:
                    best, best_weights = right, copy.deepcopy(judged.state_dict())
            if step == steps or late:
                steps = step
                break
        epoch += 1
    judged.load_state_dict(best_weights)
    return judged, best / len(validation), steps


def correct(model: nn.Module, images: Tensor, labels: Tensor, device: torch.device) -> int:
    """Count the images whose most probable class is right."""
    model.eval()
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        return int((model(images.to(device)).argmax(-1) == labels.to(device)).sum())


def test_accuracy(model: nn.Module, test: Images, device: torch.device) -> float:
    """Return the share of right answers; classes are numbered in the order of their labels."""
    classes = sorted(set(test.labels))
    images, labels = torch.from_numpy(test.pixels), torch.tensor([classes.index(label) for label in test.labels])
    parts = zip(images.split(1000), labels.split(1000), strict=True)
    return sum(correct(model, some, answers, device) for some, answers in parts) / len(test)


def noisy(images: Images) -> Images:
    """Return the images with normal noise."""
    noise = np.random.default_rng(0).normal(0, NOISE, images.pixels.shape)
    return dataclasses.replace(images, pixels=(images.pixels + noise).round().clip(0, 255).astype(np.uint8))


def measure(
    system: str,
    recipe: Recipe,
    data: tuple[Any, Any] | None,
    test: Images,
    device: torch.device,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Train one system; return its accuracy on the test and validation parts, parameters, steps and seconds."""
    started = time.perf_counter()
    torch.manual_seed(recipe.training.seed)
    if system == "regard":
        with tempfile.TemporaryDirectory() as folder:
            trained, steps = train_until(options.until, recipe, out=Path(folder) / "run", quiet=not options.verbose)
            classifier, validation = trained.load(device=device), trained.scores["accuracy"]
        model = classifier.model
        accuracy, with_noise = (classifier.evaluate(images)["accuracy"] for images in (test, noisy(test)))
    else:
        assert data is not None
        config: Any = model_config(recipe.kind, with_size(recipe).model, source_vocabulary=14, target_vocabulary=14)
        model = PlainCNN(config.height) if system == "cnn" else TransformersViT(config)
        lr = options.cnn_lr if system == "cnn" else recipe.training.lr or 1e-3
        model, validation, steps = train_peer(model, recipe, data, lr, device, options.until)
        accuracy, with_noise = (test_accuracy(model, images, device) for images in (test, noisy(test)))
    parameters = sum(weight.numel() for weight in model.parameters())
    seconds = round(time.perf_counter() - started, 1)
    scores = {"accuracy": accuracy, "noisy": with_noise, "validation": validation, "parameters": parameters}
    return {**scores, "steps": steps, "seconds": seconds}


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder that contains fashion-mnist/")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings that differ from the recipe"
    )
    parser.add_argument("--until", type=float, help="end trainings at this time, in seconds since 1970")
    parser.add_argument("--verbose", action="store_true", help="print the progress of regard's trainings")
    parser.add_argument("--cnn-lr", type=float, default=1e-3)
    parser.add_argument("--quick", action="store_true", help="a few steps of a small model, to see that it runs")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the target is missed")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    return parser.parse_args()


def main() -> int:
    options = parsed_options()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = options.data.resolve() / "fashion-mnist"
    overrides = dict(text.split("=", 1) for text in options.set)
    if options.quick:
        overrides |= {"training.steps": "2", "training.validate_every": "2", "training.warmup": "1"}
        overrides |= {"data.images": "", "data.demo": "70", "data.validation": "14"}
        overrides |= {"model.layers": "1", "training.batch_tokens": "400"}
        test = demo_images(14, seed=9)
    else:
        overrides |= {"data.images": str(folder / "train-images-idx3-ubyte.gz")}
        test = read_images([folder / "t10k-images-idx3-ubyte.gz"])
    results: dict[str, list[dict[str, Any]]] = {system: [] for system in options.systems}
    for seed in options.seeds:
        recipe = read_recipe("fashion-mnist", {**overrides, "training.seed": seed})
        data = None
        if set(options.systems) != {"regard"}:
            task = task_for(recipe.kind)
            corpora = task.read(recipe)
            tokenizers = task.make_tokenizers(recipe, corpora.train)
            parts = ((corpora.train, True), (corpora.validation, False))
            data = tuple(task.make_data(with_size(recipe), p, tokenizers, training=t, cache=None) for p, t in parts)
            for part in data:
                part.move(device)
        for system in options.systems:
            try:
                result = measure(system, recipe, data, test, device, options)  # type: ignore[arg-type]
            except ImportError as error:  # transformers is optional
                print(f"{system}: {error}", file=sys.stderr)
                continue
            results[system].append({"seed": seed, **result})
            print(system, results[system][-1], file=sys.stderr, flush=True)
            keep(report_of(results, overrides, device), options.out)  # what is there already, if the time is over
    report = report_of(results, overrides, device)
    for system, values in report["summary"].items():
        size = f"{values['parameters']:>12,.0f} parameters"
        print(f"{system:<14}{values['accuracy']:>9.2%}{size}{values['seconds']:>8.0f} s")
    keep(report, options.out)
    print(json.dumps(report))
    return int(options.check and not report["target reached"])


def report_of(
    results: dict[str, list[dict[str, Any]]], overrides: dict[str, Any], device: torch.device
) -> dict[str, Any]:
    """Return the results with their means, and whether the target is reached."""
    summary = {
        system: {key: mean(run[key] for run in runs) for key in ("accuracy", "validation", "parameters", "seconds")}
        for system, runs in results.items()
        if runs
    }
    others = [values["accuracy"] for system, values in summary.items() if system != "regard"]
    return {
        "benchmark": "images",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device.type),
        "versions": {name: version(name) for name in ("torch", "numpy")},
        "settings": {key: value for key, value in overrides.items() if key != "data.images"},
        "runs": results,
        "summary": summary,
        "target reached": "regard" in summary and summary["regard"]["accuracy"] >= max(others, default=0.0),
    }


def with_size(recipe: Recipe) -> Recipe:
    """Return the recipe with the size of Fashion-MNIST's images, which regard's trainer takes from the data."""
    model = {**recipe.model, "channels": 1, "height": 28, "width": 28}
    return Recipe(name=recipe.name, data=recipe.data, model=model, training=recipe.training)


if __name__ == "__main__":
    sys.exit(main())
