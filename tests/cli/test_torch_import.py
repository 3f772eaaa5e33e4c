"""Commands import torch without the tables of its compiler, which are there as soon as something compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = "import gc, sys; from regard.cli.shared.torch_import import POSTPONED, import_torch; import_torch(); "


def run(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", START + code], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    return done.stdout


def test_torch_is_imported_without_the_tables_of_its_compiler() -> None:
    """Nor does building a model on the device "meta", as loading does, need them: every kind, with every position."""
    code = """
print('torch' in sys.modules, dir(sys.modules[POSTPONED]).count('register_meta'), gc.isenabled())
import torch
from regard.models.folder.loading import WithoutInitialization
from regard.models.presets import MODELS, make_model
from regard.positions import SCHEMES
built = 0
for kind, (config, _) in MODELS.items():
    positions = [{"position": name} for name in SCHEMES] if "position" in config.__dataclass_fields__ else [{}]
    for settings in positions:
        vocabularies = dict.fromkeys(config.vocabulary_fields(), 20)
        with torch.device("meta"), WithoutInitialization():
            make_model(config.from_dict({**vocabularies, **settings}))
        built += 1
print(built >= 10, hasattr(sys.modules[POSTPONED], 'register_meta'))
"""
    assert run(code) == "True 0 True\nTrue False\n"


@pytest.mark.slow
def test_a_tensor_without_data_loads_the_tables() -> None:
    # The shape of eigenvalues comes from a function in the postponed module.
    code = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    shape = torch.linalg.eigvals(torch.empty(3, 5, 5)).shape
print(tuple(shape), hasattr(sys.modules[POSTPONED], 'register_meta'))
"""
    assert run(code) == "(3, 5) True\n"


def test_compiled_functions_compute_the_same() -> None:
    code = """
import torch
x = torch.randn(4, 3)
distances = lambda x: torch.cdist(x, x).exp()
print(torch.allclose(torch.compile(distances, backend='aot_eager')(x), distances(x)))
"""
    assert run(code) == "True\n"
