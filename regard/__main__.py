"""`python -m regard` is `regard`; torchrun and `regard train --nproc` start it so."""

import sys
from typing import NoReturn

from regard.system.process_exit import exit_on_signals, exit_process

INTERRUPTED = 130  # if Ctrl-C arrives inside an `exec`, as dataclasses use it, Python itself would end by the signal


def run() -> NoReturn:
    """Run the command line and end the process; the entry point of the console script."""
    # A command that starts processes ends with the signal's exit code until it can forward signals.
    if any(argument.startswith(("--nproc", "--workers")) for argument in sys.argv):
        exit_on_signals()
    from regard.cli import main

    try:
        main()
    except SystemExit as error:
        if "torch" not in sys.modules and error.code != INTERRUPTED:  # no native threads
            raise
        exit_process(error.code)
    sys.exit(0)


if __name__ == "__main__":
    run()
