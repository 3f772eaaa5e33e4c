"""The command line, `regard`: one file a command; torch and matplotlib are imported only by the command that runs.

Exit codes: 0 ok, 1 a bug of ours, 2 usage, 3 input data, 4 model, 5 diverged, 6 out of memory or disk, 130 and 143
stopped, 141 closed pipe.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from regard.cli.bench import bench_model
from regard.cli.check import check_files
from regard.cli.compare import compare_models
from regard.cli.convert import convert_heads
from regard.cli.demo import show_demo
from regard.cli.embed import embed_lines
from regard.cli.evaluate import evaluate_model
from regard.cli.explore import explore_models
from regard.cli.export import export_model
from regard.cli.generate import generate_text
from regard.cli.info import show_info
from regard.cli.lectures import show_lectures
from regard.cli.plot.command import plots
from regard.cli.score import score_text
from regard.cli.train import train_model
from regard.cli.translate import translate_text
from regard.errors import RegardError
from regard.version import __version__


class Commands(TyperGroup):
    """Runs a command and turns what goes wrong into a short message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # so that a closed pipe or a full disk shows now, not when Python ends
            return result
        except RegardError as error:
            self.stop(ctx, str(error), error.exit_code)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except Exception as error:
            if hasattr(error, "exit_code") or isinstance(error, (typer.Abort, BrokenPipeError)):
                raise  # typer's own, which it prints itself, and what main ends quietly
            # torch's is known by its name, so that torch need not be imported for it.
            memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
            if memory or getattr(error, "errno", None) == errno.ENOSPC:
                self.stop(ctx, f"out of {'memory' if memory else 'disk space'}: {error}", 6)
            hint = "This is a bug of regard; `regard --debug …` shows where it happened."
            self.stop(ctx, f"{type(error).__name__}: {error}\n{hint}", 1)

    def stop(self, ctx: Any, message: str, code: int) -> NoReturn:
        """The message, or with --debug the traceback, and the exit code."""
        if ctx.params["debug"]:
            traceback.print_exc()
        elif message:  # empty: another process has told it
            typer.echo(f"regard: {message}", err=True)
        raise typer.Exit(code)


app = typer.Typer(
    cls=Commands,
    name="regard",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """The attention toolkit: learn attention, train attention models, run them."""


app.command("demo")(show_demo)
app.command("check")(check_files)
app.command("train")(train_model)
app.command("translate")(translate_text)
app.command("generate")(generate_text)
app.command("embed")(embed_lines)
app.command("score")(score_text)
app.command("evaluate")(evaluate_model)
app.command("compare")(compare_models)
app.command("explore")(explore_models)
app.command("export")(export_model)
app.command("convert")(convert_heads)
app.command("bench")(bench_model)
app.command("info")(show_info)
app.command("lectures")(show_lectures)
app.add_typer(plots, name="plot")


def main() -> None:
    """The console script."""
    try:
        app(prog_name="regard")
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        # The reader has gone (rich and typer end with 1 then): nothing that is still buffered may raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
