"""The import rule: the folders of regard/ stand in an order, and a part imports only from parts above it.

The same holds inside the parts that have folders of their own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORDER = (
    "text",
    "arrays",
    "demo",
    "positions",
    "attention",
    "layers",
    "models",
    "kernels",
    "decoding",
    "evaluation",
    "look",
    "interop",
    "api",
    "recipes",
    "tasks",
    "training",
    "compare",
    "convert",
    "exercises",
    "serving",
    "scale",
    "cli",
)
ABOVE_ALL = ("errors", "version", "system", "machine", "traits", "registry", "settings")
ALL_PARTS = (*ABOVE_ALL, *ORDER)


def imported_modules(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that is imported anywhere in a file, also inside functions.

    `from x import y` gives x.y, since y may be a module; package is what relative imports start from.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = ".".join(package.split(".")[: 1 - node.level or None]) if node.level else ""
            module = ".".join(filter(None, [start, node.module]))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def violations(root: Path) -> list[str]:
    """What breaks the rule under root/regard, as `file:line: sentence`."""
    found = []
    for path in sorted((root / "regard").rglob("*.py")):
        place = path.relative_to(root)
        part = place.parts[1].removesuffix(".py")
        if part in ("__init__", "__main__"):
            continue  # the face of the package: a lazy table of names of all parts
        if part not in ALL_PARTS:
            found.append(f"{place}:1: {part} has no place in the order of the parts")
            continue
        package = ".".join(place.parts[:-1])
        for line, name in imported_modules(ast.parse(path.read_text(encoding="utf-8")), package):
            package_name, _, rest = name.partition(".")
            if package_name != "regard":
                continue
            imported = rest.partition(".")[0]
            if imported not in ALL_PARTS:
                found.append(f"{place}:{line}: {part} imports {name}, the face that stands below every part")
            elif imported != part and ALL_PARTS.index(imported) > ALL_PARTS.index(part):
                found.append(f"{place}:{line}: {part} imports {name}, which stands below it")
    return found


def test_parts_import_only_from_parts_above() -> None:
    assert violations(ROOT) == []


# The order inside the parts that have folders of their own: modules and folders, by name.
ORDER_INSIDE = {
    "models": (
        "layer_names",
        "config",
        "decoding_state",
        "protocols",
        "attention_layers",
        "recurrent",
        "stack",
        "torch_weights",
        "transformer",
        "pointer_generator",
        "language_model",
        "encoders",
        "word_vectors",
        "arrays",
        "presets",
        "folder",
    ),
    "text": (
        "random_streams",
        "chat",
        "files",
        "tokenizers",
        "language_names",
        "text_frame",
        "placeholders",
        "batches",
        "augment",
        "check",
    ),
    "decoding": (
        "requests",
        "searches",
        "decoder_layout",
        "model_snapshot",
        "cpu",
        "gpu",
        "model_step",
        "running_batch",
        "ensemble",
        "module_decoding",
        "engine",
        "forced",
        "ctc",
        "benchmark",
    ),
    "look": (
        "lecture_examples",
        "trace",
        "heads",
        "inside",
        "pictures",
        "attribution",
        "recurrent",
        "embeddings",
        "source",
        "page",
        "slides",
    ),
    "interop": (
        *("weight_table", "rotary_order", "supported_settings", "files", "translator_tokens", "families"),
        *(
            "marian_tokenizers",
            "marian_folder",
            "translators",
            "chat_template",
            "single_files",
            "ctranslate2_import",
            "argos_import",
            "word_vectors_import",
            "importing",
            "card",
            "comparison",
            "exports",
        ),
    ),
    "training": ("recipe", "prepared", "signals", "parallel", "state", "checkpoint", "loop", "budget", "run"),
}
# (file, what it imports from below): the reason
EXCEPTIONS_INSIDE = {
    ("interop/importing.py", "card"): "the import writes the card, which describes what was imported",
    ("interop/importing.py", "comparison"): "an import can be checked at once, by `check`",
    ("text/tokenizers/word_table.py", "batches"): "it returns Rows, the form in which batches hold sentences",
    ("text/tokenizers/word_table.py", "augment"): "it draws among the variants of a word, and names their type",
    ("text/batches/pairs.py", "augment"): "PairData augments its pairs in every epoch; augmentation works on Rows",
    ("decoding/searches/speculative.py", "model_step"): "it searches with two models, so it runs them itself",
    ("decoding/searches/speculative.py", "ensemble"): "it searches with two models, so it runs them itself",
    ("look/trace/trace.py", "pictures"): "Trace.save draws the trace; imported when it is called",
    ("look/trace/trace.py", "page"): "Trace.explore and notebooks show the page; imported when they are called",
    ("look/trace/inputs/input_trace.py", "page"): "as Trace.explore",
    ("look/trace/tracing.py", "heads"): "a trace can be made with some heads switched off",
}


def imports_from_below(root: Path) -> dict[tuple[str, str], str]:
    """(file, what it imports from below in its part) -> `file:line: sentence`; also what the order does not name."""
    below = {}
    for part, order in ORDER_INSIDE.items():
        for path in sorted((root / "regard" / part).rglob("*.py")):
            file = path.relative_to(root / "regard")
            entry = file.parts[1].removesuffix(".py")
            if entry == "__init__":
                continue  # a table of names, or only a docstring
            if entry not in order:
                below[str(file), entry] = f"regard/{file}:1: {entry} has no place in the order of {part}"
                continue
            package = ".".join(("regard", *file.parts[:-1]))
            for line, name in imported_modules(ast.parse(path.read_text(encoding="utf-8")), package):
                imported = name.removeprefix(f"regard.{part}.").partition(".")[0]
                if name.startswith(f"regard.{part}.") and imported in order[order.index(entry) + 1 :]:
                    below[str(file), imported] = f"regard/{file}:{line}: {entry} imports {name}, which stands below it"
    return below


def test_modules_of_a_part_import_only_from_modules_above() -> None:
    below = imports_from_below(ROOT)
    assert [sentence for key, sentence in below.items() if key not in EXCEPTIONS_INSIDE] == []
    assert EXCEPTIONS_INSIDE.keys() - below.keys() == set()  # an exception that is no longer needed goes


@pytest.mark.parametrize("part", ["decoding", "training"])
def test_the_docstring_of_a_part_shows_this_order(part: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / "regard" / part / "__init__.py").read_text(encoding="utf-8")))
    assert docstring is not None
    columns = [line.strip().split("  ")[0] for line in docstring.splitlines() if line.startswith("    ")]
    assert tuple(name.rstrip("/") for column in columns for name in column.split(", ")) == ORDER_INSIDE[part]


@pytest.mark.parametrize(
    ("file", "source", "imported"),
    [
        ("training/state/a.py", "from regard.training.loop.loop import Loop", "loop"),
        ("training/signals.py", "from .run import training_run", "run"),
        ("training/prepared.py", "def f():\n    import regard.training.budget.fit", "budget"),
        ("decoding/requests.py", "from regard.decoding import engine", "engine"),
        ("training/helpers.py", "", "helpers"),
    ],
)
def test_a_planted_import_from_below_is_found(tmp_path: Path, file: str, source: str, imported: str) -> None:
    path = tmp_path / "regard" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert list(imports_from_below(tmp_path)) == [(file, imported)]


def test_imports_from_above_and_beside_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "regard/training/loop/a.py"
    path.parent.mkdir(parents=True)
    path.write_text("from regard.training.loop.b import x\nfrom regard.training.state import y\nimport regard.text")
    assert imports_from_below(tmp_path) == {}


LESSON = ("positions", "attention", "layers", "models")
ENGINE = (
    "regard.kernels",
    "triton",
    "ctypes",
    "subprocess",
    "os.environ",
    "os.getenv",
    "torch.cuda.graph",
    "torch.cuda.CUDAGraph",
)


def engine_imports(root: Path) -> list[str]:
    """Imports and uses of kernels, compilers, CUDA graphs and environment variables in the lesson's folders."""
    found = []
    for part in LESSON:
        for path in sorted((root / "regard" / part).rglob("*.py")):
            place = path.relative_to(root)
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = [*imported_modules(tree, ".".join(place.parts[:-1]))]
            names += [(node.lineno, ast.unparse(node)) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
            for line, name in names:
                if any(name == forbidden or name.startswith(f"{forbidden}.") for forbidden in ENGINE):
                    found.append(f"{place}:{line}: {name}")
    return found


def test_the_lesson_is_plain_pytorch() -> None:
    assert engine_imports(ROOT) == []


@pytest.mark.parametrize(
    "source",
    [
        "from regard.kernels.training import fuse",
        "def f():\n    import triton.language as tl",
        "import ctypes",
        "import os\nos.environ['A']",
        "from os import environ",
        "graph = torch.cuda.CUDAGraph()",
    ],
)
def test_a_planted_engine_is_found(tmp_path: Path, source: str) -> None:
    path = tmp_path / "regard/layers/a.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert len(engine_imports(tmp_path)) == 1


def test_the_rule_sees_the_package() -> None:
    """An empty walk would pass; the parts that import each other for sure must be seen."""
    tree = ast.parse((ROOT / "regard/attention/dispatch.py").read_text(encoding="utf-8"))
    names = {name for _, name in imported_modules(tree, "regard.attention")}
    assert any(name.startswith("regard.attention.") for name in names)


@pytest.mark.parametrize(
    ("file", "source", "sentence"),
    [
        ("text/a.py", "from regard.attention import attend", "text imports regard.attention.attend"),
        ("text/a.py", "import regard.models.folder", "text imports regard.models.folder"),
        ("layers/a.py", "def f():\n    from regard.cli import main", "layers imports regard.cli.main"),
        ("layers/a.py", "if TYPE_CHECKING:\n    from regard.models import X", "layers imports regard.models.X"),
        ("layers/a.py", "from ..models import X", "layers imports regard.models.X"),
        ("layers/a.py", "from .. import models", "layers imports regard.models"),
        ("layers/deep/a.py", "from ...models import X", "layers imports regard.models.X"),
        ("layers/a.py", "import_module('regard.models')", "layers imports regard.models"),
        ("layers/a.py", "import regard", "the face"),
        ("layers/a.py", "from regard import attend", "the face"),
        ("errors.py", "from regard.text import corpus", "errors imports regard.text.corpus"),
        ("utils/a.py", "", "utils has no place in the order"),
        ("helpers.py", "", "helpers has no place in the order"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, source: str, sentence: str) -> None:
    path = tmp_path / "regard" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    (found,) = violations(tmp_path)
    assert found.startswith(f"regard/{file}:") and sentence in found


@pytest.mark.parametrize(
    "source",
    [
        "from regard.attention import attend",
        "from regard import errors, positions",
        "from . import block",
        "from .block import Block",
        "from ..positions.rotary import Rotary",
        "import torch, regard.errors",
        "from transformers.models import bert",
    ],
)
def test_what_is_allowed_is_not_reported(tmp_path: Path, source: str) -> None:
    path = tmp_path / "regard/layers/a.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert violations(tmp_path) == []


def test_architecture_page_shows_this_order() -> None:
    """The tree on docs/develop/architecture.md lists the parts in the order that is enforced here."""
    tree = (ROOT / "docs/develop/architecture.md").read_text(encoding="utf-8").split("```")[1]
    folders = [line.split("/")[0].strip() for line in tree.splitlines() if line.startswith("  ")]
    assert [folder for folder in folders if folder in ORDER] == list(ORDER)
