"""How long does the first translation take in a new process? Wall and CPU time of `regard translate` and its phases.

Each contender runs in processes of its own, one after the other in each round. `import torch` alone is the floor of
every program that uses PyTorch. `regard translate` does not import it (decoding/cpu/folder_model.py); it is also
measured with torch imported first, as for searches that C does not implement. CTranslate2 has a model of the same size
with random weights and generates eight tokens; it imports torch if that is installed, so it is also measured with torch
hidden. Target: `regard translate` takes less than 1.0 s on two idle cores.
Prints three tables and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch

import regard
from benchmarks.decode.decode_peers import Setting, make_model, write_ctranslate2
from benchmarks.timing import command, hardware, keep
from regard.api.model_names import find_model

TEXT = "Jane visite l'Afrique en septembre"
TARGET_SECONDS = 1.0
PEER = Setting("fr-en", layers=5, dim=256, heads=8, hidden=1024, vocabulary=8_000, length=8)
PHASES = ("Python", "command line", "torch", "regard", "load", "first text", "second text")
SHELL, WITH_TORCH = "regard translate", "regard translate, torch first"

# The phases of `regard translate`, in its order, with or without torch. Prints wall and CPU seconds of each.
PHASES_SCRIPT = """
import json, os, sys, time
marks = [(time.time() - float(sys.argv[1]), time.process_time())]
mark = lambda: marks.append((time.time() - float(sys.argv[1]), time.process_time()))
import typer.main
from regard import cli
typer.main.get_command(cli.make_app("translate")); mark()
if sys.argv[3] == "torch":
    from regard.cli.shared.torch_import import import_torch
    import_torch()
mark()
from regard.tasks.loading import load
if sys.argv[3] == "torch":
    import regard.tasks.translation, regard.decoding.cpu.quantize, regard.models.folder.loading
mark()
translator = load("fr-en", device="cpu"); mark()
translator.translate(sys.argv[2]); mark()
translator.translate(sys.argv[2]); mark()
before = [(0.0, 0.0), *marks]
print(json.dumps([[b - a for a, b in zip(*pair)] for pair in zip(before, marks)]))
"""
TORCH_SCRIPT = """
import sys
from regard.cli.shared.torch_import import import_torch
import_torch()
from regard.__main__ import run
sys.argv[0] = "regard"
run()
"""
PYTHON_SCRIPT = "import sys, regard; print(regard.load('fr-en').translate(sys.argv[1]).text)"
PEER_SCRIPT = """
import sys
if sys.argv[4] == "hidden":
    sys.modules["torch"] = None
import ctranslate2, sentencepiece
folder, tokenizer, text = sys.argv[1:4]
pieces = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
translator = ctranslate2.Translator(folder, device="cpu", compute_type="int8", intra_threads=2)
tokens = ["t%d" % token for token in pieces.encode(text)]
output = translator.translate_batch([tokens], beam_size=5, max_decoding_length=8)[0].hypotheses[0]
print(pieces.decode([int(name[1:]) for name in output if name[1:].isdecimal()]))
"""


def make_contenders(folder: Path) -> dict[str, list[str]]:
    """Return the arguments of Python for each contender; CTranslate2's model is written to the folder."""
    contenders = {
        "python -c pass": ["-c", "pass"],
        "import torch": ["-c", "import torch"],
        SHELL: ["-m", "regard", "translate", "-t", TEXT],
        WITH_TORCH: ["-c", TORCH_SCRIPT, "translate", "-t", TEXT],
        "regard.load": ["-c", PYTHON_SCRIPT, TEXT],
    }
    if importlib.util.find_spec("ctranslate2") is None:
        print("CTranslate2 is not installed, so it is not measured.")
        return contenders
    write_ctranslate2(make_model(PEER), PEER, folder)
    peer = ["-c", PEER_SCRIPT, str(folder), str(find_model("fr-en") / "tokenizer.model"), TEXT]
    return contenders | {"CTranslate2": [*peer, "visible"], "CTranslate2, torch hidden": [*peer, "hidden"]}


def run_process(arguments: list[str]) -> tuple[float, float, str]:
    """Return the wall and CPU seconds of a Python process, and its output."""
    before, start = os.times(), time.perf_counter()
    output = subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout
    seconds, after = time.perf_counter() - start, os.times()
    children = after.children_user - before.children_user + after.children_system - before.children_system
    return seconds, children, output


def measure(
    contenders: dict[str, list[str]], rounds: int
) -> tuple[dict[str, dict], dict[str, list[list[list[float]]]]]:
    """Return wall and CPU seconds of each contender and round, and of each phase and round with and without torch."""
    seconds: dict[str, dict] = {name: {"wall": [], "cpu": []} for name in contenders}
    phases: dict[str, list[list[list[float]]]] = {SHELL: [], WITH_TORCH: []}
    for number in range(rounds + 1):  # the first one only fills the disk cache and writes bytecode
        for name, arguments in contenders.items():
            wall, cpu, _ = run_process(arguments)
            if number:
                seconds[name]["wall"].append(wall)
                seconds[name]["cpu"].append(cpu)
        for name, kind in ((SHELL, "C"), (WITH_TORCH, "torch")):
            _, _, output = run_process(["-c", PHASES_SCRIPT, repr(time.time()), TEXT, kind])
            if number:
                phases[name].append(json.loads(output))
    return seconds, phases


def print_tables(seconds: dict[str, dict], phases: dict[str, list[list[list[float]]]]) -> None:
    print(f"\n{'medians, in seconds':32}{'wall':>8}{'CPU':>8}{'CPU / import torch':>20}")
    for name, sample in seconds.items():
        ratio = cpu_ratio(seconds, name, "import torch")
        print(f"{name:32}{median(sample['wall']):>8.2f}{median(sample['cpu']):>8.2f}{ratio:>20.2f}")
    for command_name, rounds in phases.items():
        print(f"\n{command_name + ':':32}{'wall':>8}{'CPU':>8}")
        for name, values in zip(PHASES, zip(*rounds, strict=True), strict=True):
            wall, cpu = (median(value) for value in zip(*values, strict=True))
            print(f"{name:32}{wall:>8.3f}{cpu:>8.3f}")


def cpu_ratio(seconds: dict[str, dict], name: str, other: str) -> float:
    """Return the median over the rounds of the ratio of CPU times, in which slowdowns of the machine cancel out."""
    return median(a / b for a, b in zip(seconds[name]["cpu"], seconds[other]["cpu"], strict=True))


def make_summary(seconds: dict[str, dict], *, busy: bool) -> dict[str, object]:
    wall = median(seconds[SHELL]["wall"])
    return {
        "met": None if busy else wall < TARGET_SECONDS,
        "busy": busy,
        "wall": wall,
        "cpu": median(seconds[SHELL]["cpu"]),
        "cpu_ratio": {
            name: cpu_ratio(seconds, SHELL, name) for name in seconds if name not in (SHELL, "python -c pass")
        },
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, help="processes of each contender (default: 9; quick: 1)")
    parser.add_argument("--quick", action="store_true", help="one round: tests that it runs")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if missed or if the machine is busy")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object to this file too")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    machine = hardware("cpu")
    names = ("typer", "sentencepiece", *(["ctranslate2"] if importlib.util.find_spec("ctranslate2") else []))
    report = {
        "benchmark": "cold_start",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": machine,
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "regard": regard.__version__,
            **{name: version(name) for name in names},
        },
    }
    print(report["hardware"], report["versions"], sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        seconds, phases = measure(make_contenders(Path(folder)), args.rounds or (1 if args.quick else 9))
    print_tables(seconds, phases)
    busy = machine["load"] > machine["cores"] / 4
    if busy:
        print("\nThe machine was busy with other work: compare CPU times, and their ratios to `import torch`.")
    report |= {"seconds": seconds, "phases": {"names": PHASES, "rounds": phases}}
    report["summary"] = make_summary(seconds, busy=busy)
    keep(report, args.out)
    print(json.dumps(report))
    return 1 if args.check and report["summary"]["met"] is not True else 0


if __name__ == "__main__":
    sys.exit(main())
