"""Two processes of `regard serve` behind a balancer, under load: a rolling restart, and a replica that is killed."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.serving.conftest import WATCHDOG, Answer, Client
from tests.serving.service.balancer import Balancer
from tests.serving.service.serve_process import Process

CLIENTS = 4
# A few long requests, so that each replica has one in flight at nearly every moment.
TEXTS = ["Jane visite l'Afrique en septembre"] * 24


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WATCHDOG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


class Load:
    """Clients that translate without a pause until `stop`. `answers` has what they got, by the ids of the requests."""

    def __init__(self, port: int) -> None:
        self.client, self.answers, self.stopped = Client(port), dict[str, Answer](), threading.Event()
        self.numbers = itertools.count()
        self.threads = [threading.Thread(target=self.translate) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def translate(self) -> None:
        while not self.stopped.is_set():
            request_id = f"request-{next(self.numbers)}"
            body = {"q": TEXTS, "source": "fr", "target": "en"}
            self.answers[request_id] = self.client.post("/translate", body, **{"X-Request-Id": request_id})

    def wait_for_more(self) -> None:
        """Wait for several answers to requests of each client that have not been sent yet."""
        enough = len(self.answers) + 4 * CLIENTS
        wait_until(lambda: len(self.answers) >= enough)

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(WATCHDOG)


class Replicas:
    """Processes with the model of the lectures, and their balancer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes, self.balancer = folder, list[Process](), Balancer([])

    def start(self) -> None:
        log = self.folder / f"log-{len(list(self.folder.iterdir()))}.txt"
        process = Process("fr-en=lecture", "--no-explore", "--threads", "1", "--drain", "60", log=log)
        self.processes.append(process)
        wait_until(lambda: process.client.get("/ready").status == 200)
        self.balancer.ports.append(process.client.port)

    def remove(self, process: Process) -> None:
        self.processes.remove(process)
        self.balancer.ports.remove(process.client.port)


@pytest.fixture(scope="module")
def all_replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    replicas = Replicas(tmp_path_factory.mktemp("logs"))
    yield replicas
    replicas.balancer.close()
    for process in replicas.processes:
        process.process.kill()
        process.process.wait()


@pytest.fixture
def replicas(all_replicas: Replicas) -> Replicas:
    """Two replicas that are ready."""
    while len(all_replicas.processes) < 2:
        all_replicas.start()
    return all_replicas


@pytest.fixture
def load(replicas: Replicas) -> Iterator[Load]:
    replicas.balancer.lost.clear()
    load = Load(replicas.balancer.port)
    yield load
    load.stop()


def test_a_rolling_restart_loses_no_request(replicas: Replicas, load: Load) -> None:
    for process in list(replicas.processes):
        load.wait_for_more()
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(WATCHDOG) == 143
        load.wait_for_more()  # from the other replica
        replicas.remove(process)
        replicas.start()
    load.wait_for_more()
    load.stop()
    assert [answer for answer in load.answers.values() if answer.status != 200] == []
    expected = {"translatedText": ["Jane visits Africa in September"] * len(TEXTS)}
    assert all(answer.json == expected for answer in load.answers.values())


def test_a_killed_replica_loses_its_requests_in_flight_only(replicas: Replicas, load: Load) -> None:
    load.wait_for_more()
    victim = replicas.processes[0]
    in_flight = replicas.balancer.running[victim.client.port]
    while True:  # a stopped process answers nothing more, so what is in flight now is lost
        wait_until(lambda: bool(in_flight))
        victim.process.send_signal(signal.SIGSTOP)
        time.sleep(0.2)  # the balancer reads what was answered before
        if in_flight:
            break
        victim.process.send_signal(signal.SIGCONT)
    expected = set(in_flight)
    victim.process.kill()
    victim.process.wait()
    load.wait_for_more()
    replicas.remove(victim)
    load.stop()
    assert set(replicas.balancer.lost) == expected
    failed = {request_id: answer for request_id, answer in load.answers.items() if answer.status != 200}
    assert set(failed) == expected, failed
    assert {answer.status for answer in failed.values()} == {502}
