"""`regard train`: from text files, or a recipe, to a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import UsageError
from regard.machine import launched_by_torchrun

HELP = """Train a model from text files, or from a recipe.

  regard train fr.txt en.txt            two parallel files: a translator\n
  regard train pairs.tsv                pairs in one file (.tsv, .jsonl, .parquet)\n
  regard train text.txt                 one text: a language model\n
  regard train recipe.toml              a recipe of your own\n
  regard train demo                     a recipe that comes with regard

All files may be packed (.gz, .xz, .zst). What is not said is chosen from the data and the machine, with a reason for
each choice. The run lands in runs/NAME; the same command again goes on where it stopped.
"""


def train_model(
    what: Annotated[list[str], typer.Argument(help="Text files, a recipe (.toml), or the name of a shipped recipe.")],
    model: Annotated[
        str | None,
        typer.Option(help="Kind of model: transformer, rnn-attention, rnn-seq2seq, transformer-lm, rnn-lm, encoder."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/NAME when not given.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; from the languages when not given.")] = None,
    init: Annotated[
        str | None, typer.Option(help="Start from the weights and the tokenizer of this trained model.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: training.lr=3e-4.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done: recipe, data, memory and time; train nothing.")
    ] = False,
    nproc: Annotated[int, typer.Option(min=1, help="Processes on this machine that share each batch.")] = 1,
    allow_changed_data: Annotated[
        bool, typer.Option("--allow-changed-data", help="Go on although the data is not what the run was begun with.")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's files too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the result.")] = False,
) -> None:
    from regard.training.recipe.from_files import recipe_for_files
    from regard.training.recipe.toml_file import apply_overrides, read_recipe, shipped_recipes
    from regard.training.run.training_run import train

    overrides = dict(split_setting(text) for text in settings or [])
    if len(what) == 1 and (what[0].endswith(".toml") or what[0] in shipped_recipes() or not Path(what[0]).exists()):
        if model is not None:
            raise UsageError("--model is for text files; a recipe says it itself: --set model.kind=…")
        recipe = read_recipe(what[0], {**overrides, **({} if name is None else {"name": name})})
    else:
        recipe = apply_overrides(recipe_for_files(what, model=model, name=name), overrides)

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    if dry_run:
        from regard.training.run.dry_run import dry_run_report

        typer.echo(dry_run_report(recipe, init=init))
        return
    if nproc > 1 and launched_by_torchrun():
        raise UsageError("--nproc starts processes on this machine, and torchrun has done so already: give one of them")
    if nproc > 1:
        from regard.training.parallel.launch import launch

        same = {"--model": model, "--out": out, "--name": name, "--init": init}
        options = [part for option, value in same.items() if value is not None for part in (option, str(value))]
        options += [part for text in settings or [] for part in ("--set", text)]
        flags = {"--allow-changed-data": allow_changed_data, "--tensorboard": tensorboard, "--quiet": quiet}
        options += [flag for flag, given in flags.items() if given]
        launch(["train", *what, *options], nproc=nproc, folder=out or Path("runs") / recipe.name)
        return
    run = train(
        recipe,
        out=out,
        init=init,
        say=say,
        quiet=quiet,
        tensorboard=tensorboard,
        allow_changed_data=allow_changed_data,
    )
    typer.echo(str(run.folder))


train_model.__doc__ = HELP


def split_setting(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise UsageError(f"--set {text}: write KEY=VALUE, such as training.lr=3e-4")
    return key.strip(), value.strip()
