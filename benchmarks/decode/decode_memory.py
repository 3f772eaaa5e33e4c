"""Does the memory of `regard translate` stay flat on a long file, and below that of transformers?

Each runs in a process of its own, greedy, on lines of the demo corpus or of a file. transformers has a Marian model of
the same size with random weights and translates 64 lines at a time.
Prints a table and, as the last line, everything as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path

import regard
from benchmarks.timing import command, hardware, keep
from regard.api.model_names import find_model
from regard.demo.corpus import demo_pairs
from regard.models.folder import read_config
from regard.text.files.lines import read_lines
from regard.text.tokenizers.special_tokens import END, PAD, START, pad_batch
from regard.text.tokenizers.tokenizer import read_tokenizers

ROOT = Path(__file__).resolve().parents[2]
SIZES, QUICK_SIZES = (4_000, 20_000), (100, 300)  # the first is more than what is held at once
PEER_LINES, QUICK_PEER_LINES = 2_000, 128
DRAWN = 2_000  # lines that the file repeats
TOGETHER = 64  # lines that transformers translates together
GROWTH = 1.05  # of the peak from the shortest to the longest file: more is not flat
TELL_PEAK = (
    "import atexit, sys; "
    "peak = lambda: next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')); "
    "atexit.register(lambda: print(peak(), file=sys.stderr)); "
)
RUN = "from regard.cli import main; sys.argv[0] = 'regard'; main()"
LOAD = {"regard": "import regard.tasks.loading", "transformers": "from transformers import MarianMTModel"}


def measure(command: Sequence[str], output: Path, wanted: int | None = None) -> dict[str, float]:
    """Seconds and peak memory of a process that writes so many lines."""
    start = time.perf_counter()
    with output.open("w") as file:
        done = subprocess.run([sys.executable, *command], stdout=file, stderr=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - start
    with output.open("rb") as file:
        written = sum(1 for _ in file)
    if done.returncode or (wanted is not None and written != wanted):
        raise RuntimeError(f"{command}: {done.returncode}, {written} lines, {done.stderr}")
    return {"seconds": round(seconds, 2), "peak_bytes": int(done.stderr.split()[-1]) * 1024}


def translate_by_transformers(model: str, file: str) -> None:
    """What measure() runs for transformers: a Marian model of the same size, 64 lines at a time in their order."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    folder = find_model(model)
    source, target = read_tokenizers(folder)
    size = read_config(folder)["model"]
    sides = ("encoder", "decoder")
    peer = MarianMTModel(
        MarianConfig(
            vocab_size=target.size,
            d_model=size["dim"],
            **{f"{side}_layers": size["layers"] for side in sides},
            **{f"{side}_attention_heads": size["heads"] for side in sides},
            **{f"{side}_ffn_dim": size["hidden"] for side in sides},
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
        )
    ).eval()
    with open(file, encoding="utf-8") as lines, torch.inference_mode():
        while some := list(islice(lines, TOGETHER)):
            tokens = pad_batch([[*source.encode(line.rstrip("\n")), END] for line in some], pad_id=PAD)
            # Random weights know no end: as many tokens as the longest source has.
            texts = peer.generate(tokens, attention_mask=tokens != PAD, num_beams=1, max_new_tokens=tokens.shape[1])
            for text in texts.tolist():
                sys.stdout.write(target.decode(text).replace("\n", " ") + "\n")


def write_lines(path: Path, texts: Sequence[str], count: int) -> Path:
    path.write_text("".join(f"{text}\n" for text in islice(cycle(texts), count)), encoding="utf-8")
    return path


def measure_all(args: argparse.Namespace, sizes: Sequence[int], peer_lines: int) -> list[dict[str, object]]:
    """A cell for each process."""
    drawn = min(DRAWN, max(sizes))
    texts = [pair.source for pair in demo_pairs("test", drawn)] if args.text is None else list(read_lines(args.text))
    cells: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out.txt"

        def add(who: str, lines: int, command: Sequence[str]) -> None:
            cells.append({"who": who, "lines": lines, **measure(command, output, lines or None)})
            cell = cells[-1]
            print(f"{who:<14}{lines:>9,}{cell['seconds']:>9}{float(str(cell['peak_bytes'])) / 1e6:>9.0f}", flush=True)

        peers = [name for name in LOAD if importlib.util.find_spec(name)]
        for name in peers:
            add(name, 0, ["-c", TELL_PEAK + LOAD[name]])
        for lines in sizes:
            file = write_lines(Path(folder) / f"{lines}.txt", texts, lines)
            options = [
                "translate",
                "-m",
                args.model,
                "--device",
                "cpu",
                "--dtype",
                args.dtype,
                "--beam",
                "1",
                str(file),
            ]
            add("regard", lines, ["-c", TELL_PEAK + RUN, *options])
        if "transformers" in peers:
            file = write_lines(Path(folder) / "peer.txt", texts, peer_lines)
            code = "from benchmarks.decode.decode_memory import translate_by_transformers; "
            code += f"translate_by_transformers({args.model!r}, {str(file)!r})"
            add("transformers", peer_lines, ["-c", f"{TELL_PEAK}sys.path.insert(0, {str(ROOT)!r}); {code}"])
    return cells


def judge(cells: Sequence[dict[str, object]]) -> dict[str, object]:
    """How much the peak grows with the file, and what share of the peer's it is."""
    ours = [float(str(cell["peak_bytes"])) for cell in cells if cell["who"] == "regard" and cell["lines"]]
    theirs = [float(str(cell["peak_bytes"])) for cell in cells if cell["who"] == "transformers" and cell["lines"]]
    growth, share = ours[-1] / ours[0], max(ours) / theirs[0] if theirs else None
    return {
        "growth": round(growth, 3),
        "of_transformers": None if share is None else round(share, 3),
        "flat": growth <= GROWTH,
        "below": None if share is None else share < 1,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, help=f"of the longest file, {SIZES[-1]:,} when not given")
    parser.add_argument("--text", type=Path, help="a file whose lines are repeated, in place of the demo corpus")
    parser.add_argument("--model", default="fr-en", help="a Transformer: folder or shipped name")
    parser.add_argument("--dtype", default="float32", help="of regard; transformers has float32")
    parser.add_argument("--quick", action="store_true", help="short files, seconds: does it run?")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a target is missed")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    args = parser.parse_args()
    sizes = list(QUICK_SIZES if args.quick else SIZES)
    sizes[-1] = args.lines or sizes[-1]
    packages = ("torch", "transformers", "sentencepiece")
    report: dict[str, object] = {
        "benchmark": "decode_memory",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "hardware": hardware("cpu"),
        "versions": {
            "python": sys.version.split()[0],
            "regard": regard.__version__,
            **{name: version(name) for name in packages if importlib.util.find_spec(name)},
        },
    }
    print(report["hardware"], report["versions"], sep="\n")
    print("\n                  lines  seconds  peak MB")
    report["cells"] = cells = measure_all(args, sizes, QUICK_PEER_LINES if args.quick else PEER_LINES)
    report["summary"] = summary = judge(cells)
    print(f"\npeak of the longest file over that of the shortest: {summary['growth']} (flat: at most {GROWTH})")
    print(f"peak over that of transformers: {summary['of_transformers']}")
    keep(report, args.out)
    print(json.dumps(report))
    return int(args.check and not (summary["flat"] and summary["below"]))


if __name__ == "__main__":
    sys.exit(main())
