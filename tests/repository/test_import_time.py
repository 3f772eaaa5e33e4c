"""`import regard` is only a table of names: torch and the other heavy libraries wait until they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "matplotlib", "transformers", "safetensors", "sentencepiece", "fastapi")


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh Python holds after a statement."""
    source = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["regard", "regard.cli", "regard.errors"])
def test_import_is_light(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert "regard" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_names_come_when_asked_for() -> None:
    """The other side of it: the check above is able to see torch, and asking for a name loads it."""
    loaded = modules_after(
        "import regard\n"
        "assert len(regard.__all__) == len(set(regard.__all__)) > 0\n"
        "assert set(regard.__all__) <= set(dir(regard))\n"
        "try: regard.no_such_name\n"
        "except AttributeError as error: assert 'no_such_name' in str(error)\n"
        "else: raise SystemExit('no error')\n"
        "for name in regard.__all__: assert getattr(regard, name) is getattr(regard, name) is not None, name"
    )
    assert "torch" in loaded
