"""`regard translate FILE… --out FOLDER [--workers N] [--ray]`: check the options of a job, and describe it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperCommand

from regard.cli.shared.model_options import STDIN
from regard.cli.use.translated_lines import LineSettings, output_line, translate_lines
from regard.errors import UsageError
from regard.scale.blocks import Row
from regard.version import __version__

if TYPE_CHECKING:
    from regard.api.translator import Translator
    from regard.scale.job import Job

MAX_WORKERS = 1024
WORKER_COMMAND = (sys.executable, "-m", "regard", "translate")
NOT_FOR_WORKERS = ("context", "files", "out", "workers", "ray")
ADDRESS = re.compile(r"auto|local|ray://.+|[\w.-]+:\d+|\[[\da-f:]+\]:\d+")  # of a Ray cluster


class TranslateCommand(TyperCommand):
    """Lets the option --ray stand without an address, for a cluster on this machine."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Complete a lone --ray."""
        for i, word in enumerate(args):
            if word == "--":
                break
            if word == "--ray" and not ADDRESS.fullmatch(args[i + 1] if i + 1 < len(args) else ""):
                args[i] = "--ray=local"
        return super().parse_args(ctx, args)


NOT_COMPARED = (*NOT_FOR_WORKERS, "model", "draft", "threads")  # models are compared by their content


class WorkerOptions(NamedTuple):
    """Where a job runs: so many processes with so many threads, on this machine or in a Ray cluster."""

    workers: int
    threads: int | None
    ray: str | None


def check_job_options(files: Sequence[Path], out: Path | None, workers: int | None, ray: str | None) -> None:
    """Raise UsageError for options that need each other."""
    if out is None:
        if ray is not None:
            raise UsageError("--ray needs --out: a job writes its results to a folder")
        if workers is not None:
            raise UsageError("--workers needs --out: a job writes its results to a folder")
        if len(files) > 1:
            raise UsageError("several files need --out FOLDER, where each translation gets a file")
    elif not files or STDIN in files:
        raise UsageError("--out needs files: a job that is resumed reads its input again")


def translate_job(
    context: typer.Context,
    files: Sequence[Path],
    out: Path,
    models: Sequence[str],
    settings: LineSettings,
    batch: int,
    pool: WorkerOptions,
) -> None:
    """Translate files in worker processes; exit with code 3 at the end if some lines failed."""
    from regard.api.model_names import find_model
    from regard.models.folder.verification import verify_folder
    from regard.scale.job import Job
    from regard.system.files import fingerprint

    folders = [find_model(model) for model in models]
    for folder in folders:
        verify_folder(folder)
    options = option_values(context)
    manifests = [fingerprint(folder / "manifest.json") for folder in folders]
    job = Job(
        files,
        fingerprint={
            "models": {str(i): manifest for i, manifest in enumerate(manifests, start=1)},
            "options": {name: value for name, value in options.items() if name not in NOT_COMPARED},
            "regard": __version__,
        },
        command=[*WORKER_COMMAND, *option_words(context, options)],
        models=dict(zip(models, manifests, strict=True)),
        batch=batch,
        failed_output=lambda number, error: output_line(number, error, settings),
    )
    failed = run_with(pool, job, out, lambda text: typer.echo(f"regard: {text}", err=True))
    if failed:
        typer.echo(f"regard: {failed} lines failed; they are empty in the output", err=True)
        raise typer.Exit(3)


def run_with(pool: WorkerOptions, job: Job, out: Path, say: Callable[[str], object]) -> int:
    """Run the job with workers on this machine or in a Ray cluster; return the number of lines that failed."""
    from regard.scale.job import run_job
    from regard.scale.workers import local_workers

    if pool.ray is None:
        return run_job(job, out, local_workers(job.command, pool.workers), say=say)
    from regard.scale.ray_workers import cluster, ray_workers

    threads = pool.threads or 1
    with cluster(pool.ray, workers=pool.workers, threads=threads):
        return run_job(job, out, ray_workers(job, pool.workers, threads=threads, say=say), say=say)


def option_values(context: typer.Context) -> dict[str, Any]:
    """Return the options that were passed and differ from their defaults, by parameter name."""
    return {
        parameter.name: context.params[parameter.name]
        for parameter in context.command.params
        if parameter.name in context.params
        and parameter.name not in NOT_FOR_WORKERS
        and context.params[parameter.name] not in (None, parameter.default, [], ())
    }


def option_words(context: typer.Context, values: dict[str, Any]) -> list[str]:
    """Return the words on the command line that stand for these options."""
    words: list[str] = []
    for parameter in context.command.params:
        if parameter.name not in values:
            continue
        option = max(parameter.opts, key=len)  # the long form, which can be joined with its value
        value = values[parameter.name]
        if value is True:
            words.append(option)
        else:
            words += [f"{option}={item}" for item in (value if isinstance(value, list | tuple) else [value])]
    return words


def translate_block(
    translator: Translator, settings: LineSettings, batch: int, first: int, lines: list[bytes]
) -> list[Row]:
    """Translate the lines of a block in a worker process; `first` lines of the file are in front of them."""
    rows: dict[int, Row] = {}
    for index, result in translate_lines(translator, lines, settings, batch, first=first):
        number = first + index + 1
        error = result if isinstance(result, str) else ""
        rows[index] = Row(number, error, output_line(number, result, settings))
    sys.stderr.flush()
    return [rows[index] for index in range(len(lines))]
