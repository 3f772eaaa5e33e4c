"""Does training with 8-bit matrix products pay, and does it learn the same? GPT-2 (124 M) on an H100 or H200.

Five stages, each in a process of its own: casts and products alone; the gradients of two blocks; tokens per second of
regard in fp8 and bf16 and of a plain GPT-2, compiled; and with --only also: the losses of 2,000 steps on a text in both
precisions (curve), and of fewer steps with other roundings (ablations). Prints tables and, as the last line, everything
as one JSON object. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import regard
from benchmarks.timing import Samples, command, hardware, keep, take_turns
from benchmarks.train.train_contenders import Setting
from benchmarks.train.train_fp8_checks import Inspection, check_casts, relative, say, time_kernels, time_products
from benchmarks.train.train_fp8_curves import read_texts, train_curves
from benchmarks.train.train_fp8_heads import HEADS, WithHead, check_output
from benchmarks.train.train_gpu import CELLS
from benchmarks.train.train_gpu_batches import InMemory, chain_batches
from benchmarks.train.train_gpu_contenders import GPT_RECIPE, NanoGPT, Ours, Plain, PlainGPT, copy_gpt_weights
from benchmarks.train.train_gpu_measures import memory_now, memory_peak, one_pass, print_profile
from regard.kernels import fuse
from regard.kernels.devices import runs_triton
from regard.kernels.fp8.enable import all_scales
from regard.models.config import Config
from regard.models.presets import make_model, preset
from regard.tasks.objective import objective
from regard.tasks.precision import autocast
from regard.text.batches.batch import Batch
from regard.training.loop.torch_compile import uncompiled
from regard.training.recipe.schema import TrainingRecipe

STAGES = ("products", "output", "gradients", "speed", "curve", "ablations")
TO_REACH = 1.35  # times the tokens per second of the plain model
CLOSE = 0.01  # of the losses of bf16 and fp8 after the curve
ABLATIONS = "bf16,bf16 again,fp8,fp8/bf16"


def config_of(setting: Setting) -> Config:
    return preset(
        "gpt2", vocabulary=setting.vocabulary, layers=setting.layers, dim=setting.dim, heads=setting.heads,
        hidden=setting.hidden, max_length=setting.length, dropout=setting.dropout,
    )  # fmt: skip


def setting_of(args: argparse.Namespace) -> Setting:
    if args.quick:
        return Setting("gpt2", 2, 32, 2, 64, vocabulary=304, batch_tokens=256, length=32, batches=4, dropout=0.0)
    return CELLS["gpt2"].setting


def recipe_of(precision: str, batch_tokens: int, device: str) -> TrainingRecipe:
    gpu = device == "cuda"
    return replace(GPT_RECIPE, batch_tokens=batch_tokens, precision=precision, compile=gpu, capture=gpu)


# Stage 1


def products_stage(args: argparse.Namespace, device: str) -> dict:
    """Casts, compared with torch's, kernels that cast, and the three products of every layer in bf16 and fp8."""
    setting = setting_of(args)
    tokens, p, d_ff = setting.batch_tokens, setting.dim, setting.hidden
    result: dict = {"casts": check_casts(tokens, p, d_ff, device)}
    if device == "cuda":
        result["kernels"] = time_kernels(tokens, setting.heads, p, d_ff, device)
    layers = {"qkv": (tokens, 3 * p, p), "out": (tokens, p, p), "up": (tokens, d_ff, p), "down": (tokens, p, d_ff)}
    names = args.layers.split(",") if args.layers else []
    result["products"] = {name: time_products(name, *layers[name], device) for name in names}
    return result


def output_stage(args: argparse.Namespace, device: str) -> dict:
    """The casts, then losses and gradients of the output layer with each choice of 8-bit products."""
    setting = setting_of(args)
    result: dict = {"casts": check_casts(setting.batch_tokens, setting.dim, setting.hidden, device)}
    rows = min(setting.batch_tokens, 8192)
    return result | {"output": check_output(rows, setting.dim, setting.vocabulary, device)}


# Stage 2


def gradients_stage(args: argparse.Namespace, device: str) -> dict:
    """The gradients of a model of two blocks in fp8 and bf16, against float32; and the casts of the step."""
    setting = setting_of(args)
    setting = replace(setting, layers=2, batch_tokens=max(setting.length, setting.batch_tokens // 16))
    batch = chain_batches(replace(setting, batches=1), device, fixed=True)[0]
    gradients, losses, casts = {}, {}, []
    for precision in ("fp32", "bf16", "fp8"):
        torch.manual_seed(0)
        model = make_model(config_of(setting)).to(device).train()
        fuse(model, fp8=precision == "fp8")
        for _ in range(3 if precision == "fp8" else 1):  # the second step scales by the magnitudes of the first
            losses[precision] = one_backward(model, batch, precision, device)
        gradients[precision] = {name: weight.grad.float() for name, weight in model.named_parameters()}
        if precision == "fp8" and runs_triton(torch.device(device)):
            casts = inspected(model, batch, device)
    errors = {
        precision: {name: relative(gradients[precision][name], exact) for name, exact in gradients["fp32"].items()}
        for precision in ("bf16", "fp8")
    }
    say(f"losses {losses}")
    for name in errors["fp8"]:
        say(f"{name:50} bf16 {errors['bf16'][name]:.4f}  fp8 {errors['fp8'][name]:.4f}")
    return {"losses": losses, "errors": errors, "casts": casts}


def one_backward(model: nn.Module, batch: Batch, precision: str, device: str) -> float:
    """A step without an update."""
    if (scales := all_scales(model)) is not None:
        scales.start_step()
    model.zero_grad()
    with autocast(torch.device(device), precision):
        loss = objective(model)(model, batch).total / batch.tokens
    loss.backward()
    return loss.item()


def inspected(model: nn.Module, batch: Batch, device: str) -> list[dict]:
    """All casts of a step; print those of the first and the last block."""
    inspection = Inspection(model)
    with uncompiled(), inspection.watching():
        one_backward(model, batch, "fp8", device)
    blocks = sorted({int(name) for row in inspection.rows if (name := row["name"].partition(".")[0]).isdigit()})
    inspection.table({str(blocks[0]), str(blocks[-1])})
    return inspection.rows


# Stage 3


def speed_stage(args: argparse.Namespace, device: str) -> dict:
    """Tokens per second, interleaved; then the kernels of the fp8 step."""
    setting = setting_of(args)
    batches = chain_batches(setting, device, fixed=True)
    contenders, memory = speed_contenders(args, setting, batches, device), {}
    for name, contender in list(contenders.items()):
        began = time.perf_counter()
        try:
            memory_now(contender.device)
            one_pass(contender)
            memory_before = memory_now(contender.device)
            one_pass(contender)
            memory[name] = {key: value - memory_before[key] for key, value in memory_peak(contender.device).items()}
            say(f"{name} ready after {time.perf_counter() - began:.1f} s, loss {contender.look():.4f}")
        except Exception:
            traceback.print_exc(file=sys.stdout)
            say(f"{name} failed")
            del contenders[name]
    runs = {name: lambda contender=contender: one_pass(contender) for name, contender in contenders.items()}
    samples = take_turns(runs, device=device, rounds=args.rounds, budget=0.0)
    tokens = setting.batch_tokens * setting.batches
    result: dict = {name: speed(samples, name, tokens, setting.batches) for name in contenders}
    for name, numbers in result.items():
        ratio = numbers["tokens_per_second"] / result.get("torch", numbers)["tokens_per_second"]
        say(f"{name:20}{numbers['tokens_per_second']:>12,.0f} tokens/s {numbers['ms']:>8.2f} ms/step {ratio:>6.3f}")
    if args.out is not None:
        args.out.with_name(f"{args.out.stem}-speed.json").write_text(json.dumps(result), encoding="utf-8")
    if args.profile and "regard fp8" in contenders:
        print_profile("regard fp8", lambda: one_pass(contenders["regard fp8"]), setting.batches, device)
        sys.stdout.flush()
    return result | {"memory": memory}


def speed_contenders(args: argparse.Namespace, setting: Setting, batches: list[Batch], device: str) -> dict[str, Any]:
    """regard in bf16 and in fp8 with several output layers, the plain model, and nanoGPT's."""
    contenders: dict[str, Any] = {}
    for name in ("bf16", "fp8"):
        torch.manual_seed(0)
        recipe = recipe_of(name, setting.batch_tokens, device)
        contenders[f"regard {name}"] = Ours(config_of(setting), InMemory(batches), recipe, device)
    if not args.without_plain:
        plain = PlainGPT(setting)
        copy_gpt_weights(contenders["regard bf16"].model, plain)
        recipe = recipe_of("bf16", setting.batch_tokens, device)
        contenders["torch"] = Plain(plain, batches, recipe, device, compiled=device == "cuda", ragged=False)
    if args.nanogpt is not None:
        recipe = recipe_of("bf16", setting.batch_tokens, device)
        model = NanoGPT(args.nanogpt, setting)
        contenders["nanoGPT"] = Plain(model, batches, recipe, device, compiled=device == "cuda", ragged=False)
    ours = contenders.pop("regard fp8")
    for head in args.heads.split(","):
        contenders["regard fp8" if head == "8-bit" else f"regard fp8/{head}"] = WithHead(ours, head)
    return contenders


def speed(samples: Samples, name: str, tokens: int, steps: int) -> dict:
    seconds = samples.median(name)
    return {"tokens_per_second": tokens / seconds, "ms": 1e3 * seconds / steps, "seconds": samples.seconds[name]}


# Stage 4


def curve_stage(args: argparse.Namespace, device: str) -> dict:
    """The losses of both precisions, from the same weights on the same windows of a text."""
    steps, rows = (20, 4) if args.quick else (args.steps, args.rows)
    return losses_of(args.precisions, args, device, steps, rows)


def ablations_stage(args: argparse.Namespace, device: str) -> dict:
    """The losses with other products of 8 bits, or with the layers of the blocks rounded in other ways."""
    steps, rows = (20, 4) if args.quick else (args.ablation_steps, args.rows)
    return losses_of(args.ablations, args, device, steps, rows)


def losses_of(names: str, args: argparse.Namespace, device: str, steps: int, rows: int) -> dict:
    setting = setting_of(args)
    texts = read_texts(args.text, setting.vocabulary)
    recipe = replace(recipe_of("fp8", rows * setting.length, device), compile=args.compile and device == "cuda")
    out = args.out and args.out.with_name(f"{args.out.stem}-{args.alone}.json")
    return train_curves(
        names.split(","), setting, config_of(setting), recipe, texts, device,
        steps=steps, rows=rows, until=args.until, out=out,
    )  # fmt: skip


RUN = {"products": products_stage, "gradients": gradients_stage, "speed": speed_stage, "curve": curve_stage}
RUN |= {"output": output_stage, "ablations": ablations_stage}


def in_own_process(stage: str, until: float) -> dict | None:
    """The result of a stage in a process of its own, which ends at `until`; what it prints appears at once."""
    process = subprocess.Popen(
        [sys.executable, "-u", __file__, *sys.argv[1:], "--alone", stage, "--until", str(until)],
        stdout=subprocess.PIPE,
        text=True,
    )
    timer = threading.Timer(max(0.0, until - time.time()), process.kill)
    timer.start()
    last = ""
    assert process.stdout is not None
    for line in process.stdout:
        if last:
            say(last)
        last = line.rstrip("\n")
    code = process.wait()
    timer.cancel()
    if code or not last.startswith("{"):
        say(f"{last}\nstage {stage} failed with exit status {code}")
        return None
    return json.loads(last)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="products,gradients,speed", metavar="STAGES", help=",".join(STAGES))
    parser.add_argument("--layers", default="qkv,out,up,down", help="whose products are measured alone")
    parser.add_argument("--without-plain", action="store_true", help="no plain GPT-2 beside")
    parser.add_argument("--nanogpt", type=Path, metavar="FILE", help="nanoGPT's model.py: one more peer of the speed")
    parser.add_argument("--heads", default="8-bit,bf16", metavar="NAMES", help=f"output layers: {', '.join(HEADS)}")
    parser.add_argument("--ablations", default=ABLATIONS, metavar="NAMES", help="bf16, fp8/HEAD, or a rounding")
    parser.add_argument("--ablation-steps", type=int, default=300)
    parser.add_argument("--text", type=Path, metavar="PATH", help="the text of the curve: a file, or a folder of files")
    parser.add_argument("--compile", action="store_true", help="compile the models of the curve")
    parser.add_argument("--seconds", type=float, default=3600.0, help="end after this time; the curve ends earlier")
    parser.add_argument("--precisions", default="bf16,fp8", help="of the curve: bf16, fp8, fp8/HEAD")
    parser.add_argument("--steps", type=int, default=2000, help="of the curve")
    parser.add_argument("--rows", type=int, default=8, help="windows of 1,024 tokens in a batch of the curve")
    parser.add_argument("--rounds", type=int, default=4, help="samples of each contender")
    parser.add_argument("--profile", action="store_true", help="the kernels that take most time")
    parser.add_argument("--quick", action="store_true", help="toy sizes on the CPU, seconds: does it run?")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON object here too")
    parser.add_argument("--alone", metavar="STAGE", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(STAGES):
        parser.error(f"--only {','.join(sorted(unknown))}: the stages are {','.join(STAGES)}")
    if not args.quick and not torch.cuda.is_available():
        print("torch sees no CUDA device here, so this is --quick: toy sizes, which prove nothing")
        args.quick = True
    return args


def main() -> int:
    args = arguments()
    device = "cpu" if args.quick else "cuda"
    if args.alone:
        args.until -= 8.0  # to finish
        print(json.dumps(RUN[args.alone](args, device)))
        return 0
    report = {"benchmark": "train_fp8", "command": command(), "hardware": hardware(device)}
    report["versions"] = {"python": sys.version.split()[0], "torch": torch.__version__, "regard": regard.__version__}
    say(report["hardware"], report["versions"])
    stages, began = {}, time.time()
    for stage in args.only:
        say(f"\n== {stage} ({time.time() - began:.0f} s)")
        stages[stage] = in_own_process(stage, began + args.seconds)
        keep(report | {"stages": stages}, args.out)
    speeds = stages.get("speed") or {}
    for peer in ("torch", "nanoGPT"):
        if "regard fp8" in speeds and peer in speeds:
            ratio = speeds["regard fp8"]["tokens_per_second"] / speeds[peer]["tokens_per_second"]
            report[f"ratio to {peer}"] = ratio
            say(f"\nfp8 against {peer}: {ratio:.3f}, to reach {TO_REACH}")
    print(json.dumps(report | {"stages": stages}))
    return int(None in stages.values())


if __name__ == "__main__":
    sys.exit(main())
