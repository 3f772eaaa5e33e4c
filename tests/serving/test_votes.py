"""Class votes: counted once per device, bounded, rate-limited, and without a way to the key or the rest of the API."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from regard.cli.explore import vote_address
from regard.errors import DataError
from regard.serving import ballot as votes
from regard.serving.ballot import Ballot, qr_code
from regard.serving.model_threads import BusyError, ModelShelf

KEY = "a-key-of-the-lecturer-only"
LECTURER = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
def ballot() -> Ballot:
    made = Ballot()
    made.address = "http://192.168.1.5:8790/vote"
    return made


@pytest.fixture
def hall(serve: Callable[..., Any], ballot: Ballot) -> Any:
    """A server as with --host and --key-file."""
    return serve(ModelShelf([], default=None), key=KEY, ballot=ballot)


def enter(hall: Any) -> dict[str, str]:
    """Open the page for voters as a new device."""
    cookie = hall.get("/vote/state").headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/vote"} <= {part.strip() for part in cookie.split(";")}
    return {"Cookie": cookie.split(";")[0]}


def test_a_class_votes_and_the_lecturer_sees_the_counts(hall: Any) -> None:
    assert hall.ask("POST", "/api/vote", {"choices": ["yes", "no"]}).status == 401
    opened = hall.ask("POST", "/api/vote", {"choices": ["yes", "no"]}, LECTURER).json
    assert opened["address"] == "http://192.168.1.5:8790/vote" and opened["qr"].startswith("data:image/svg+xml")
    devices = [enter(hall) for _ in range(3)]
    for device, choice in zip(devices, (0, 1, 1), strict=True):
        state = hall.ask("POST", "/vote/cast", {"question": opened["question"], "choice": choice}, device).json
        assert (state["choice"], state["choices"]) == (choice, ["yes", "no"])
    assert hall.get("/api/vote", **LECTURER).json["counts"] == [1, 2]
    hall.ask("POST", "/vote/cast", {"question": opened["question"], "choice": 0}, devices[2])  # it changes its vote
    assert hall.get("/api/vote", **LECTURER).json["counts"] == [2, 1]
    closed = hall.ask("POST", "/api/vote/close", {}, LECTURER).json
    assert closed == {"question": opened["question"], "counts": [2, 1], "open": False}
    late = hall.ask("POST", "/vote/cast", {"question": opened["question"], "choice": 1}, devices[0])
    assert late.status == 400 and "closed" in late.error
    hall.ask("POST", "/api/vote", {"choices": ["a", "b", "c"]}, LECTURER)
    assert hall.get("/api/vote", **LECTURER).json["counts"] == [0, 0, 0]


def test_voters_get_the_page_and_nothing_else(hall: Any, ballot: Ballot) -> None:
    """Without the key: no results, no models, no traces; and the key is in nothing that a voter can read."""
    ballot.ask(["yes", "no"])
    for path in ("/api/vote", "/api/models", "/api/traces/x", "/api/vote/close"):
        assert hall.get(path).status == 401, path
    for path in ("/vote/close", "/vote/../api/models", "/vote/page.html", "/vote/"):
        assert hall.get(path).status in (200, 400, 401, 403, 404, 405), path
        assert KEY not in hall.get(path).content.decode()
    assert hall.ask("POST", "/vote/state", {}).status in (401, 405)
    read = b"".join(hall.get(path).content for path in ("/vote", "/vote/page.js", "/vote/page.css", "/vote/state"))
    assert KEY not in read.decode() and b"counts" not in hall.get("/vote/state").content
    assert "default-src 'self'" in hall.get("/vote").headers["content-security-policy"]
    assert not re.search(rb"<script>|<style|https?://", hall.get("/vote").content)


def test_hostile_votes(hall: Any, ballot: Ballot) -> None:
    question = ballot.ask(["yes", "no"]).id
    device = enter(hall)
    forged = {"Cookie": "regard-device=1234567890.deadbeefdeadbeefdeadbeefdeadbeef"}
    for headers, body, status in (
        ({}, {"question": question, "choice": 0}, 403),
        (forged, {"question": question, "choice": 0}, 403),
        (device, {"question": question, "choice": 2}, 400),
        (device, {"question": question, "choice": -1}, 400),
        (device, {"question": question, "choice": 10**30}, 400),
        (device, {"question": question, "choice": "0"}, 400),
        (device, {"question": question, "choice": True}, 400),
        (device, {"question": "another", "choice": 0}, 400),
        (device, {"question": "x" * 1000, "choice": 0}, 400),
        (device, {"choice": 0}, 400),
        (device, b"{", 400),
        ({**device, "Origin": "http://elsewhere.example"}, {"question": question, "choice": 0}, 403),
        ({**device, "Host": "elsewhere.example"}, {"question": question, "choice": 0}, 403),
        ({**device, "Sec-Fetch-Site": "cross-site"}, {"question": question, "choice": 0}, 403),
    ):
        answer = hall.ask("POST", "/vote/cast", body, {"Content-Type": "application/json", **headers})
        assert answer.status == status, (headers, body, answer.content)
    assert ballot.question is not None and ballot.question.counts == [0, 0]


def test_an_address_has_few_devices_and_a_question_few_votes(ballot: Ballot, monkeypatch: pytest.MonkeyPatch) -> None:
    question = ballot.ask(["yes", "no"])
    for _ in range(votes.DEVICES_PER_ADDRESS):
        ballot.vote(question.id, 0, ballot.new_device(), "10.0.0.1")
    with pytest.raises(BusyError, match="too many devices"):
        ballot.vote(question.id, 0, ballot.new_device(), "10.0.0.1")
    monkeypatch.setattr(votes, "MAX_VOTES", votes.DEVICES_PER_ADDRESS + 1)
    last = ballot.new_device()
    ballot.vote(question.id, 1, last, "10.0.0.2")
    ballot.vote(question.id, 1, last, "10.0.0.2")  # once more, but it counts once
    with pytest.raises(BusyError, match="all the votes"):
        ballot.vote(question.id, 1, ballot.new_device(), "10.0.0.3")
    assert question.counts == [votes.DEVICES_PER_ADDRESS, 1]


def test_requests_are_limited_by_address_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    ballot = Ballot(clock=lambda: now[0])
    for _ in range(votes.REQUESTS):
        ballot.check_rate("10.0.0.1")
    with pytest.raises(BusyError, match="too many requests"):
        ballot.check_rate("10.0.0.1")
    ballot.check_rate("10.0.0.2")
    now[0] += votes.SECONDS
    ballot.check_rate("10.0.0.1")
    monkeypatch.setattr(votes, "MAX_ADDRESSES", 5)
    for number in range(50):
        ballot.check_rate(f"10.0.1.{number}")
    assert len(ballot._requests) == 5


def test_questions_are_bounded(ballot: Ballot) -> None:
    for choices in (["one"], ["x"] * 9, ["", "b"], ["a", "b" * 301]):
        with pytest.raises(DataError, match="2 to 8 choices"):
            ballot.ask(choices)
    assert ballot.knows(ballot.new_device()) and not ballot.knows("") and not ballot.knows(Ballot().new_device())


def test_the_address_of_voters_has_a_name_that_they_can_reach() -> None:
    assert vote_address("0.0.0.0", ["192.168.1.5"], 8790) == "http://192.168.1.5:8790/vote"
    assert vote_address("192.168.1.7", [], 80) == "http://192.168.1.7:80/vote"
    assert vote_address("::", ["fd00::5"], 8790) == "http://[fd00::5]:8790/vote"
    assert qr_code("http://192.168.1.5:8790/vote").startswith("data:image/svg+xml")


def test_without_a_ballot_there_is_no_vote(client: Any) -> None:
    """On the machine's own address nobody else could vote."""
    assert client.get("/vote").status == 404 and client.get("/api/models").json["votes"] is False
