"""The command line, `regard`: one file per command. Each command imports torch and matplotlib only when it runs.

Exit codes: 0 success, 1 a bug in regard, 2 usage, 3 input data, 4 model, 5 training diverged, 6 out of memory or disk
space, 129, 130 and 143 interrupted, 141 closed pipe.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from regard.cli.check import check_files
from regard.cli.demo import show_demo
from regard.cli.exercise import exercises
from regard.cli.explore import explore_models
from regard.cli.lectures import show_lectures
from regard.cli.measure.bench import bench_model
from regard.cli.measure.compare import compare_models
from regard.cli.measure.evaluate import evaluate_model
from regard.cli.measure.score import score_text
from regard.cli.model_folders.convert import convert_heads
from regard.cli.model_folders.export import export_model
from regard.cli.model_folders.import_model import import_folder
from regard.cli.model_folders.info import show_info
from regard.cli.plot.command import plots
from regard.cli.serve import serve_models
from regard.cli.shared.help import help_text
from regard.cli.shared.model_options import write_utf8
from regard.cli.slides import write_slides
from regard.cli.train import train_model
from regard.cli.use.answer import answer_questions
from regard.cli.use.caption import caption_images
from regard.cli.use.classify import classify_inputs
from regard.cli.use.embed import embed_lines
from regard.cli.use.forecast import forecast_series
from regard.cli.use.generate import generate_text
from regard.cli.use.summarize import summarize_lines
from regard.cli.use.transcribe import transcribe_recordings
from regard.cli.use.translate import translate_text
from regard.cli.use.translate_job import TranslateCommand
from regard.cli.use.words import words
from regard.errors import RegardError
from regard.machine import check_environment
from regard.system.terminal import perhaps_closed_terminal, show_plain_warnings
from regard.version import __version__


class Commands(TyperGroup):
    """The group of all commands; turns an exception into a short message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # a closed pipe or a full disk must raise here, not when Python exits
            return result
        except RegardError as error:
            self.stop(ctx, str(error), error.exit_code)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except Exception as error:
            if hasattr(error, "exit_code") or isinstance(error, (typer.Abort, BrokenPipeError)):
                raise  # typer prints its own errors; main handles a closed pipe
            # Compare the name, so that torch is not imported only to name its exception.
            out_of_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
            if out_of_memory or getattr(error, "errno", None) == errno.ENOSPC:
                self.stop(ctx, f"out of {'memory' if out_of_memory else 'disk space'}: {error}", 6)
            hint = "This is a bug in regard. Run `regard --debug …` to see the traceback."
            self.stop(ctx, f"{type(error).__name__}: {error}\n{hint}", 1)

    def stop(self, ctx: Any, message: str, code: int) -> NoReturn:
        """Print the message, or with --debug the traceback, and exit with the code."""
        if ctx.params["debug"]:
            traceback.print_exc()
        elif message:  # empty when another process has printed it
            with perhaps_closed_terminal():
                typer.echo(f"regard: {message}", err=True)
        raise typer.Exit(code)


def show_version(requested: bool) -> None:
    """Print the version and exit, if --version was passed."""
    if requested:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
) -> None:
    """The attention toolkit: learn how attention works, train attention models, run them."""
    check_environment()


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": show_demo,
    "check": check_files,
    "train": train_model,
    "translate": translate_text,
    "generate": generate_text,
    "embed": embed_lines,
    "classify": classify_inputs,
    "summarize": summarize_lines,
    "answer": answer_questions,
    "caption": caption_images,
    "forecast": forecast_series,
    "transcribe": transcribe_recordings,
    "score": score_text,
    "evaluate": evaluate_model,
    "compare": compare_models,
    "explore": explore_models,
    "serve": serve_models,
    "import": import_folder,
    "export": export_model,
    "convert": convert_heads,
    "bench": bench_model,
    "info": show_info,
    "lectures": show_lectures,
    "slides": write_slides,
}

COMMAND_CLASSES = {"translate": TranslateCommand}  # of commands whose arguments are parsed in another way


def make_app(only: str | None = None) -> typer.Typer:
    """Make the command line with all commands, or with one: typer converts the options of every command at startup."""
    commands = typer.Typer(
        cls=Commands,
        name="regard",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    commands.callback()(options)
    for name, command in COMMANDS.items() if only is None else [(only, COMMANDS[only])]:
        commands.command(name, cls=COMMAND_CLASSES.get(name), help=help_text(command))(command)
    if only is None:
        commands.add_typer(plots, name="plot")
        commands.add_typer(words, name="words")
        commands.add_typer(exercises, name="exercise")
        commands.add_typer(exercises, name="exercise")
    return commands


def requested_command(arguments: Sequence[str]) -> str | None:
    """Return the command that the arguments name; None if they name none, or a group such as `plot`."""
    first_word = next((argument for argument in arguments if not argument.startswith("-")), None)
    return first_word if first_word in COMMANDS else None


app = make_app()


def main() -> None:
    """Run the command line; the entry point of the console script."""
    write_utf8()
    show_plain_warnings()
    try:
        make_app(requested_command(sys.argv[1:]))(prog_name="regard")
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        # The reader closed the pipe, for which rich and typer exit with 1. Discard what is still in the buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
