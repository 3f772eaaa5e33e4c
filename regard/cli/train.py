"""`regard train`: train a model from text files or a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shared.model_options import Threads
from regard.errors import DataError, UsageError
from regard.machine import launched_by_torchrun, set_threads
from regard.system.terminal import perhaps_closed_terminal

SAMPLE_LINES = 100  # of a single file, in which tabs may separate pairs


def train_model(
    what: Annotated[
        list[str], typer.Argument(help="Files or folders of data, a recipe (.toml), or the name of a shipped recipe.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="Kind: transformer, rnn-attention, rnn-seq2seq, transformer-lm, rnn-lm, encoder, classifier, "
            "summarizer, answerer, word-vectors, image-classifier, captioner, "
            "rnn-captioner, forecaster or dlinear."
        ),
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="<path>", help="Folder of the run; default: runs/NAME.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; default: from the languages.")] = None,
    init: Annotated[
        str | None, typer.Option(help="Start from the weights and the tokenizer of this model: folder or name.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. training.lr=3e-4.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the recipe, the data and the expected memory and time; do not train."),
    ] = False,
    nproc: Annotated[int, typer.Option(min=1, help="Number of data-parallel processes on this machine.")] = 1,
    threads: Threads = None,
    allow_changed_data: Annotated[
        bool,
        typer.Option("--allow-changed-data", help="Resume even though the data has changed since the run started."),
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard event files too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the result.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every chosen setting with its reason.")] = False,
) -> None:
    """Train a model from text files or a recipe.

    Input files may be compressed (.gz, .xz, .zst). Settings that you leave out are chosen from the data and the
    machine. The run is saved in runs/NAME; run the same command again to resume it.

    Examples:
      regard train fr.txt en.txt            two parallel files: a translator
      regard train pairs.tsv                pairs in one file (.tsv, .csv, .jsonl, .parquet)
      regard train text.txt                 one text: a language model
      regard train text.txt --model word-vectors
      regard train FOLDER --model image-classifier
      regard train FOLDER --model captioner
      regard train series.csv --model forecaster
      regard train FOLDER --model speech-recognizer
      regard train recipe.toml              your own recipe
      regard train demo                     a shipped recipe
    """
    if threads is not None or nproc == 1:  # the launcher divides the cores among its processes
        set_threads(threads)
    from regard.text.files.compressed import missing_file
    from regard.training.recipe.from_files import recipe_for_files
    from regard.training.recipe.toml_file import apply_overrides, read_recipe, shipped_recipes

    def say(text: str) -> None:
        if not quiet:
            with perhaps_closed_terminal():
                typer.echo(text, err=True)

    overrides = dict(split_setting(text) for text in settings or [])
    if len(what) == 1 and (what[0].endswith(".toml") or what[0] in shipped_recipes() or not Path(what[0]).exists()):
        if model is not None:
            if not what[0].endswith(".toml") and what[0] not in shipped_recipes():
                raise DataError(missing_file(Path(what[0])))
            raise UsageError("--model is for text files; override the kind of a recipe with --set model.kind=…")
        recipe = read_recipe(what[0], {**overrides, **({} if name is None else {"name": name})})
    else:
        kind = model if model is not None or init is None else kind_of(init)
        recipe = apply_overrides(recipe_for_files(what, model=kind, name=name), overrides)
        if recipe.data.form == "text" and kind is None and not launched_by_torchrun():
            say(single_text_note(Path(what[0])))
    if dry_run:
        from regard.training.run.dry_run import dry_run_report

        typer.echo(dry_run_report(recipe, init=init))
        return
    if nproc > 1 and launched_by_torchrun():
        raise UsageError(
            "torchrun has already started processes on this machine: leave out --nproc, or do not use torchrun"
        )
    if nproc > 1:
        from regard.training.parallel.launch import launch

        options_with_value = {"--model": model, "--out": out, "--name": name, "--init": init}
        options = [
            part for option, value in options_with_value.items() if value is not None for part in (option, str(value))
        ]
        options += [part for text in settings or [] for part in ("--set", text)]
        flags = {
            "--allow-changed-data": allow_changed_data,
            "--tensorboard": tensorboard,
            "--quiet": quiet,
            "--verbose": verbose,
        }
        options += [flag for flag, is_set in flags.items() if is_set]
        launch(["train", *what, *options], nproc=nproc)
        return
    from regard.training.run.training_run import train

    run = train(
        recipe,
        out=out,
        init=init,
        say=say,
        quiet=quiet,
        tensorboard=tensorboard,
        allow_changed_data=allow_changed_data,
        verbose=verbose,
    )
    with perhaps_closed_terminal():
        typer.echo(str(run.folder))


def kind_of(init: str) -> str:
    """Return the kind of a trained model."""
    from regard.api.model_names import find_model
    from regard.models.folder import read_config

    return str(read_config(find_model(init))["kind"])


def single_text_note(path: Path) -> str:
    """Say what a single file is used for, and how to give pairs instead."""
    from itertools import islice

    from regard.text.files.compressed import content_name
    from regard.text.files.lines import Fault, try_lines

    note = (
        f"{path} is a single text, so this trains a language model. To train a translator, add the file with its "
        f"translations, line by line: regard train {path} TRANSLATIONS"
    )
    lines = [line for line in islice(try_lines(path), SAMPLE_LINES) if not isinstance(line, Fault)]
    if not lines or not all("\t" in line for line in lines):
        return note
    content = content_name(path)
    name = f"{content.stem}.tsv{path.name.removeprefix(content.name)}"
    return f"{note}. Its lines contain tabs: if those separate source and target, rename the file to {name}"


def split_setting(text: str) -> tuple[str, str]:
    """Split the KEY=VALUE of --set."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise UsageError(f"--set {text}: write KEY=VALUE, such as training.lr=3e-4")
    return key.strip(), value.strip()
