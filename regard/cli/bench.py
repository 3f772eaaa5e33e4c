"""`regard bench`: how fast a model writes on this machine, and how near that is to what the machine can do.

With --attention: from which length on random features are faster than exact attention here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.evaluate import tracked
from regard.cli.info import size_text
from regard.cli.shared.model_options import DEFAULT_MODEL, Device, Dtype, Model, plain_warnings, read_text
from regard.errors import DataError, UsageError

if TYPE_CHECKING:
    from regard.api.translator import Translator
    from regard.api.writer import Writer
    from regard.decoding.benchmark import Measured

SOURCE_TOKENS, TOKENS = 21, 24


def bench_model(
    model: Model = DEFAULT_MODEL,
    batch: Annotated[int, typer.Option(min=1, help="Texts written together.")] = 32,
    beam: Annotated[int, typer.Option(min=1, help="Width of the beam; 1 is greedy.")] = 1,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, show_default=f"{TOKENS}; of a file as many as it takes", help="Write exactly so many."),
    ] = None,
    source_tokens: Annotated[
        int | None,
        typer.Option(min=1, show_default=str(SOURCE_TOKENS), help="Length of the random sources, or of prompts."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Lines to translate, or prompts, in place of random ones.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Batches that are timed, and texts alone.")] = 20,
    threads: Annotated[int | None, typer.Option(min=1, show_default="as torch has it", help="Of the CPU.")] = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="No model: exact attention against random features, by length.")
    ] = False,
    table: Annotated[
        Path | None,
        typer.Option(show_default="the user's own", help="Of --attention: the file that keeps what is measured."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object, with the time of each run.")] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Measure how fast a model writes: tokens a second, latency, memory, share of the floor.

    Speed: of whole batches, the median of the runs. Latency: of texts alone; half, 90% and 99% take no longer.

    Floor: bytes of weights that a step of the decoder reads / bytes a second that this machine reads (as many, by
    sums, with the same threads). Share: the floor / the time of a step for a text alone, its whole beam.

    --attention renews the table of lengths from which on random features are faster, which `regard convert` looks up.
    It takes --device, --threads, --table and --json.

    Example: regard bench -m runs/mine --batch 1 --beam 5 --threads 2
    """
    if file is not None and source_tokens is not None:
        raise UsageError("--source-tokens is the length of random sources: give it or --file, not both")
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    if attention:
        bench_attention(device, table, as_json=as_json)
        return
    if table is not None:
        raise UsageError("--table is where --attention keeps what it measures: give both, or neither")
    face = load_writing(model, device, dtype)
    from regard.decoding.benchmark import measure_decoding, random_inputs
    from regard.decoding.searches.beam import Beam
    from regard.decoding.searches.greedy import Greedy
    from regard.decoding.searches.logit_rules import MinTokens

    with plain_warnings():
        if file is None:
            tokens = TOKENS if tokens is None else tokens
            inputs = random_inputs(face.model, batch * runs, source_tokens or SOURCE_TOKENS)
        else:
            inputs = read_inputs(face, file, batch * runs)
        rules = () if tokens is None else (MinTokens(tokens),)
        found = measure_decoding(
            face.decoding_model,
            inputs,
            search=Greedy(rules=rules) if beam == 1 else Beam(beam, rules=rules),
            max_tokens=[room(face, one) for one in inputs] if tokens is None else tokens,
            batch=batch,
            runs=runs,
            watch=lambda numbers: tracked(numbers, "measuring"),
        )
    weights = list(face.model.parameters())
    work = {
        "model": model,
        "kind": face.model.config.kind,
        "parameters": sum(weight.numel() for weight in weights),
        "device": str(weights[0].device),
        "dtype": dtype if dtype != "auto" else str(weights[0].dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "beam": beam,
        "runs": runs,
        "source_tokens": sum(map(len, inputs)) / len(inputs),
        "tokens_per_text": sum(found.tokens) / (batch * runs),
    }
    typer.echo(json.dumps({**work, **found.to_dict()}) if as_json else report(work, found))


def bench_attention(device: str, table: Path | None, *, as_json: bool) -> None:
    """Measure exact attention against random features, keep the table and show it."""
    import dataclasses

    from regard.kernels.linear.crossover import measure_crossover, own_table, read_tables, write_table
    from regard.machine import find_device

    path = own_table() if table is None else table
    read_tables(path)  # a damaged one is told before it takes a minute
    found = measure_crossover(find_device(device), watch=lambda cells: tracked(cells, "measuring"))
    typer.echo(json.dumps(dataclasses.asdict(found)) if as_json else found.text())
    try:
        write_table(found, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; --table names another file") from error
    typer.echo(f"kept in {path}", err=True)


def load_writing(model: str, device: str, dtype: str) -> Translator | Writer:
    """The model, if it is one that writes text."""
    from regard.api.embedder import Embedder
    from regard.tasks.loading import load

    face = load(model, device=device, dtype=dtype)
    if isinstance(face, Embedder):
        raise UsageError(f"{model} is a model of kind {face.info.get('kind')!r}, which writes no text to be measured")
    return face


def read_inputs(face: Translator | Writer, file: Path, count: int) -> list[list[int]]:
    """The first `count` lines of a file that are not empty, as the model reads them."""
    from regard.api.translator import Translator
    from regard.text.tokenizers.special_tokens import START

    lines = [line for line in read_text(file) if line.strip()][:count]
    if not lines:
        raise DataError(f"{file} has no text to measure with")
    if isinstance(face, Translator):
        return [face.read(line).ids for line in lines]
    return [[START, *face.tokenizer.encode(line)] for line in lines]


def room(face: Translator | Writer, tokens: list[int]) -> int:
    """How many tokens may be written for an input when nobody says."""
    from regard.api.translator import EXTRA_TOKENS, LENGTH_FACTOR, Translator
    from regard.api.writer import MAX_TOKENS
    from regard.decoding.engine import longest_text

    most = LENGTH_FACTOR * len(tokens) + EXTRA_TOKENS if isinstance(face, Translator) else MAX_TOKENS
    places = longest_text(face.model)
    return most if places is None else min(most, places - (0 if isinstance(face, Translator) else len(tokens)))


def report(work: dict[str, Any], found: Measured) -> str:
    """The results as lines of text."""
    latency = ", ".join(f"{name} {time_text(seconds)}" for name, seconds in found.latency.items())
    memory = [f"{size_text(found.resident)} resident"] if found.resident is not None else []
    memory += [f"{size_text(found.allocated)} on the GPU"] if found.allocated is not None else []
    threads = f"{work['threads']} thread{'s' * (work['threads'] > 1)}"
    where = f"{work['device']}, {threads}, {work['dtype']}, torch {work['torch']}"
    lines = [
        ("model", f"{work['model']}: {work['kind']}, {work['parameters']:,} parameters"),
        ("machine", where),
        (
            "work",
            f"batch {found.batch}, beam {work['beam']}, {work['source_tokens']:.4g} tokens read and "
            f"{work['tokens_per_text']:.4g} written for a text, {work['runs']} runs",
        ),
        ("speed", f"{found.tokens_per_second:,.0f} tokens/s, {found.texts_per_second:,.4g} texts/s"),
        ("latency", f"{latency} for a text alone"),
        ("memory", f"{', '.join(memory) or 'unknown'} at the peak"),
        (
            "floor",
            f"{time_text(found.floor)} a step: {size_text(found.step_bytes)} of weights at "
            f"{found.read_speed / 1e9:.1f} GB/s",
        ),
        ("share", f"{found.share:.1%} of the floor: a step for a text alone takes {time_text(found.step)}"),
    ]
    return "\n".join(f"{name:<10}{text}" for name, text in lines)


def time_text(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
