"""The lazy table of public names, its type stub and what they name agree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import regard


def test_stub_lists_the_same_names():
    stub = ast.parse(Path(regard.__file__).with_suffix(".pyi").read_text())
    listed = {alias.asname for node in ast.walk(stub) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert listed == set(regard.__all__)


@pytest.mark.parametrize("name", regard.__all__)
def test_name_is_there_and_stays_the_same(name):
    first = getattr(regard, name)
    assert getattr(regard, name) is first
    module = regard._WHERE.get(name, "regard.version")
    # A function with its module's name would give the module the second time.
    assert module.rpartition(".")[2] != name or first.__name__ == module


def test_dir_lists_public_names():
    assert set(regard.__all__) <= set(dir(regard))


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
        regard.atend  # noqa: B018
