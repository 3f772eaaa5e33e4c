"""`regard serve` as users start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.serving.conftest import Client


class Process:
    """`regard serve` in a process of its own."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "regard", "serve", "--port", "0", *arguments]
        with log.open("w") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline()
        assert address.startswith("http://127.0.0.1:"), log.read_text()
        self.client = Client(int(address.rstrip("/\n").rpartition(":")[2]))
