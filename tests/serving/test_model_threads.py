"""Models behind the server: loaded in a thread, asked one at a time, with a bounded queue before each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from regard.errors import ModelError
from regard.serving.model_threads import BusyError, ModelShelf, ServedModel

FOLDER = Path(__file__).parents[1] / "data" / "demo-fr-en"
WATCHDOG = 60


class Fake(ServedModel):
    """A model whose face is what a function gives."""

    def __init__(self, name: str, load: Callable[[], Any], **options: Any) -> None:
        super().__init__(name, FOLDER, **options)
        self.load = load

    def _load(self) -> Any:
        face = self.load()
        self.state = "ready"
        return face


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WATCHDOG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_model_waits_until_it_is_asked_and_says_what_it_is() -> None:
    model = ServedModel("fr-en", FOLDER, device="cpu")
    assert (model.face, model.state, model.about) == ("translator", "waiting", None)
    assert model.submit(lambda face: face.translate("Le chat dort.").text).result(WATCHDOG) == "The cat sleeps."
    assert model.state == "ready" and model.error is None
    assert model.about is not None
    assert model.about["layers"] == {"encoder": 2, "decoder": 2}
    assert (model.about["kind"], model.about["heads"], model.about["width"]) == ("transformer", 4, 128)
    assert model.about["parameters"] == 1_367_040  # as `regard info fr-en` says
    assert (model.about["positions"], model.about["position_parameter"]) == ("rotary", None)


def test_one_thing_at_a_time_in_the_order_of_asking() -> None:
    inside, most, order = 0, 0, []

    def work(number: int) -> Callable[[Any], None]:
        def run(face: Any) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            time.sleep(0.002)
            order.append(number)
            inside -= 1

        return run

    model = Fake("fake", lambda: "face", queue_size=20)
    for done in [model.submit(work(i)) for i in range(20)]:
        done.result(WATCHDOG)
    assert most == 1
    assert order == list(range(20))


def test_the_queue_is_bounded_and_the_cancelled_are_passed_over() -> None:
    go, ran = threading.Event(), []
    model = Fake("fake", lambda: "face", queue_size=2)
    first = model.submit(lambda face: go.wait(WATCHDOG))
    wait_until(first.running)
    second, third = model.submit(lambda face: ran.append(2)), model.submit(lambda face: ran.append(3))
    with pytest.raises(BusyError, match="2 requests are already waiting for 'fake'"):
        model.submit(lambda face: None)
    assert second.cancel()
    go.set()
    third.result(WATCHDOG)
    assert ran == [3]


def test_an_error_reaches_who_asked_and_the_model_goes_on() -> None:
    model = Fake("fake", lambda: 5)
    with pytest.raises(ZeroDivisionError):
        model.submit(lambda face: face / 0).result(WATCHDOG)
    assert model.submit(lambda face: face + 1).result(WATCHDOG) == 6


def test_a_damaged_model_fails_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"kind": "transformer-lm"}')
    model = ServedModel("bad", tmp_path)
    assert model.face == "writer"
    with pytest.raises(ModelError, match=r"'bad' could not be loaded: .*no manifest\.json"):
        model.submit(lambda face: face).result(WATCHDOG)
    assert model.state == "failed" and model.error is not None and "no manifest.json" in model.error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not a model folder: config.json: No such file"),
        ("{", "has no valid kind of model"),
        ("[" * 100_000, "has no valid kind of model"),
        ('{"kind": "horse"}', "the kind of model 'horse' is unknown. Commands know only"),
        ('{"kind": []}', "has no valid kind of model"),
        ("7", "has no valid kind of model"),
    ],
)
def test_a_folder_that_is_no_model_is_refused_at_once(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=message):
        ServedModel("bad", tmp_path)


def test_the_server_answers_while_a_model_works_and_while_one_loads(serve: Callable[..., Any]) -> None:
    go = threading.Event()
    slow = Fake("slow", lambda: go.wait(WATCHDOG), queue_size=1)
    client = serve(ModelShelf([slow]))
    with ThreadPoolExecutor() as pool:
        try:
            asked = pool.submit(client.get, "/api/parameters?model=slow&name=x")
            wait_until(lambda: slow.state == "loading")
            assert client.get("/health").json["status"] == "ok"
            assert [model["state"] for model in client.get("/api/models").json["models"]] == ["loading"]
            busy = client.get("/api/parameters?model=slow&name=x")
            assert busy.status == 503
            assert int(busy.headers["retry-after"]) > 0
            assert "1 requests are already waiting for 'slow': try again later" in busy.error
        finally:
            go.set()
        assert asked.result(WATCHDOG).status == 500  # True has no weights


def test_a_client_that_goes_away_leaves_the_queue(serve: Callable[..., Any]) -> None:
    from http.client import HTTPConnection

    go = threading.Event()
    slow = Fake("slow", lambda: go.wait(WATCHDOG), queue_size=1)
    client = serve(ModelShelf([slow]))
    line = HTTPConnection("127.0.0.1", client.port, timeout=WATCHDOG)
    line.request("GET", "/api/parameters?model=slow&name=x")
    wait_until(lambda: slow._jobs.qsize() == 1)
    ((_, waiting),) = slow._jobs.queue
    assert not waiting.cancelled()
    line.close()
    wait_until(waiting.cancelled)
    go.set()
