"""`regard translate` on a CPU does not import torch, and says exactly what it says with torch.

One new process runs all cases; this process, which has imported torch, runs them again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import app

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")

ROOT = Path(__file__).parents[2]
LINES = (
    "Je t'aime.",
    "",
    "   ",
    "Il a payé 1 234,50 € le 3 mai 2024 à 14 h 30.",
    "Écrivez à jean.dupont@exemple.fr ou voyez https://exemple.fr/a?b=1 !",
    "123 + 456",
    "Where is the station? I do not know this city.",
    "Ich weiß nicht, wo der Bahnhof ist.",
    "xqzt vlorp brimf snurk",
    "ha " * 60,
    "Il pleut. Prends ton parapluie ! Nous allons être en retard, dépêche-toi, et n'oublie pas de fermer la porte.",
    "Zblorgnix Quetzal habite à Plougastel.",
    "LE CHAT DORT\tSUR LA TABLE",
    "Да, это 漢字.",
)
SHORT = "Le chat noir dort.\nOù est la gare ?\n"
# The arguments of `regard translate`, its input, and whether it must do without torch.
CASES: tuple[tuple[tuple[str, ...], bytes, bool], ...] = (
    (("-t", "Jane visite l'Afrique en septembre"), b"", True),
    (("--json",), "\n".join(LINES).encode(), True),
    (("-n", "3"), SHORT.encode(), True),
    (("--beam", "1", "--max-tokens", "4", "--json"), SHORT.encode(), True),
    (("--beam", "3", "--length-penalty", "0.2", "--dtype", "float32", "--threads", "1"), b"Merci.", True),
    ((), b"Bonjour.\n\xff\xfe\nMerci.\n", True),
    (("-m", "nowhere", "-t", "Merci."), b"", True),
    (("--beam", "0", "-t", "Merci."), b"", True),
    (("-n", "7", "--beam", "2", "-t", "Merci."), b"", True),
    (("--sample", "--seed", "3", "--json"), SHORT.encode(), False),
    (("--include", "cat", "-n", "2"), b"Le chat noir dort.", False),
    (("-m", "shakespeare", "-t", "Merci."), b"", False),
    (("--device", "cuda:9", "-t", "Merci."), b"", False),
)
# More reasons to import torch after all; both processes then do the same.
MORE_CASES: tuple[tuple[tuple[str, ...], bytes, bool], ...] = (
    (("--attention", "--json", "-t", "Le chat dort."), b"", False),
    (("--no-repeat", "2", "--min-tokens", "3"), SHORT.encode(), False),
    (("--dtype", "int8", "--json", "-t", "Le chat dort."), b"", False),
    (("-m", "fr-en-rnn", "--beam", "1", "-t", "Le chat dort."), b"", False),
)
ALL_CASES = """
import json, sys
from test_without_torch import CASES, MORE_CASES, run_case
results = []
for arguments, text, without in CHOSEN:
    results.append(run_case(arguments, text))
    if without and "torch" in sys.modules:
        sys.exit(f"{arguments} imported torch")
print(json.dumps(results))
"""
PYTHON = """
import json, sys, regard
from regard.decoding.cpu import folder_model
folder_model.may_have_gpu = lambda: False
translator = regard.load("fr-en")
texts = [translator.translate("Le chat dort sur la table.")]
assert "torch" not in sys.modules
texts.append(translator.translate("Le chat dort sur la table.", search=regard.Beam(5, rules=(lambda *_: None,))))
heads = translator.translate("Le chat dort.").alignment().pairs
import torch
assert isinstance(translator.model, torch.nn.Module) and translator.model is translator.model
texts.append(translator.translate("Le chat dort sur la table."))
with torch.no_grad():
    translator.model.decoder.norm.weight.zero_()
texts.append(translator.translate("Le chat dort sur la table.", max_tokens=5))
print(json.dumps([repr(translator), heads, [[str(text), text.score] for text in texts]]))
"""


def run_case(arguments: tuple[str, ...], text: bytes) -> list[Any]:
    device = () if "--device" in arguments else ("--device", "cpu")
    result = CliRunner().invoke(app, ["translate", *arguments, *device], input=text)
    return [result.exit_code, result.stdout, result.stderr]


def run_process(code: str) -> Any:
    """Run Python in a new process, and return the JSON that it prints last."""
    paths = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize("chosen", ["CASES", pytest.param("(*CASES, *MORE_CASES)", marks=pytest.mark.slow)])
def test_commands_say_the_same_with_and_without_torch(chosen: str) -> None:
    without_torch = run_process(ALL_CASES.replace("CHOSEN", chosen))
    cases = CASES if chosen == "CASES" else (*CASES, *MORE_CASES)
    for (arguments, text, _), ours in zip(cases, without_torch, strict=True):
        assert ours == run_case(arguments, text), arguments
    assert without_torch[0] == [0, "Jane visits Africa in September\n", ""]
    messages = without_torch[1][2]
    assert "English" in messages and "German" in messages and "repeats" in messages and "letters" in messages
    assert [exit_code for exit_code, _, _ in without_torch[5:9]] == [3, 4, 2, 2]


def test_load_in_python_makes_the_modules_on_first_use() -> None:
    description, pairs, texts = run_process(PYTHON)
    translator: Any = regard.load("fr-en", device="cpu")
    wanted = translator.translate("Le chat dort sur la table.")
    assert texts[0] == texts[2] == [wanted.text, wanted.score]
    assert texts[1] == [wanted.text, pytest.approx(wanted.score, abs=1e-3)]  # by the modules, step by step
    assert texts[3] != texts[2]  # changed modules count
    assert description == repr(translator)
    assert [tuple(pair) for pair in pairs] == translator.translate("Le chat dort.").alignment().pairs
