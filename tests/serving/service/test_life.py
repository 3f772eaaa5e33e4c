"""The life of a server: start, many clients at once, reload, failing models, drain."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from regard.api.translator import Translator
from regard.decoding.cpu import c_search
from tests.serving.conftest import WATCHDOG
from tests.serving.service.conftest import Running, make_service
from tests.serving.service.serve_process import Process

ASK = {"q": "Bonjour.", "source": "fr", "target": "en"}
SENTENCES = [line.strip() for line in Path("benchmarks/data/everyday.fr.txt").read_text(encoding="utf-8").splitlines()]


def test_every_answer_under_load_is_that_of_the_text_alone(server: Running, translator: Translator) -> None:
    """Lists, alternatives and single texts of 16 clients, in whatever batches they meet."""
    texts = SENTENCES[:120]
    expected = {text: translator.translate(text).text for text in texts}
    best_two = {text: [x.text for x in translator.translate(text, alternatives=2).alternatives] for text in texts[:10]}

    def check(i: int) -> None:
        if i % 10 == 0:
            several = texts[i : i + 20]
            answer = server.post("/translate", {**ASK, "q": several}).json
            assert answer["translatedText"] == [expected[text] for text in several]
        elif i % 10 == 1:
            text = texts[i % 10]
            answer = server.post("/translate", {**ASK, "q": text, "alternatives": 1}).json
            assert [answer["translatedText"], *answer["alternatives"]] == best_two[text]
        else:
            assert server.post("/translate", {**ASK, "q": texts[i]}).json == {"translatedText": expected[texts[i]]}

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(check, range(len(texts))))
    rows = [line for line in server.get("/metrics").content.decode().splitlines() if "batch_rows_sum" in line]
    batches = [line for line in server.get("/metrics").content.decode().splitlines() if "batch_rows_count" in line]
    assert float(rows[0].split()[-1]) > float(batches[0].split()[-1])  # some batches had several rows


def test_attention_beside_other_batches(
    start: Callable[..., Running], translators: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches at a time: the weights of one are recorded while the other runs."""
    monkeypatch.setattr(c_search, "usable_threads", lambda: 2)
    server = start(make_service({"fr-en": translators["fr-en"]}))
    fields = [{**ASK, "q": text, "attention": i % 2 == 0} for i, text in enumerate(SENTENCES[:8])]
    alone = [server.post("/translate", each).json for each in fields]
    with ThreadPoolExecutor(8) as pool:
        for answer, expected in zip(
            pool.map(lambda each: server.post("/translate", each), fields * 4), alone * 4, strict=True
        ):
            assert answer.status == 200, answer.content
            assert answer.json["translatedText"] == expected["translatedText"]
            assert ("alignment" in expected) == ("alignment" in answer.json)
            if "alignment" in expected:
                assert answer.json["alignment"]["pairs"] == expected["alignment"]["pairs"]


def test_a_client_that_disconnects_leaves_the_queue(
    start: Callable[..., Running], translators: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c_search, "usable_threads", lambda: 1)  # for one batch at a time
    service = make_service({"fr-en": translators["fr-en"]})
    model = service.models.get("fr-en")
    assert model is not None
    entered, release, translated = threading.Event(), threading.Event(), []
    translator = model.load()
    plain = translator.translate

    def slow(texts: Any, **options: Any) -> Any:
        translated.append(list(texts))
        entered.set()
        assert release.wait(WATCHDOG)
        return plain(texts, **options)

    monkeypatch.setattr(translator, "translate", slow)
    server = start(service)
    connections = [HTTPConnection("127.0.0.1", server.port, timeout=WATCHDOG) for _ in range(2)]
    for connection, text in zip(connections, ("Un.", "Deux."), strict=True):
        connection.request("POST", "/translate", json.dumps({**ASK, "q": text}), {"Content-Type": "application/json"})
        assert entered.wait(WATCHDOG)
    wait_until(lambda: len(model.batcher) == 2)
    connections[1].close()
    wait_until(lambda: len(model.batcher) == 1)
    release.set()
    assert connections[0].getresponse().status == 200
    assert translated == [["Un."]]
    wait_until(lambda: b"regard_cancelled_total 1.0" in server.get("/metrics").content)


def test_a_model_that_fails_harms_no_other_and_is_loaded_when_it_is_repaired(
    start: Callable[..., Running], translators: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "en-fr"
    shutil.copytree(translators["en-fr"], folder)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-100])
    service = make_service({"fr-en": translators["fr-en"], "en-fr": folder})
    server = start(service)
    service.models.load()
    backwards = {**ASK, "source": "en", "target": "fr"}
    failed = server.post("/translate", backwards)
    assert failed.status == 503 and "'en-fr' could not be loaded" in failed.error
    assert server.post("/translate", ASK).json == {"translatedText": "Good morning."}
    assert server.get("/ready").status == 200 and server.get("/ready").json["models"]["en-fr"]["state"] == "failed"
    (folder / "model.safetensors").write_bytes(weights)
    assert service.models.reload() == ["en-fr"]
    assert server.post("/translate", {**backwards, "q": "Good morning."}).json["translatedText"].startswith("Bonjour")
    assert service.models.reload() == []  # nothing has changed
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"].popitem()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert service.models.reload() == []  # the damaged folder is refused, and the model stays
    assert "the model that was loaded before stays in use" in capfd.readouterr().err
    assert server.post("/translate", backwards).status == 200


def test_a_changed_folder_is_loaded_while_the_server_answers(
    start: Callable[..., Running], translators: dict[str, Path], tmp_path: Path
) -> None:
    """The folder is replaced by the model of the other direction, so that answers differ; no request fails."""
    folder = tmp_path / "model"
    shutil.copytree(translators["fr-en"], folder)
    service = make_service({"fr-en": folder})
    server = start(service)
    assert server.post("/translate", ASK).json == {"translatedText": "Good morning."}
    answers: list[Any] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            answers.append(server.post("/translate", ASK))

    asking = threading.Thread(target=ask)
    asking.start()
    shutil.copytree(translators["en-fr"], tmp_path / "new")
    folder.rename(tmp_path / "old")
    (tmp_path / "new").rename(folder)
    assert service.models.reload() == ["fr-en"]
    wait_until(lambda: bool(answers) and answers[-1].json != {"translatedText": "Good morning."})
    stop.set()
    asking.join(WATCHDOG)
    assert {answer.status for answer in answers} == {200}


def test_a_translation_through_another_language(
    start: Callable[..., Running], translators: dict[str, Path], tmp_path: Path
) -> None:
    """The model from English to French poses as one to German, so that French to German needs English between."""
    folder = tmp_path / "en-de"
    shutil.copytree(translators["en-fr"], folder)
    service = make_service({"fr-en": translators["fr-en"]})
    first, second = service.models.get("fr-en"), make_service({"en-fr": folder}).models.get("en-fr")
    assert first is not None and second is not None
    second.languages = ("en", "de")
    service.models = type(service.models)([first, second])
    server = start(service)
    answer = server.post("/translate", {**ASK, "target": "de", "alternatives": 1})
    english = first.load().translate("Bonjour.").text
    expected = second.load().translate(english, alternatives=2).alternatives
    assert answer.json == {"translatedText": expected[0].text, "alternatives": [expected[1].text]}
    assert answer.headers["x-pivot"] == "en"
    assert {entry["code"]: entry["targets"] for entry in server.get("/languages").json}["fr"] == ["de", "en", "fr"]
    refused = server.post("/translate", {**ASK, "target": "de", "attention": True})
    assert refused.status == 400 and "not available for a translation through another language" in refused.error
    assert "x-pivot" not in server.post("/translate", ASK).headers


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WATCHDOG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    key_file = tmp_path / "keys.txt"
    key_file.write_text("anna:the-first-key-of-this-test\n")
    running = Process("fr-en", "--key-file", str(key_file), "--log", "json", "--drain", "60", log=tmp_path / "log.txt")
    yield running
    running.process.kill()
    running.process.wait()


def test_signals_reload_and_drain(process: Process, tmp_path: Path) -> None:
    """One process for all of it: the first answer, SIGHUP, the access log, SIGTERM with requests in flight."""
    client, header = process.client, {"Authorization": "Bearer the-first-key-of-this-test"}
    private = {**ASK, "q": "Mon secret est grand."}
    assert (
        client.post("/translate", private, **header, **{"X-Request-Id": "my-id-1"}).headers["x-request-id"] == "my-id-1"
    )
    (tmp_path / "keys.txt").write_text("carl:the-second-key-of-this-test\n")
    process.process.send_signal(signal.SIGHUP)
    wait_until(lambda: client.post("/translate", private, **header).status == 401)
    header = {"Authorization": "Bearer the-second-key-of-this-test"}
    large = {**ASK, "q": [f"{sentence} {i}" for i, sentence in enumerate(SENTENCES[:24])]}
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(client.post("/translate", large, **header))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: client.get("/ready", **header).json["models"]["fr-en"]["queue"] == 4)
    process.process.send_signal(signal.SIGTERM)
    wait_until(lambda: client.get("/ready").status == 503)
    assert client.post("/translate", private, **header).status == 503
    for thread in threads:
        thread.join(WATCHDOG)
    assert [answer.status for answer in answers] == [200] * 4
    assert process.process.wait(WATCHDOG) == 143
    log = process.log.read_text()
    entries = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert entries[0]["id"] == "my-id-1" and entries[0]["key"] == "anna" and entries[0]["route"] == "/translate"
    assert (entries[0]["status"], entries[0]["texts"]) == (200, 1) and entries[0]["tokens"] > 5
    assert "secret" not in log and "key-of-this-test" not in log and "Traceback" not in log
