"""Captions of Fashion-MNIST scenes: both captioners of regard on images and videos, and a peer without attention.

    python benchmarks/uses/captions.py --data data --seeds 1 2 3

All systems of a task learn from the same scenes in the same batches, for the same number of steps and with the same
schedule; each keeps the weights with the most validation captions exactly right. The peer is a plain convolutional
network whose features start an LSTM. Scenes of the test part are composed of images that are in no other scene.
Targets: 95% of the captions of images exactly right, 90% of the nouns with the attention's peak on their item, and 90%
of the captions of videos exactly right. Two parts of the test were never tuned on: scenes of the test images, and
the same scenes on a canvas with three times the noise of training. Prints a table and a last line of JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import command, hardware, keep
from benchmarks.uses.deadline import over, train_until
from regard.api.arrays.captioner import Captioner
from regard.arrays.captions import CaptionedImages
from regard.arrays.images import Images, read_images
from regard.demo.scenes import NOISE, demo_items, make_scenes
from regard.evaluation.captions import exact_share
from regard.tasks import task_for
from regard.text.tokenizers.special_tokens import END, PAD, START
from regard.training.recipe.schema import Recipe, recipe_from
from regard.training.recipe.toml_file import read_recipe

FRAMES, SIDE, BATCH = 6, 64, {"images": 128, "video": 64}  # pixels on a side of a canvas; samples of a batch
PARTS = {"test": NOISE, "noisy": 3 * NOISE}
UNUSED = ("layers", "decoder_layers", "dim", "heads", "stem")  # by a recurrent captioner
CONVOLUTION = {"images": 32, "video": 16}  # channels before the first pooling
RECURRENT_STEPS = {"images": 2500, "video": 5000}
RECURRENT = {"model.kind": "rnn-captioner", "model.patch": 8, "model.hidden": 256, "model.embedding": 128}
RECURRENT |= {"training.capture": False}  # many small steps, which a graph does not make faster here
OVERRIDES: dict[str, dict[str, Any]] = {
    "images": {"training.steps": 6000, "training.validate_every": 1000, "data.scenes": 60_000},
    "video": {
        "model.frames": FRAMES,
        "model.patch": 8,
        "data.scenes": 20_000,
        "training.steps": 3000,
        "training.validate_every": 750,
        "training.warmup": 300,
    },
}
SYSTEMS = ("captioner", "rnn-captioner", "peer")


class PlainCaptioner(nn.Module):
    """The peer: convolutions, a linear layer on all features, and an LSTM that starts with the result."""

    def __init__(self, vocabulary: int, *, frames: int, side: int, width: int, hidden: int = 256) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before, after = 1, width
        for _ in range(3):
            for channels in (before, after):
                layers += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
            before, after = after, 2 * after
        self.features = nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * (side // 8) ** 2, hidden), nn.ReLU())
        self.start = nn.Linear(frames * hidden, 2 * hidden)
        self.embedding = nn.Embedding(vocabulary, 128)
        self.lstm = nn.LSTM(128, hidden, batch_first=True)
        self.output = nn.Sequential(nn.Dropout(0.1), nn.Linear(hidden, vocabulary))

    def first(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (B, T, 1, H, W) -> the state of the LSTM before the first word."""
        features = self.features(frames.flatten(0, 1).float() / 127.5 - 1).unflatten(0, frames.shape[:2])
        h, c = torch.tanh(self.start(features.flatten(1)))[None].chunk(2, dim=-1)
        return h.contiguous(), c.contiguous()

    def forward(self, frames: Tensor, inputs: Tensor) -> Tensor:
        return self.output(self.lstm(self.embedding(inputs), self.first(frames))[0])

    @torch.inference_mode()
    def write(self, frames: Tensor, longest: int) -> list[list[int]]:
        """Write captions greedily, word by word."""
        self.eval()
        state, token = self.first(frames), torch.full((len(frames), 1), START, device=frames.device)
        words = []
        for _ in range(longest):
            hidden, state = self.lstm(self.embedding(token), state)
            token = self.output(hidden).argmax(-1)
            words.append(token)
        self.train()
        rows = torch.cat(words, dim=1).tolist()
        return [row[: row.index(END)] if END in row else row for row in rows]


def train_peer(
    recipe: Recipe, task: str, tests: dict[str, CaptionedImages], device: torch.device, deadline: float | None
) -> dict[str, Any]:
    """Train the peer on regard's batches as the recipe says; return its scores on the test scenes."""
    torch.manual_seed(recipe.training.seed)
    training, owner = recipe.training, task_for(recipe.kind)
    corpora = owner.read(recipe)
    size = dict(zip(("channels", "height", "width"), corpora.train.pixels.shape[2:], strict=True))
    complete = Recipe(name="peer", data=recipe.data, model={**recipe.model, **size}, training=training)
    _, tokenizer = tokenizers = owner.make_tokenizers(
        Recipe(name="peer", data=recipe.data, model=recipe.model, training=training), corpora.train
    )
    data: Any = owner.make_data(complete, corpora.train, tokenizers, training=True, cache=None)
    data.move(device)
    longest = int(data.lengths.max())
    model = PlainCaptioner(
        tokenizer.size, frames=recipe.model.get("frames") or 1, side=size["height"], width=CONVOLUTION[task]
    ).to(device)

    def exact(images: CaptionedImages) -> float:
        texts = []
        for part in torch.from_numpy(images.pixels).split(250):
            texts += [tokenizer.decode(row) for row in model.write(part.to(device), longest)]
        return exact_share(texts, images.captions)

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=training.lr or 1e-3, weight_decay=training.weight_decay, betas=training.betas
    )
    steps, warmup = training.steps or 1, training.warmup or 0
    best, best_weights, step, epoch = -1.0, copy.deepcopy(model.state_dict()), 0, 0
    while step < steps:
        for batch in data.batches(epoch):
            rate = step / warmup if step < warmup else (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
            for group in optimizer.param_groups:
                group["lr"] = (training.lr or 1e-3) * rate
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = model(batch.source, batch.inputs)
            loss = F.cross_entropy(logits.float().flatten(0, 1), batch.labels.flatten(), ignore_index=PAD)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), training.clip)
            optimizer.step()
            step += 1
            late = over(deadline)
            if step % (training.validate_every or steps) == 0 or step == steps or late:
                score = exact(corpora.validation)
                print(f"step {step}: exactly right {score:.1%}", flush=True)
                if score > best:
                    best, best_weights = score, copy.deepcopy(model.state_dict())
            if step == steps or late:
                steps = step
                break
        epoch += 1
    model.load_state_dict(best_weights)
    return {
        **{f"{part}_exact": exact(test) for part, test in tests.items()},
        "validation": best,
        "steps": steps,
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }


def train_regard(
    recipe: Recipe, tests: dict[str, CaptionedImages], device: torch.device, deadline: float | None, *, quiet: bool
) -> dict[str, Any]:
    """Train a captioner with regard; return its scores on the test scenes."""
    with tempfile.TemporaryDirectory() as folder:
        trained, steps = train_until(deadline, recipe, out=Path(folder) / "run", quiet=quiet)
        captioner = trained.load(device=device)
    assert isinstance(captioner, Captioner)
    scores = {part: captioner.evaluate(test) for part, test in tests.items()}
    return {
        **{
            f"{part}_{key}": scores[part][key]
            for part in tests
            for key in ("exact", "pointing")
            if known(scores[part][key])
        },
        "validation": trained.scores["exact"],
        "steps": steps,
        "parameters": sum(weight.numel() for weight in captioner.model.parameters()),
    }


def known(score: float) -> bool:
    """Whether there is a score: without a right caption, there is no word whose place could be right."""
    return not math.isnan(score)


def recipe_of(task: str, system: str, seed: int, options: argparse.Namespace) -> Recipe:
    """Return the recipe fashion-captions with the settings of a run; the peer reads that of the recurrent captioner."""
    recipe = read_recipe("fashion-captions", {})
    settings = dict(OVERRIDES[task])
    if system != "captioner":
        settings |= {**RECURRENT, "model.convolution": CONVOLUTION[task], "training.steps": RECURRENT_STEPS[task]}
        settings.pop("model.stem", None)
    cells = settings.get("model.frames", 1) * (SIDE // settings.get("model.patch", recipe.model["patch"])) ** 2
    settings |= {"training.batch_tokens": BATCH[task] * cells, "training.seed": seed}
    settings |= {key: parsed(value) for key, value in (text.split("=", 1) for text in options.set)}
    if options.plain:
        settings |= {"training.kernels": "off", "training.capture": False}
    if options.quick:
        settings |= {"data.demo": 32, "data.validation": 8, "training.steps": 2, "training.validate_every": 2}
        settings |= {"training.warmup": 1}
    tables = {"data": vars(recipe.data), "model": dict(recipe.model), "training": vars(recipe.training)}
    if options.quick:
        tables["data"] = {}
    else:
        tables["data"] = tables["data"] | {"images": (str(items_file(options.data, "train")),)}
    if system != "captioner":
        tables["model"] = {key: value for key, value in recipe.model.items() if key not in UNUSED}
    for key, value in settings.items():
        table, _, name = key.partition(".")
        if not (options.quick and key == "data.scenes"):
            tables[table] = tables[table] | {name: value}
    return recipe_from({"name": f"{task}-{system}", "tokenizer": {"kind": "words"}, **tables})


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def items_file(data: Path, part: str) -> Path:
    """Return the IDX file of the images of a part, however it is compressed."""
    names = [f"{part}-images-idx3-ubyte{ending}" for ending in (".gz", ".xz", "")]
    paths = [data.resolve() / "fashion-mnist" / name for name in names]
    return next((path for path in paths if path.exists()), paths[0])


def test_items(recipe: Recipe, data: Path) -> Images:
    """Return the test images that the recipe has nouns for, with these nouns as labels."""
    images = read_images([items_file(data, "t10k")])
    nouns = {label: noun for noun, _, label in (entry.partition("=") for entry in recipe.data.items)}
    named = images.select([row for row, label in enumerate(images.labels) if label in nouns])
    return Images(named.pixels, [nouns[label] for label in named.labels], named.names, named.report)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder that contains fashion-mnist/")
    parser.add_argument("--tasks", nargs="+", choices=tuple(OVERRIDES), default=list(OVERRIDES))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--test-scenes", type=int, default=2000)
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings that differ from the recipe"
    )
    parser.add_argument("--plain", action="store_true", help="without kernels of our own and captured graphs")
    parser.add_argument("--quick", action="store_true", help="a few steps on demo shapes, to see that it runs")
    parser.add_argument("--until", type=float, help="end trainings at this time, in seconds since 1970")
    parser.add_argument("--verbose", action="store_true", help="print the progress of regard's trainings")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    return parser.parse_args()


def report_of(results: dict[str, list[dict[str, Any]]], settings: list[str], device: torch.device) -> dict[str, Any]:
    """Return the results with their means."""
    summary = {
        name: {
            key: mean(run[key] for run in runs)
            for key in runs[0]
            if key.startswith(("test", "noisy", "seconds")) and all(key in run for run in runs)
        }
        for name, runs in results.items()
    }
    return {
        "benchmark": "captions",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware(device.type),
        "versions": {name: version(name) for name in ("torch", "numpy")},
        "settings": settings,
        "runs": results,
        "summary": summary,
    }


def main() -> int:
    options = parsed_options()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    results: dict[str, list[dict[str, Any]]] = {}
    for task in options.tasks:
        items = (
            demo_items(seed=9) if options.quick else test_items(recipe_of(task, "captioner", 1, options), options.data)
        )
        frames, count = FRAMES if task == "video" else 1, 8 if options.quick else options.test_scenes
        tests = {
            part: make_scenes(items, count, frames=frames, noise=noise, seed=99, name=f"{part} scenes")
            for part, noise in PARTS.items()
        }
        for seed in options.seeds:
            for system in options.systems:
                recipe, started = recipe_of(task, system, seed, options), time.perf_counter()
                if system == "peer":
                    scores = train_peer(recipe, task, tests, device, options.until)
                else:
                    scores = train_regard(recipe, tests, device, options.until, quiet=not options.verbose)
                result = {"seed": seed, **scores}
                result["seconds"] = round(time.perf_counter() - started, 1)
                results.setdefault(f"{task}/{system}", []).append(result)
                print(task, system, result, file=sys.stderr, flush=True)
                keep(report_of(results, options.set, device), options.out)
    report = report_of(results, options.set, device)
    for name, values in report["summary"].items():
        print(f"{name:<24}" + "".join(f"  {key} {value:.4g}" for key, value in values.items()))
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
