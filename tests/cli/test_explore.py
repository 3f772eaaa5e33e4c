"""`regard explore`: what it opens, where it listens, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from typer.testing import Result

from regard.errors import UsageError

WATCHDOG = 60  # seconds
Command = Callable[..., Result]


class Running:
    """The command in a process of its own."""

    def __init__(self, *arguments: str | Path, **environment: str) -> None:
        command = [sys.executable, "-m", "regard", "explore", "--port", "0", *map(str, arguments)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env={**os.environ, **environment}, **pipes)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def ask(self, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.address}{path}", content, {"Content-Type": "application/json", **headers})
        with urlopen(request, timeout=WATCHDOG) as answer:
            return json.load(answer)

    def models(self) -> dict[str, Any]:
        return {model.pop("name"): model for model in self.ask("api/models")["models"]}

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Send a signal; the exit code and what stood on stderr."""
        self.process.send_signal(number)
        _, told = self.process.communicate(timeout=WATCHDOG)
        return self.process.returncode, told


@contextmanager
def running(*arguments: str | Path, **environment: str) -> Iterator[Running]:
    one = Running("--no-browser", *arguments, **environment)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


@pytest.fixture(scope="module")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import numpy as np

    from regard.look.trace.attention_map import Map
    from regard.look.trace.trace import Axis, Model, Token, Trace

    axes = {"source": Axis((Token("a"), Token("b")))}
    maps = {"enc_self": Map("source", "source", np.eye(2)[None, None])}
    model = Model("m", "encoder", {"encoder": 1}, 1, {"model": 4})
    return Trace(model=model, axes=axes, maps=maps).save(tmp_path_factory.mktemp("trace") / "two.json.gz")


@pytest.fixture
def no_torch(tmp_path: Path) -> dict[str, str]:
    """An environment where PyTorch cannot be imported."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('there is no torch here')")
    return {"PYTHONPATH": str(tmp_path)}


def test_the_page_needs_no_torch(no_torch: dict[str, str]) -> None:
    """So it is there before torch is; a model that cannot be loaded says so."""
    with running(**no_torch) as one:
        with urlopen(one.address, timeout=WATCHDOG) as page:
            assert page.headers["content-type"].startswith("text/html")
            assert "server" not in page.headers  # strangers need not know which one, and how old
        assert one.ask("health")["status"] == "ok"
        end = time.monotonic() + WATCHDOG
        while one.models()["fr-en"]["state"] == "loading" and time.monotonic() < end:
            time.sleep(0.02)
        assert "there is no torch here" in one.models()["fr-en"]["error"]


def test_without_arguments_the_shipped_models(no_torch: dict[str, str]) -> None:
    with running(**no_torch) as one:
        models = one.models()
    assert [name for name, model in models.items() if model["default"]] == ["fr-en"]
    assert models["fr-en"]["state"] != "waiting"
    assert models["shakespeare"]["state"] != "waiting" and models["shakespeare"]["kind"] == "writer"


def test_a_trace_opens_without_a_model(no_torch: dict[str, str], trace_file: Path) -> None:
    with running(trace_file, trace_file, **no_torch) as one:
        assert one.ask("api/models")["traces"] == [{"name": "two"}, {"name": "two-2"}]
        assert one.ask("api/traces/two")["axes"]["source"]["tokens"] == [{"text": "a"}, {"text": "b"}]
        assert {model["state"] for model in one.models().values()} == {"waiting"}
        assert not any(model["default"] for model in one.models().values())


def test_files_are_examples_for_a_model_that_reads_them(tmp_path: Path) -> None:
    from regard.cli.explore import check_files, sort_arguments
    from regard.serving.model_threads import ServedModel

    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.png").write_bytes(b"")
    given = ["fr-en", str(tmp_path / "a.png"), str(tmp_path / "other" / "a.png")]
    folders, traces, files = sort_arguments(given)
    assert list(folders) == ["fr-en"] and traces == {}
    assert files == {"a.png": tmp_path / "a.png", "a.png-2": tmp_path / "other" / "a.png"}
    with pytest.raises(UsageError, match=r"a\.png is an example for a model that reads images: name its folder, too"):
        check_files(files, [ServedModel("fr-en", folders["fr-en"])])


def test_folders_and_traces_together(models: dict[str, str], trace_file: Path, tmp_path: Path) -> None:
    """Two folders of one name get two names; the first is the default."""
    (tmp_path / "writer").symlink_to(models["translator"])
    with running(models["writer"], tmp_path / "writer", trace_file) as one:
        found = one.models()
        assert [name for name in found if not name.startswith("fr-en")][:2] == ["writer", "translator"]
        assert found["writer"]["default"] and found["fr-en"]["state"] == "waiting"
        answer = one.ask("api/trace", {"model": "translator", "text": "le chat", "search": {"name": "greedy"}})
        assert answer["model"]["name"] == "translator"


def test_ctrl_c_ends_it_quietly() -> None:
    with running() as one:
        one.ask("health")
        code, told = one.end()
    assert code == 130
    assert "limits: 1,048,576 bytes per request, 5,000 characters and 512 tokens per text" in told
    assert "Traceback" not in told and "Error" not in told


def test_sigterm_lets_a_request_end() -> None:
    body = {"model": "fr-en", "text": "Le chat dort.", "search": {"name": "greedy"}}
    request = "POST", "/api/trace", json.dumps(body), {"Content-Type": "application/json"}
    with running("fr-en") as one:
        line = HTTPConnection(one.address.removeprefix("http://").rstrip("/"), timeout=WATCHDOG)
        line.request(*request)
        before = json.load(line.getresponse())  # on a busy machine, loading the model could take longer than a drain
        line.request(*request)
        one.process.send_signal(signal.SIGTERM)
        answer = json.load(line.getresponse())
        assert one.process.wait(WATCHDOG) == 143
    assert answer["output"] == before["output"] == "The cat is sleeping."


def test_a_port_in_use_gives_the_next_one(no_torch: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running("--port", str(port), **no_torch) as one:
            got = int(one.address.rstrip("/").rpartition(":")[2])
            assert port < got < port + 20
            assert one.ask("health")["status"] == "ok"
            assert f"port {port} is in use; using port {got}" in one.end()[1]


def test_the_browser_is_opened(no_torch: dict[str, str], tmp_path: Path) -> None:
    note = tmp_path / "opened"
    script = tmp_path / "browser.py"
    script.write_text(f"import sys; open({str(note)!r}, 'a').write(sys.argv[1])")
    one = Running(BROWSER=f"{sys.executable} {script} %s", **no_torch)
    end = time.monotonic() + WATCHDOG
    while not (note.exists() and note.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    assert one.end()[0] == 130
    assert note.read_text() == one.address


def test_another_host_needs_names_and_a_key(no_torch: dict[str, str], tmp_path: Path) -> None:
    key = tmp_path / "key.txt"
    key.write_text("a-long-enough-key-for-this\n")
    with running("--host", "0.0.0.0", "--name", "Box.example", "--key-file", key, **no_torch) as one:
        assert one.address.startswith("http://0.0.0.0:")
        one.address = one.address.replace("0.0.0.0", "127.0.0.1")
        assert one.ask("health", Host="box.example")["status"] == "ok"
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Host": "evil.example"}):
            with pytest.raises(HTTPError) as refused:
                one.ask("api/models", **headers)
            assert refused.value.code == (403 if "Host" in headers else 401)
        assert one.ask("api/models", Authorization="Bearer a-long-enough-key-for-this")["models"]
        assert "a-long-enough-key-for-this" not in one.end()[1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no-such-model"], 4, "no model 'no-such-model': there is no folder"),
        (["no-such.json"], 3, "no-such.json: no such file"),
        (["{folder}"], 4, "is not a model folder: config.json: No such file"),
        (["{folder}/broken.json"], 3, "broken.json: not a trace, because it is not JSON"),
        (["{folder}/other.json"], 3, "other.json: not a trace: a trace is an object whose format is"),
        (["--host", "0.0.0.0"], 2, "name the address or host name that browsers will use"),
        (["--host", "192.0.2.7"], 2, "requests need a key: --key-file FILE. Make one with: python -c"),
        (["--host", "box.example"], 2, "requests need a key"),
        (["--key-file", "{folder}/none"], 2, "No such file"),
        (["--key-file", "{folder}/short.txt"], 2, "a key is one line of at least 16 characters without spaces"),
        (["--key-file", "{folder}/two.txt"], 2, "a key is one line of at least 16 characters without spaces"),
        (["--host", "no such host", "--key-file", "{folder}/good.txt"], 2, "--host no such host: "),
        (["--host", "192.0.2.7", "--key-file", "{folder}/good.txt"], 2, "cannot listen on 192.0.2.7"),
        (["--port", "70000"], 2, "65535"),
    ],
)
def test_what_cannot_be_done_is_explained(
    command: Command, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "two.txt").write_text("two words are not one key")
    (tmp_path / "good.txt").write_text("a-long-enough-key-for-this")
    given = [argument.format(folder=tmp_path) for argument in arguments]
    result = command("explore", "--no-browser", *given)
    assert result.exit_code == code
    assert message in result.output.replace("\n", " ")


def test_all_ports_in_use(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.serving import listener as listening

    monkeypatch.setattr(listening, "PORTS_TRIED", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = command("explore", "--no-browser", "--port", port)
    assert result.exit_code == 2
    assert f"port {port} is in use" in result.output
