"""What holds for every test: one seed, one thread a worker, and in CI no test that quietly does not run."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import typer.testing

ALLOWED_SKIPS = Path(__file__).parent / "allowed_skips.txt"
DEVICES = ("CUDA", "MPS", "COMPILER")  # the last one for C
IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")


def pytest_configure(config: pytest.Config) -> None:
    # `make test-all` asks for the slow tests too, and for more examples of each property.
    examples = 6 if config.option.markexpr == "not slow" else 25
    hypothesis.settings.register_profile("regard", deadline=None, max_examples=examples, derandomize=IN_CI)
    hypothesis.settings.load_profile("regard")
    gc.disable()  # until pytest_collection_finish
    typer.testing._get_command = build_commands_once(typer.testing._get_command)  # type: ignore[attr-defined]
    os.environ.setdefault("MPLBACKEND", "Agg")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell starts what it runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Read by torch when it is imported, here and in the processes that tests start.
        os.environ["OMP_NUM_THREADS"] = "1"


def build_commands_once(build: Callable[..., Any]) -> Callable[..., Any]:
    """Let CliRunner use the commands of its last call: building all of them takes a quarter of a second."""
    built: dict[Any, Any] = {}

    def get_command(app: Any) -> Any:
        callbacks = (app, *(info.callback for info in app.registered_commands))  # a test may replace one
        if callbacks not in built:
            built[callbacks] = build(app)
        return built[callbacks]

    return get_command


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the modules and tests, which live until the end, from all garbage collections to come."""
    gc.enable()
    gc.freeze()
    # Triton's bindings report what still exists when Python exits; until then pytest collects several times.
    atexit.register(gc.unfreeze)


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Tests of the repository itself do without torch, so it is not imported on their account.
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Whatever is skipped without CUDA is a test for `make test-gpu`.
        if any(str(mark.kwargs.get("reason", "")).startswith("CUDA") for mark in item.iter_markers("skipif")):
            item.add_marker(pytest.mark.gpu)
    # A long test that begins last leaves the other workers without work.
    items.sort(key=lambda item: (asks_for_docs(item), not is_long(item)))  # the docs last, when they are built


def is_long(item: pytest.Item) -> bool:
    """Whether a test runs for many seconds: Triton's interpreter, mypy, the fuzz, and pages whose examples train."""
    names = ("test_types.py", "test_fuzz.py", "test_examples.py", "test_golden.py")
    return "interpret" in getattr(item, "fixturenames", ()) or item.path.name in names


def asks_for_docs(item: pytest.Item) -> bool:
    return "built_docs" in getattr(item, "fixturenames", ())


# Sphinx takes a minute, and many tests mostly wait. So it begins with the first test, and yields to all others.
# The pages of source code, hundreds of them, are left to `make docs`, and most of the reference to slow tests.
BUILD = """
nice -n 5 "$0" -m sphinx -W --keep-going -q -b html -D extensions=myst_parser,sphinx.ext.autodoc,sphinx.ext.mathjax \\
  -t "$2" docs "$1/docs" > "$1/docs.said" 2>&1
echo $? > "$1/docs.ending" && mv "$1/docs.ending" "$1/docs.ended"
"""


@pytest.fixture(scope="session", autouse=True)
def docs_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first worker starts to build the documentation, if any test asks for it."""
    shared = tmp_path_factory.getbasetemp()
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        shared = shared.parent  # the folder of the whole run, not of this worker
    readers = [item for item in request.session.items if asks_for_docs(item)]
    if worker in (None, "gw0") and readers:
        depth = "whole" if any(item.get_closest_marker("slow") for item in readers) else "outline"  # see docs/conf.py
        command = ["sh", "-c", BUILD, sys.executable, str(shared), depth]
        nothing = subprocess.DEVNULL  # a worker talks to pytest by what it would inherit
        subprocess.Popen(command, cwd=Path(__file__).parents[1], stdin=nothing, stdout=nothing, stderr=nothing)
    return shared


@pytest.fixture(scope="session")
def built_docs(docs_folder: Path) -> Path:
    """The documentation, built once for all tests that look at it; any warning is an error."""
    ended = docs_folder / "docs.ended"
    while not ended.exists():
        time.sleep(0.1)
    assert ended.read_text() == "0\n", (docs_folder / "docs.said").read_text(encoding="utf-8")
    return docs_folder / "docs"


class Compiled:
    """Stands in for a Triton kernel: compiles it for an H100 with the arguments that it is given, and runs nothing."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.count, self.ptx = kernel, 0, ""

    def __getitem__(self, grid: Any) -> Any:
        return self.compile

    def compile(
        self,
        *arguments: Any,
        num_warps: int = 4,
        num_stages: int = 3,
        maxnreg: int | None = None,
        **constants: Any,
    ) -> None:
        import torch
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        pointers = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32", torch.int64: "*i64"}
        pointers |= {torch.uint8: "*u8", torch.bool: "*i1"}
        names = self.kernel.arg_names
        kinds = {
            name: pointers[one.dtype] if isinstance(one, torch.Tensor) else "i32" if isinstance(one, int) else "fp32"
            for name, one in zip(names, arguments, strict=False)
        }
        kinds |= dict.fromkeys(constants, "constexpr")
        source = ASTSource(self.kernel, kinds, {(names.index(name),): value for name, value in constants.items()})
        options = {"num_warps": num_warps, "num_stages": num_stages, "maxnreg": maxnreg}
        compile = getattr(self.kernel, "compile", triton.compile)  # see without_wgmma.py
        self.ptx = compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
        self.count += 1


@pytest.fixture(scope="session")
def interpreter() -> Iterator[subprocess.Popen[str]]:
    """The process of interpreted.py; Triton chooses its interpreter when a kernel is defined, so it is another one."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("CUDA: Triton comes for Linux on x86_64")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment["CUDA_VISIBLE_DEVICES"] = ""  # a process that has used CUDA cannot fork
    command = [sys.executable, str(Path(__file__).with_name("interpreted.py"))]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        yield process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a file that did not end in time runs in a child of the process


@pytest.fixture
def interpret(interpreter: subprocess.Popen[str], tmp_path: Path) -> Callable[..., None]:
    """Runs a test file as a script in Triton's interpreter, with these arguments; it must print this line."""

    def run(file: str, line: str, *arguments: str) -> None:
        assert interpreter.stdin is not None and interpreter.stdout is not None
        request = {"file": file, "folder": str(tmp_path), "arguments": arguments}
        print(json.dumps(request), file=interpreter.stdin, flush=True)
        code = "the process has ended"
        for answer in interpreter.stdout:
            code, _, folder = answer.rstrip("\n").partition(" ")
            if folder == str(tmp_path):  # and not that of a test whose time was over
                break
        assert code == "0", code + "\n" + (tmp_path / "stderr").read_text(encoding="utf-8")
        assert (tmp_path / "stdout").read_text(encoding="utf-8") == f"{line}\n"

    return run


@pytest.fixture
def compiled_kernel() -> type[Compiled]:
    """For tests that Triton's compiler takes what its interpreter takes."""
    return Compiled


# In CI a skipped test is a failed test, for a test that never runs proves nothing. The one exception is
# hardware that the machine lacks, listed in allowed_skips.txt. The reports are changed where they are made,
# inside the xdist worker, so the rule holds with and without xdist.


def read_allowed_skips(text: str) -> list[tuple[str, str]]:
    """The (node id pattern, device) pairs of allowed_skips.txt: lines of the form `pattern | CUDA: reason`."""
    pairs = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, bar, reason = line.partition(" | ")
        device, colon, why = reason.strip().partition(":")
        if not (bar and colon and why.strip() and device in DEVICES):
            raise pytest.UsageError(
                f"allowed_skips.txt, line {number}: {line!r} does not read `pattern | DEVICE: reason` "
                f"with a device of {', '.join(DEVICES)}; nothing else may be skipped in CI"
            )
        pairs.append((pattern.strip(), device))
    return pairs


def may_skip(node_id: str, message: str) -> bool:
    """Whether a skip is listed, and happened for the device that it is listed for; `*` stands for anything."""
    return any(
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), node_id) and device in message
        for pattern, device in read_allowed_skips(ALLOWED_SKIPS.read_text(encoding="utf-8"))
    )


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a report of a test that did not run, or whose failure was expected, into a failure."""
    if hasattr(report, "wasxfail"):
        message = f"marked xfail: {report.wasxfail}"
        del report.wasxfail
    elif report.skipped:
        message = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if may_skip(report.nodeid, message):
            return
    else:
        return
    report.outcome = "failed"
    report.longrepr = (
        f"{message}\nIn CI every test must run and pass. What needs CUDA, MPS or a compiler may be listed in "
        f"tests/allowed_skips.txt."
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> object:
    report = yield
    if IN_CI:
        refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> object:
    report = yield
    if IN_CI:
        refuse_skip(report)
    return report
