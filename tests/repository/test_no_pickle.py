"""Nothing is ever unpickled or evaluated: a model folder from a stranger must not be able to run code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN_MODULES = {
    "_pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "pickle",
    "shelve",
    "torch.distributed.checkpoint",
    "yaml",
}
FORBIDDEN_CALLS = {
    "torch.load": "unpickles",
    "torch.save": "pickles",
    "torch.hub.load": "runs code of others",
    "torch.package.PackageImporter": "unpickles",
    "torch.jit.load": "runs code of others",
    "numpy.load": "can unpickle",
    "pandas.read_pickle": "unpickles",
    "eval": "runs text as code",
    "exec": "runs text as code",
    "compile": "turns text into code",
}
ALIASES = {"np": "numpy", "pd": "pandas"}


def dotted(node: ast.expr) -> str:
    """The dotted name that an expression spells, such as torch.hub.load; empty when it spells none."""
    if isinstance(node, ast.Name):
        return ALIASES.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def unsafe(source: str) -> list[tuple[int, str]]:
    """Line and reason of every use of something that can turn data into running code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if any(name == bad or name.startswith(bad + ".") for bad in FORBIDDEN_MODULES):
                found.append((node.lineno, f"imports {name}"))
            if name in FORBIDDEN_CALLS:
                found.append((node.lineno, f"{name} {FORBIDDEN_CALLS[name]}"))
        # Not only calls: a forbidden function handed on under another name is as bad. To give a name is none: a
        # setting may be called compile.
        used = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
        name = dotted(node) if used else ""
        if name in FORBIDDEN_CALLS:
            found.append((node.lineno, f"{name} {FORBIDDEN_CALLS[name]}"))
        if isinstance(node, ast.Attribute) and node.attr.endswith(("_object", "_object_list")):
            found.append((node.lineno, f"{node.attr}: the object collectives pickle"))
        refused = isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant) and node.value.value is False
        if isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "trust_remote_code") and not refused:
            found.append((node.value.lineno, f"{node.arg}="))
    return found


def test_the_package_never_unpickles() -> None:
    files = sorted((ROOT / "regard").rglob("*.py"))
    assert len(files) > 10
    found = [
        f"{path.relative_to(ROOT)}:{line}: {reason}"
        for path in files
        for line, reason in unsafe(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import pickle", "imports pickle"),
        ("import pickle as p", "imports pickle"),
        ("def f():\n    from pickle import loads", "imports pickle"),
        ("import joblib", "imports joblib"),
        ("import dill", "imports dill"),
        ("import shelve", "imports shelve"),
        ("import marshal", "imports marshal"),
        ("from torch.distributed import checkpoint", "imports torch.distributed.checkpoint"),
        ("torch.load(path, weights_only=True)", "torch.load unpickles"),
        ("read = torch.load", "torch.load unpickles"),
        ("from torch import load", "torch.load unpickles"),
        ("np.load(path)", "numpy.load can unpickle"),
        ("reader(path, allow_pickle=True)", "allow_pickle="),
        ("AutoModel.from_pretrained(name, trust_remote_code=True)", "trust_remote_code="),
        ("dist.broadcast_object_list(x)", "broadcast_object_list"),
        ("dist.all_gather_object(a, b)", "all_gather_object"),
        ("eval(text)", "eval runs"),
        ("exec(text)", "exec runs"),
    ],
)
def test_a_planted_use_is_found(source: str, reason: str) -> None:
    assert any(reason in sentence for _, sentence in unsafe(source))


@pytest.mark.parametrize(
    "source",
    ["model.eval()", "torch.compile(model)", "re.compile('a')", "safetensors.torch.load_file(path)", "json.load(file)"],
)
def test_what_is_safe_is_not_reported(source: str) -> None:
    assert unsafe(source) == []
