"""Captions of Fashion-MNIST scenes: both captioners of regard on images and videos, and a peer without attention.

    python benchmarks/captions.py --data data/fashion.npz --seeds 1 2 3 --seconds 180 --out captions.json

All systems of a task learn from the same scenes in the same batches, for the same number of steps and with the same
schedule; each keeps the weights with the most validation captions exactly right. The peer is a plain convolutional
network whose features start an LSTM. Scenes of the test part are composed of images that are in no other scene.
Targets: 95% of the captions of images exactly right, 90% of the nouns with the attention's peak on their item, and 90%
of the captions of videos exactly right. Each training is a process of its own; one that lasts longer than --seconds is
stopped, and its last validation is reported. Prints a table and a last line of JSON.

The file has train_pixels (N, 28, 28), train_labels (N,), test_pixels, test_labels, and the words of the labels.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from timing import command, hardware, keep
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.api.captioner import Captioner
from regard.arrays.captions import CaptionedImages
from regard.arrays.images import make_images
from regard.demo.scenes import make_scenes
from regard.evaluation.captions import exact_share
from regard.tasks import task_for
from regard.text.tokenizers.special_tokens import END, PAD, START
from regard.training.recipe.schema import Recipe
from regard.training.recipe.toml_file import read_recipe

FRAMES, TEST_SCENES = 6, 2000
RECURRENT = {"model.kind": "rnn-captioner", "model.patch": 8, "model.hidden": 256, "model.embedding": 128}
UNUSED = ("layers", "decoder_layers", "dim", "heads")  # by a recurrent captioner
SIZES = {"images": {"convolution": 32}, "video": {"convolution": 16}}
OVERRIDES: dict[str, dict[str, Any]] = {
    "images": {"training.steps": 5000, "training.validate_every": 1000, "data.scenes": 40_000},
    "video": {
        "model.frames": FRAMES,
        "model.patch": 8,
        "data.scenes": 20_000,
        "training.steps": 3000,
        "training.validate_every": 750,
        "training.warmup": 300,
    },
}
BATCH = {"images": 128, "video": 64}
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


def train_peer(recipe: Recipe, task: str, test: CaptionedImages, device: torch.device, report: Path) -> dict[str, Any]:
    """Train the peer on regard's batches as the recipe says; return its scores on the test scenes."""
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
        tokenizer.size, frames=recipe.model.get("frames") or 1, side=size["height"], width=SIZES[task]["convolution"]
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
            if step % (training.validate_every or steps) == 0 or step == steps:
                score = exact(corpora.validation)
                report.write_text(json.dumps({"step": step, "exact": score}))
                if score > best:
                    best, best_weights = score, copy.deepcopy(model.state_dict())
            if step == steps:
                break
        epoch += 1
    model.load_state_dict(best_weights)
    return {
        "exact": exact(test),
        "validation": best,
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }


def train_regard(recipe: Recipe, test: CaptionedImages, device: torch.device, folder: Path) -> dict[str, Any]:
    """Train a captioner with regard; return its scores on the test scenes."""
    captioner = regard.train(recipe, out=folder, quiet=True).load(device=device)
    assert isinstance(captioner, Captioner)
    scores = captioner.evaluate(test)
    parameters = sum(weight.numel() for weight in captioner.model.parameters())
    last = last_validation(folder)
    return {
        **{key: scores[key] for key in ("exact", "pointing")},
        "validation": last.get("exact"),
        "parameters": parameters,
    }


def last_validation(folder: Path) -> dict[str, Any]:
    """Return the scores of the last validation of a run."""
    scores: dict[str, Any] = {}
    path = folder / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:  # the last line of a run that was stopped
            continue
        if "exact" in entry:
            scores = {key: entry[key] for key in ("step", "exact", "pointing") if key in entry}
    return scores


def recipe_of(task: str, system: str, seed: int, images: Path, words: list[str], settings: dict[str, str]) -> Recipe:
    """Return the recipe of a job; the peer reads that of the recurrent captioner for its data."""
    overrides = {**OVERRIDES[task]}
    if system != "captioner":
        overrides |= {**RECURRENT, **{f"model.{key}": value for key, value in SIZES[task].items()}}
    side = 64
    patch = overrides.get("model.patch", 4)
    overrides["training.batch_tokens"] = BATCH[task] * overrides.get("model.frames", 1) * (side // patch) ** 2
    overrides |= {"data.images": str(images), "training.seed": seed} | settings
    recipe = read_recipe("fashion-captions", {})
    tables = {"data": vars(recipe.data) | {"items": tuple(f"{word}={i}" for i, word in enumerate(words))}}
    tables |= {"model": dict(recipe.model), "training": vars(recipe.training)}
    if system != "captioner":
        tables["model"] = {key: value for key, value in recipe.model.items() if key not in UNUSED}
    for key, value in overrides.items():
        table, _, name = key.partition(".")
        tables[table][name] = (
            (str(value),) if key == "data.images" else value if not isinstance(value, str) else _parsed(value)
        )
    from regard.training.recipe.schema import recipe_from

    return recipe_from({"name": f"{task}-{system}", "tokenizer": {"kind": "words"}, **tables})


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def run_job(options: argparse.Namespace) -> int:
    """Run one training; write its result to the job's file."""
    task, system, seed = options.job.split("/")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    words = json.loads((options.work / "words.json").read_text())
    content = np.load(options.data)
    labels = [words[label] for label in content["test_labels"].tolist()]
    count = options.test_scenes
    items = make_images(content["test_pixels"][:, None], labels, name="test items")
    test = make_scenes(items, count, frames=FRAMES if task == "video" else 1, seed=99, name="test scenes")
    folder = options.work / options.job.replace("/", "-")
    folder.mkdir()
    settings = dict(text.split("=", 1) for text in options.set)
    started = time.perf_counter()
    images = options.work / "train-images-idx3-ubyte.gz"
    torch.manual_seed(int(seed))
    attempts = ({}, {"training.capture": "false"}, {"training.capture": "false", "training.kernels": "off"})
    for attempt, extra in enumerate(attempts if device.type == "cuda" and system != "peer" else attempts[:1]):
        recipe = recipe_of(task, system, int(seed), images, words, settings | extra)
        try:
            if system == "peer":
                result = train_peer(recipe, task, test, device, folder / "peer.json")
            else:
                result = train_regard(recipe, test, device, folder / f"run{attempt}")
            break
        except Exception:
            (folder / f"error{attempt}.txt").write_text(traceback.format_exc())
            if attempt == len(attempts) - 1 or device.type != "cuda":
                raise
    result |= {"seconds": round(time.perf_counter() - started, 1), "settings": extra, "steps": recipe.training.steps}
    (folder / "result.json").write_text(json.dumps(result))
    return 0


def partial_result(folder: Path) -> dict[str, Any]:
    """Return what is known of a job that was stopped or failed: its last validation and its errors."""
    result: dict[str, Any] = {"stopped": True}
    for run in sorted(folder.glob("run*")):
        result["last validation"] = last_validation(run)
    if (folder / "peer.json").exists():
        result["last validation"] = json.loads((folder / "peer.json").read_text())
    errors = [path.read_text()[-1500:] for path in sorted(folder.glob("error*.txt"))]
    return result | ({"errors": errors} if errors else {})


def write_items(work: Path, data: Path) -> None:
    """Write the training items as IDX files, and the words of their labels."""
    content = np.load(data)
    for name, array in (("images-idx3", content["train_pixels"]), ("labels-idx1", content["train_labels"])):
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        with gzip.open(work / f"train-{name}-ubyte.gz", "wb", compresslevel=1) as file:
            file.write(header + array.astype(np.uint8).tobytes())
    (work / "words.json").write_text(json.dumps(content["words"].tolist()))


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/fashion.npz"))
    parser.add_argument("--tasks", nargs="+", choices=tuple(OVERRIDES), default=list(OVERRIDES))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--seconds", type=float, default=1800, help="of all trainings, which run side by side")
    parser.add_argument("--parallel", type=int, default=32, help="trainings at a time")
    parser.add_argument("--test-scenes", type=int, default=TEST_SCENES)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings that differ")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_all(options: argparse.Namespace, work: Path) -> dict[str, list[dict[str, Any]]]:
    """Run all jobs side by side; return the results by task and system."""
    write_items(work, options.data)
    names = [f"{t}/{s}/{seed}" for seed in options.seeds for t in options.tasks for s in options.systems]
    shared = [*("--data", str(options.data), "--work", str(work), "--test-scenes", str(options.test_scenes))]
    shared += ["--set", *options.set] if options.set else []
    deadline = time.monotonic() + options.seconds
    waiting, running, results = list(names), {}, {}
    while waiting or running:
        while waiting and len(running) < options.parallel and time.monotonic() < deadline:
            name = waiting.pop(0)
            log = (work / (name.replace("/", "-") + ".log")).open("w")
            running[name] = subprocess.Popen([sys.executable, __file__, "--job", name, *shared], stdout=log, stderr=log)
        for name, process in list(running.items()):
            if process.poll() is None and time.monotonic() < deadline:
                continue
            if process.poll() is None:
                process.kill()
                process.wait()
            del running[name]
            folder = work / name.replace("/", "-")
            path = folder / "result.json"
            result = json.loads(path.read_text()) if path.exists() else partial_result(folder)
            if process.returncode and "errors" not in result and process.returncode > 0:
                result["log"] = (work / (name.replace("/", "-") + ".log")).read_text()[-1500:]
            results.setdefault(name.rpartition("/")[0], []).append({"seed": int(name.rpartition("/")[2]), **result})
            print(name, result, file=sys.stderr, flush=True)
        if time.monotonic() >= deadline:
            waiting.clear()
        time.sleep(0.2)
    return results


def main() -> int:
    options = parsed_options()
    if options.job:
        return run_job(options)
    with tempfile.TemporaryDirectory() as folder:
        results = run_all(options, Path(folder))
    summary = {
        name: {
            key: mean(run[key] for run in runs)
            for key in ("exact", "pointing", "seconds")
            if all(key in run for run in runs)
        }
        for name, runs in results.items()
    }
    for name, values in summary.items():
        print(f"{name:<24}" + "".join(f"  {key} {value:.4g}" for key, value in values.items()))
    report = {
        "benchmark": "captions",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware("cuda" if torch.cuda.is_available() else "cpu"),
        "versions": {name: version(name) for name in ("torch", "numpy")},
        "settings": options.set,
        "runs": results,
        "summary": summary,
    }
    keep(report, options.out)
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
