"""Golden facts: what regard computes and offers, recorded once and compared ever after.

    python tests/golden/facts.py                  compare all groups with the recorded files, print each difference
    python tests/golden/facts.py training names   compare these groups only
    python tests/golden/facts.py --short          compare all groups, without some facts of the shipped models
    python tests/golden/facts.py --record names   record these groups again

The facts are reached through public names, the command line, recipes and model folders only, so they survive any move
of the code inside the package. The groups:

    training   losses, gradient norms and final weights of short CPU runs of every kind of model
    models     outputs, gradients and searches of small untrained models with many combinations of settings; attention
    shipped    translations, scores, samples, alignments and traces of the shipped models
    folders    outputs of the model folders of format 1, and what saving them again writes
    names      the public names with their signatures
    help       the help text of every command (help.txt)

Rules for recording. Public names and help texts change on purpose now and then: record them again, and the diff of
facts.json and help.txt shows the change to the reviewer. Numbers are never recorded again to make a change pass: a
number that differs is a change of behaviour, and the change must be mended or must be the purpose of the commit.

Numbers agree to the last bit only on the same kind of CPU with the same version of PyTorch. facts.json holds the
environment in which each group was recorded. In another environment, numbers are compared with a relative tolerance of
1e-4 (1e-2 for bfloat16, 1e-1 for int8), checksums are not compared, and of a help text only the options are.
comparison.py has the rules.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# One thread, and a terminal that is the same everywhere; PyTorch, Typer and Rich read these when they are imported.
os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg"}
os.environ |= {"COLUMNS": "100", "LINES": "50", "TERM": "dumb", "NO_COLOR": "1"}
for variable in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "RANK", "WORLD_SIZE"):
    os.environ.pop(variable, None)
for variable in [name for name in os.environ if name.startswith(("REGARD_", "TYPER_", "_TYPER_"))]:
    del os.environ[variable]
sys.path.insert(0, str(ROOT))  # the package of this checkout, whichever is installed

import argparse  # noqa: E402
import hashlib  # noqa: E402
import importlib.metadata  # noqa: E402
import json  # noqa: E402
import platform  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
from typing import Any  # noqa: E402

import comparison  # noqa: E402

JSON, HELP = HERE / "facts.json", HERE / "help.txt"
NUMBERS = ("torch", "cpu capability", "machine", "cpu", "mkl", "threads", "compiler", "sentencepiece", "safetensors")
OTHER_WAYS = ("by regard.load", "command line")  # left out by --short
# The parts of the environment that the facts of a group depend on.
DEPENDS_ON = {
    "training": NUMBERS,
    "models": NUMBERS,
    "shipped": NUMBERS,
    "folders": NUMBERS,
    "names": (),
    "help": ("typer", "rich", "click"),
}


def environment() -> dict[str, Any]:
    """Everything that may change the last bit of a number or the layout of a help text."""
    import torch

    torch.set_num_threads(1)
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout if compiler else "none"
    packages = ("sentencepiece", "safetensors", "typer", "rich", "click")
    return {
        "torch": torch.__version__,
        "cpu capability": torch.backends.cpu.get_cpu_capability(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu": cpu(),
        "mkl": torch.backends.mkl.is_available(),
        "threads": torch.get_num_threads(),
        "compiler": version.partition("\n")[0],
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def cpu() -> str:
    """The model of the CPU and a digest of its instruction sets, which PyTorch and MKL choose kernels by."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    fields = dict(reversed([map(str.strip, line.split(":", 1)) for line in lines if ":" in line]))
    flags = fields.get("flags", fields.get("Features", ""))
    return f"{fields.get('model name', '')} {hashlib.sha256(flags.encode()).hexdigest()[:12]}"


def compute(group: str, *, short: bool) -> dict[str, Any]:
    """The facts of a group, by name; if `short`, without some of the shipped models."""
    if group == "training":
        from training_facts import training_facts as facts
    elif group == "models":
        from model_facts import model_facts as facts
    elif group == "shipped":
        from shipped_facts import shipped_facts

        return shipped_facts(short=short)
    elif group == "folders":
        from folder_facts import folder_facts as facts
    elif group == "names":
        from interface_facts import name_facts as facts
    else:
        from interface_facts import help_facts as facts
    return facts()


def read_recorded() -> dict[str, Any]:
    """The recorded files as one dictionary: environments and facts, by group."""
    recorded = json.loads(JSON.read_text(encoding="utf-8")) if JSON.exists() else {"environments": {}, "facts": {}}
    if HELP.exists():
        sections = HELP.read_text(encoding="utf-8").split("\n$ ")[1:]
        recorded["facts"]["help"] = {name: text.split("\n") for name, _, text in (s.partition("\n") for s in sections)}
    return recorded


def write_recorded(recorded: dict[str, Any]) -> None:
    texts = recorded["facts"].pop("help", {})
    HELP.write_text("\n".join(["", *(f"$ {name}\n" + "\n".join(lines) for name, lines in texts.items())]), "utf-8")
    JSON.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"one of {', '.join(DEPENDS_ON)}; default: all")
    parser.add_argument("--record", action="store_true", help="record the facts instead of comparing them")
    parser.add_argument(
        "--short", action="store_true", help="leave out `regard.load` and the commands of shipped models"
    )
    options = parser.parse_args()
    if options.record and options.short:
        parser.error("--record needs all facts, so it cannot be combined with --short")
    if unknown := set(options.groups) - set(DEPENDS_ON):
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(DEPENDS_ON)}")
    groups = options.groups or list(DEPENDS_ON)
    here = environment()
    # Through JSON, so that what is compared went the same way as what was recorded.
    computed = {
        group: json.loads(json.dumps(compute(group, short=options.short), ensure_ascii=False)) for group in groups
    }
    recorded = read_recorded()
    if options.record:
        recorded["facts"] |= computed
        recorded["environments"] |= {group: {name: here[name] for name in DEPENDS_ON[group]} for group in groups}
        for part in ("facts", "environments"):  # in the order of the table above, whatever was recorded first
            recorded[part] = {group: recorded[part][group] for group in DEPENDS_ON if group in recorded[part]}
        write_recorded(recorded)
        return 0
    if options.short and "shipped" in groups:
        shipped = recorded["facts"]["shipped"]
        recorded["facts"]["shipped"] = {name: fact for name, fact in shipped.items() if not name.endswith(OTHER_WAYS)}
    return report(groups, here, computed, recorded)


def report(groups: list[str], here: dict[str, Any], computed: dict[str, Any], recorded: dict[str, Any]) -> int:
    """Print every difference between computed and recorded facts -> the exit code."""
    failed = 0
    for group in groups:
        if group not in recorded["facts"]:
            print(f"{group}: not recorded")
            failed = 1
            continue
        before = recorded["environments"][group]
        changed = [
            f"{name}: {before[name]} -> {here[name]}" for name in DEPENDS_ON[group] if before[name] != here[name]
        ]
        differences = comparison.compare(group, recorded["facts"][group], computed[group], exact=not changed)
        how = f"with tolerance, because the environment changed ({'; '.join(changed)})" if changed else "exactly"
        count = comparison.count_facts(computed[group])
        print(f"{group}: {count} facts compared {how}, {len(differences)} differ")
        print("".join(f"  {difference}\n" for difference in differences), end="")
        failed |= bool(differences)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
