"""A process of the command line ends with its exit code, whatever its threads do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INTERRUPTED_IN_EXEC = """
import sys
import regard.cli
from regard.__main__ import run

def main():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        sys.exit(130)

regard.cli.main = main
run()
"""

# Python ends such a thread in the middle of torch's code, and the C++ runtime aborts the process: exit code 134.
SCRIPT = """
import atexit, sys, threading, torch
from regard.system.process_exit import exit_process

def work():
    while True:
        torch.mm(matrix, matrix)
        started.set()

matrix, started = torch.ones(300, 300), threading.Event()
threading.Thread(target=work, daemon=True).start()
started.wait()
atexit.register(lambda: print("registered"))
print("printed", end=" ")
exit_process(int(sys.argv[1]))
"""


def test_threads_in_native_code_do_not_abort_it(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, "3"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "printed registered\n", "")


def test_an_interrupt_anywhere_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IN_EXEC)
    ended = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, timeout=120, check=False)
    assert ended.returncode == 130
