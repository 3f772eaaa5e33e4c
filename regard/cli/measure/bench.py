"""`regard bench`: measure the throughput of a model on this machine and compare it with the hardware limit.

With --attention: measure from which length on random features are faster than exact attention.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.measure.evaluate import tracked
from regard.cli.model_folders.info import size_text
from regard.cli.shared.model_options import DEFAULT_MODEL, Device, Dtype, Model, Threads, plain_warnings, read_text
from regard.errors import DataError, UsageError
from regard.machine import set_threads

if TYPE_CHECKING:
    from regard.api.translator import Translator
    from regard.api.writer import Writer
    from regard.decoding.benchmark import Measured

SOURCE_TOKENS, TOKENS = 21, 24


def bench_model(
    model: Model = DEFAULT_MODEL,
    batch: Annotated[int, typer.Option(min=1, help="Batch size in texts.")] = 32,
    beam: Annotated[int, typer.Option(min=1, help="Beam width; 1 is greedy search.")] = 1,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1, show_default=f"{TOKENS}; with --file, until the end", help="Generate exactly this many per text."
        ),
    ] = None,
    source_tokens: Annotated[
        int | None,
        typer.Option(min=1, show_default=str(SOURCE_TOKENS), help="Length of the random sources or prompts."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="File with sources or prompts, one per line, instead of random ones.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Number of batches to time, and of single texts.")] = 20,
    threads: Threads = None,
    attention: Annotated[
        bool,
        typer.Option("--attention", help="Compare exact attention with random features by length; needs no model."),
    ] = False,
    table: Annotated[
        Path | None,
        typer.Option(show_default="in the user's folder", help="With --attention: file for the measurements."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with the time of each run.")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Measure the throughput, latency and memory of a model, and compare a step with the memory-bandwidth limit.

    Speed is the median throughput of whole batches. Latency is that of single texts: the median, and the 90th and 99th
    percentile.

    The floor is the time in which this machine can read the weights of one decoder step, at the bandwidth measured by
    summing as many bytes with the same threads. The share is the floor divided by the time of a step for a single text
    with its whole beam.

    --attention measures the lengths from which on random features are faster than exact attention, and updates the
    table that `regard convert` uses. It accepts --device, --threads, --table and --json.

    Examples:
      regard bench -m runs/mine --batch 1 --beam 5 --threads 2
      regard bench --attention
    """
    if file is not None and source_tokens is not None:
        raise UsageError("--source-tokens is the length of random sources: pass it or --file, not both")
    set_threads(threads)
    if attention:
        bench_attention(device, table, as_json=as_json)
        return
    if table is not None:
        raise UsageError("--table is the file for the measurements of --attention: pass both or neither")
    face = load_generator(model, device, dtype)
    import torch

    from regard.decoding.benchmark import measure_decoding, random_inputs
    from regard.decoding.searches.beam import Beam
    from regard.decoding.searches.greedy import Greedy
    from regard.decoding.searches.logit_rules import MinTokens
    from regard.models.protocols import config_of

    with plain_warnings():
        if file is None:
            tokens = TOKENS if tokens is None else tokens
            inputs = random_inputs(face.decoding_model, batch * runs, source_tokens or SOURCE_TOKENS)
        else:
            inputs = read_inputs(face, file, batch * runs)
        rules = () if tokens is None else (MinTokens(tokens),)
        measured = measure_decoding(
            face.decoding_model,
            inputs,
            search=Greedy(rules=rules) if beam == 1 else Beam(beam, rules=rules),
            max_tokens=[default_max_tokens(face, ids) for ids in inputs] if tokens is None else tokens,
            batch=batch,
            runs=runs,
            watch=lambda numbers: tracked(numbers, "measuring"),
        )
    weights = list(face.model.parameters())
    workload = {
        "model": model,
        "kind": config_of(face.model).kind,
        "parameters": sum(weight.numel() for weight in weights),
        "device": str(weights[0].device),
        "dtype": dtype if dtype != "auto" else str(weights[0].dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "beam": beam,
        "runs": runs,
        "source_tokens": sum(map(len, inputs)) / len(inputs),
        "tokens_per_text": sum(measured.tokens) / (batch * runs),
    }
    typer.echo(json.dumps({**workload, **measured.to_dict()}) if as_json else report(workload, measured))


def bench_attention(device: str, table: Path | None, *, as_json: bool) -> None:
    """Measure exact attention and random features by length; print the table and save it."""
    import dataclasses

    from regard.kernels.linear.crossover import measure_crossover, own_table, read_tables, write_table
    from regard.machine import find_device

    path = own_table() if table is None else table
    read_tables(path)  # report a damaged table before measuring for a minute
    crossover = measure_crossover(find_device(device), watch=lambda cells: tracked(cells, "measuring"))
    typer.echo(json.dumps(dataclasses.asdict(crossover)) if as_json else crossover.text())
    try:
        write_table(crossover, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; choose another file with --table") from error
    typer.echo(f"saved to {path}", err=True)


def load_generator(model: str, device: str, dtype: str) -> Translator | Writer:
    """Load a model; UsageError if it does not generate text."""
    from regard.api.translator import Translator
    from regard.api.writer import Writer
    from regard.tasks.loading import load

    face = load(model, device=device, dtype=dtype)
    if not isinstance(face, Translator | Writer):
        raise UsageError(f"{model} is a model of kind {face.info.get('kind')!r}, which generates no text to measure")
    return face


def read_inputs(face: Translator | Writer, file: Path, count: int) -> list[list[int]]:
    """Return the token ids of the first `count` non-empty lines of a file."""
    from regard.api.translator import Translator

    lines = [line for line in read_text(file) if line.strip()][:count]
    if not lines:
        raise DataError(f"{file} has no text to measure with")
    if isinstance(face, Translator):
        return [face.read(line).ids for line in lines]
    return [face.begin(line) for line in lines]


def default_max_tokens(face: Translator | Writer, ids: list[int]) -> int:
    """Return the most tokens that the model generates for an input without --max-tokens."""
    from regard.api.translation.sentence_search import EXTRA_TOKENS, LENGTH_FACTOR
    from regard.api.translator import Translator
    from regard.api.writer import MAX_TOKENS
    from regard.decoding.requests import longest_text

    default = LENGTH_FACTOR * len(ids) + EXTRA_TOKENS if isinstance(face, Translator) else MAX_TOKENS
    positions = longest_text(face.decoding_model)
    if positions is None:
        return default
    return min(default, positions - (0 if isinstance(face, Translator) else len(ids)))


def report(workload: dict[str, Any], measured: Measured) -> str:
    """Format the results as lines of text."""
    latency = ", ".join(f"{name} {time_text(seconds)}" for name, seconds in measured.latency.items())
    memory = [f"{size_text(measured.resident)} resident"] if measured.resident is not None else []
    memory += [f"{size_text(measured.allocated)} on the GPU"] if measured.allocated is not None else []
    threads = f"{workload['threads']} thread{'s' * (workload['threads'] > 1)}"
    where = f"{workload['device']}, {threads}, {workload['dtype']}, torch {workload['torch']}"
    lines = [
        ("model", f"{workload['model']}: {workload['kind']}, {workload['parameters']:,} parameters"),
        ("machine", where),
        (
            "work",
            f"batch {measured.batch}, beam {workload['beam']}, {workload['source_tokens']:.4g} source tokens and "
            f"{workload['tokens_per_text']:.4g} generated tokens per text, {workload['runs']} runs",
        ),
        ("speed", f"{measured.tokens_per_second:,.0f} tokens/s, {measured.texts_per_second:,.4g} texts/s"),
        ("latency", f"{latency} for a single text"),
        ("memory", f"{', '.join(memory) or 'unknown'} at the peak"),
        (
            "floor",
            f"{time_text(measured.floor)} per step: {size_text(measured.step_bytes)} of weights at "
            f"{measured.read_speed / 1e9:.1f} GB/s",
        ),
        ("share", f"{measured.share:.1%} of the floor: a step for a single text takes {time_text(measured.step)}"),
    ]
    return "\n".join(f"{name:<10}{text}" for name, text in lines)


def time_text(seconds: float) -> str:
    """Format a time with its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
