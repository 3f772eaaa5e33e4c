"""Loaded by every Python process that has this folder on its PYTHONPATH: brings the faults of inject.py along.

So they reach processes that a launcher starts, too, and no line of regard knows of them.
"""

import importlib.abc
import importlib.util
import os
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[1]))


class AfterImport(importlib.abc.MetaPathFinder):
    """Arms the faults as soon as regard's trainer has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "regard.training.run.training_run":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            import inject

            inject.arm()

        spec.loader.exec_module = exec_module
        return spec


if "FAULTS" in os.environ:
    sys.meta_path.insert(0, AfterImport())
