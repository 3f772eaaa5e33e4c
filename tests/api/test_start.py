"""What a command loads before it translates: torch's compiler takes a second and 150 MB, and nobody asked for it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys, regard
for dtype in ("float32", "int8"):
    translator = regard.load("fr-en", device="cpu", dtype=dtype)
    translator.translate(["Le chat dort.", "Bonjour Zqx."], beam=2)  # a word that is copied, by where the model looks
    regard.load("shakespeare", device="cpu", dtype=dtype)
    print("torch._dynamo" in sys.modules)
"""


def test_translating_needs_no_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "False\nFalse\n"), done.stderr
