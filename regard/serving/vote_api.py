"""The routes of class votes: the voters' page and its requests, and the lecturer's, which need the server's key."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response

from regard.serving.ballot import Ballot, Question, qr_code
from regard.serving.explorer_api import as_json
from regard.serving.request_bodies import QuestionBody, VoteBody

VOTE_PAGE = Path(__file__).with_name("vote_page")
COOKIE = "regard-device"
COOKIE_SECONDS = 86_400
OPEN_PATHS = {"/vote", "/vote/state", "/vote/page.js", "/vote/page.css"}  # for voters, who have no key
OPEN_POSTS = {"/vote/cast"}


def vote_routes(ballot: Ballot) -> APIRouter:
    """Return the routes under /vote for voters, and under /api/vote for the lecturer."""
    routes = APIRouter()

    @routes.get("/vote")
    async def page() -> Response:
        return FileResponse(VOTE_PAGE / "index.html")

    @routes.get("/vote/page.{suffix}")
    async def part(suffix: str) -> Response:
        return FileResponse(VOTE_PAGE / f"page.{'js' if suffix == 'js' else 'css'}")

    @routes.get("/vote/state")
    async def state(request: Request) -> Response:
        ballot.check_rate(address_of(request))
        return voter_state(ballot, request)

    @routes.post("/vote/cast")
    async def cast(body: VoteBody, request: Request) -> Response:
        ballot.check_rate(address_of(request))
        device = request.cookies.get(COOKIE, "")
        if not ballot.knows(device):  # the page asks for the state first, which sets the cookie
            message = "this device has no cookie of this server: allow cookies and reload the page"
            return as_json({"error": message}, status=403)
        ballot.vote(body.question, body.choice, device, address_of(request))
        return voter_state(ballot, request)

    @routes.post("/api/vote")
    async def ask(body: QuestionBody) -> Response:
        question = ballot.ask(body.choices)
        return as_json(result(question) | {"address": ballot.address, "qr": qr_code(ballot.address)})

    @routes.get("/api/vote")
    async def results() -> Response:
        return as_json(result(ballot.question))

    @routes.post("/api/vote/close")
    async def close() -> Response:
        ballot.close()
        return as_json(result(ballot.question))

    return routes


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def voter_state(ballot: Ballot, request: Request) -> Response:
    """Return the open question and the vote of this device; a device without a cookie gets one."""
    device, question = request.cookies.get(COOKIE, ""), ballot.question
    known = ballot.knows(device)
    content = {
        "question": question.id if question else None,
        "choices": list(question.choices) if question else [],
        "open": question is not None and question.open,
        "choice": question.votes.get(device) if question and known else None,
    }
    response = as_json(content)
    if not known:
        response.set_cookie(
            COOKIE, ballot.new_device(), max_age=COOKIE_SECONDS, path="/vote", httponly=True, samesite="strict"
        )
    return response


def result(question: Question | None) -> dict[str, object]:
    if question is None:
        return {"question": None, "counts": [], "open": False}
    return {"question": question.id, "counts": question.counts, "open": question.open}
