"""The explorer as its user has it: installed from a wheel, without Node, and models of every kind behind it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

TEXTS = ["Jane visite l'Afrique en septembre.", "le chat noir dort", "Jane visits Africa.", "the black cat sleeps"]
WATCHDOG = 180  # seconds for the models to load; nothing is measured by it
ROOT = Path(__file__).parents[2]


def expect_address(page: Any, *parts: str) -> None:
    """Wait until the address of a page contains these texts: it follows the state of the page a moment later."""
    from playwright.sync_api import expect

    for part in parts:
        expect(page).to_have_url(re.compile(re.escape(part)))


def expect_address_without(page: Any, part: str) -> None:
    """Wait until the address of a page does not contain this text."""
    from playwright.sync_api import expect

    expect(page).not_to_have_url(re.compile(re.escape(part)))


@dataclass
class Explorer:
    """A running `regard explore`.

    Models: `fr-en` (shipped, the default), `shakespeare` (shipped, loaded when first asked), and small ones with random
    weights: `small-rnn` (recurrent, with attention), `no-attention` (recurrent, without), `small-encoder`, `learned`
    (a Transformer with learned positions), `small-pictures` (a classifier of the demo images), and `small-lines` (a
    forecaster of the demo series).
    """

    address: str  # http://127.0.0.1:PORT, without a slash at the end
    process: subprocess.Popen[str]

    def get(self, path: str) -> Any:
        with urlopen(f"{self.address}{path}", timeout=WATCHDOG) as answer:
            return json.load(answer)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        with urlopen(Request(f"{self.address}{path}", content, headers), timeout=WATCHDOG) as answer:
            return json.load(answer)

    def wait_for(self, *names: str) -> None:
        """Until these models are loaded."""
        end = time.monotonic() + WATCHDOG
        while time.monotonic() < end:
            states = {model["name"]: model["state"] for model in self.get("/api/models")["models"]}
            if all(states[name] == "ready" for name in names):
                return
            assert "failed" not in states.values(), states
            time.sleep(0.05)
        raise AssertionError(f"not loaded in {WATCHDOG} s: {states}")


def make_folders(place: Path) -> list[Path]:
    """Small models with random weights; those of images and series bring the demo data along as examples."""
    import torch

    from regard.api.arrays.forecaster import Forecaster
    from regard.api.arrays.image_classifier import ImageClassifier
    from regard.demo.images import SHAPES
    from regard.demo.series import COLUMNS
    from regard.models.config import (
        EncoderConfig,
        ForecasterConfig,
        ImageClassifierConfig,
        RecurrentTranslatorConfig,
        TransformerConfig,
    )
    from regard.models.folder import save_model
    from regard.models.presets import make_model
    from regard.text.tokenizers.labels import train_labels
    from regard.text.tokenizers.subwords import train_subwords
    from regard.text.tokenizers.tokenizer import tokenizer_files

    tokenizer = train_subwords(TEXTS, size=None, kind="unigram", lossless=False)
    sides = {"source_vocabulary": tokenizer.size, "target_vocabulary": tokenizer.size}
    stack: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 2, "hidden": 24}
    configs: dict[str, Any] = {
        "small-rnn": RecurrentTranslatorConfig(embedding=8, hidden=12, **sides),
        "no-attention": RecurrentTranslatorConfig(embedding=8, hidden=12, attention="none", **sides),
        "small-encoder": EncoderConfig(**stack, vocabulary=tokenizer.size),
        "learned": TransformerConfig(**stack, **sides, position="learned", max_length=64),
    }
    folders = []
    for seed, (name, config) in enumerate(configs.items()):
        torch.manual_seed(seed)
        model = make_model(config)
        folders.append(save_model(model, place / name, files=tokenizer_files(tokenizer, tokenizer)))
    labels = train_labels(list(SHAPES))
    demo = {"recipe": {"data": {"demo": 100}}}
    sizes = {"height": 28, "width": 28, "channels": 1, "patch": 7, "max_length": 17}
    pictures = make_model(ImageClassifierConfig(**stack, **sizes, vocabulary=labels.size))
    folders.append(ImageClassifier(pictures, labels, info=demo).save(place / "small-pictures"))
    lines = make_model(ForecasterConfig(**stack, lookback=48, horizon=12, patch=8, stride=4, max_length=12))
    info = {**demo, "series": {"columns": list(COLUMNS), "mean": [20.0] * 3, "deviation": [5.0] * 3}}
    folders.append(Forecaster(lines, info=info).save(place / "small-lines"))
    return folders


def install_wheel(place: Path) -> Path:
    """Build the wheel and install it into an environment of its own; the folder of its programs.

    What regard needs is taken from this environment, so that nothing is downloaded; regard itself is not.
    """
    quiet: dict[str, Any] = {"check": True, "capture_output": True, "cwd": ROOT, "timeout": WATCHDOG}
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place], **quiet)
    (wheel,) = place.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "environment"], **quiet)
    programs = place / "environment" / ("Scripts" if sys.platform == "win32" else "bin")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", programs / "python"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel], **quiet)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    there = subprocess.run([programs / "python", "-c", ask], **quiet).stdout.decode().strip()
    # A line of a .pth file is searched after the folder that the file lies in, and .pth files are not looked for there.
    (Path(there) / "needed.pth").write_text(sysconfig.get_path("purelib"))
    return programs


def start_explorer(programs: Path, *arguments: str | Path) -> Explorer:
    """Start the command of an installation, where nothing but its programs can be found, and wait for its address."""
    command = [programs / "regard", "explore", "--port", "0", "--no-browser", *map(str, arguments)]
    environment = {"PATH": str(programs), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=programs, env=environment)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:"), (address, process.poll())
    return Explorer(address.rstrip("/"), process)


def stop_explorer(explorer: Explorer) -> int:
    """End it as Ctrl-C does, and say with which exit code it ended."""
    explorer.process.send_signal(signal.SIGINT)
    return explorer.process.wait(WATCHDOG)
