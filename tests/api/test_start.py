"""What a command loads before it translates: torch's compiler takes a second and 150 MB, and nobody asked for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys, regard
translator = regard.load("fr-en", device="cpu", dtype=sys.argv[1])
translator.translate(["Le chat dort.", "Bonjour Zqx."], beam=2)  # with a word that is copied, by where the model looks
regard.load("shakespeare", device="cpu", dtype=sys.argv[1])
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_translating_needs_no_compiler(dtype: str) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, dtype], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
