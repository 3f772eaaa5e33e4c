"""The page as one file and in a notebook: what it holds, that nothing in a text becomes markup, and its policy."""

from __future__ import annotations

import base64
import hashlib
import json
import webbrowser
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import regard
from regard.errors import UsageError
from regard.look import trace_text, write_page
from regard.look.page.single_file import make_page
from regard.look.trace.attention_map import Map
from regard.look.trace.trace import Axis, Model, Token, Trace

EVIL = [
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "<!--",
    "]]>",
    "&quot;",
    "\u2028",
    "{x}",
]


def make_trace(words: list[str], name: str = "model") -> Trace:
    axes = {"source": Axis(tuple(map(Token, words)))}
    weights = [[[[1 / len(words)] * len(words)] * len(words)]]
    model = Model(name, "encoder", {"encoder": 1}, 1, {})
    return Trace(model, axes, {"enc_self": Map("source", "source", weights)}, source=" ".join(words))


class Elements(HTMLParser):
    """All elements with their attributes and what stands in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self.open = tag

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def data_of(page: str) -> Any:
    (found,) = [text for attributes, text in Elements(page).all("script") if attributes.get("id") == "regard-data"]
    return json.loads(found)


@given(
    words=st.lists(st.sampled_from(EVIL) | st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=6)
)
def test_any_text_stays_text(words: list[str]) -> None:
    trace = make_trace(words, name=words[0])
    page = make_page([trace, trace], state=f"text={words[0]}")
    elements = Elements(page)
    scripts = elements.all("script")
    assert [attributes for attributes, _ in scripts] == [{"type": "application/json", "id": "regard-data"}, {}]
    assert not elements.all("img") and "onerror" not in {
        key for _, attributes, _ in elements.found for key in attributes
    }
    assert "<" not in scripts[0][1]
    held = data_of(page)
    assert held == {"traces": [trace.to_dict()] * 2, "state": f"text={words[0]}"}
    assert [token.text for token in Trace.from_dict(held["traces"][0]).axes["source"].tokens] == words


def test_the_policy_allows_this_style_and_this_script_and_nothing_else() -> None:
    elements = Elements(make_page([make_trace(["a"])]))
    (policy,) = [a["content"] for a, _ in elements.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
    (style,) = elements.all("style")
    script = elements.all("script")[1]
    for name, (_, content) in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules.pop(name) == f"'sha256-{digest}'"
    assert rules == {"default-src": "'none'", "img-src": "data: blob:"}
    assert not [a for _, a, _ in elements.found if a.get("src") or "http" in str(a.get("href", ""))]


@pytest.mark.parametrize(("kinds", "state"), [({"enc_self"}, "tab=heads"), ({"cross"}, ""), (set(), "tab=decode")])
def test_it_opens_where_there_is_something_to_see(kinds: set[str], state: str, small: Any) -> None:
    face = small.small_face({"enc_self": "encoder", "cross": "transformer"}.get(next(iter(kinds), ""), "rnn-lm"))
    trace = trace_text(face, small.TEXT)
    assert kinds <= trace.maps.keys()
    assert data_of(make_page([trace]))["state"] == state
    assert data_of(make_page([trace], "tab=lab"))["state"] == "tab=lab"


def test_files(tmp_path: Path) -> None:
    trace = make_trace(["a"])
    written = write_page(tmp_path / "a.html", [trace])
    assert written.read_text("utf-8") == make_page([trace])
    with pytest.raises(UsageError, match=r"must end in \.html"):
        write_page(tmp_path / "a.txt", [trace])
    with pytest.raises(UsageError, match="at least one"):
        write_page(tmp_path / "a.html", [])


def test_explore_writes_and_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Any) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.chdir(tmp_path)
    trace = make_trace(["a"])
    assert trace.explore("a b.html", state="tab=lab") == Path("a b.html")
    assert opened == [(tmp_path / "a b.html").as_uri()]
    assert data_of(Path("a b.html").read_text("utf-8"))["state"] == "tab=lab"
    made = trace.explore()
    assert opened[1] == made.as_uri() and made.suffix == ".html" and made.parent != tmp_path
    trace.explore("b.html", show=False)
    assert len(opened) == 2


def test_a_translation_is_explored_as_it_was_made(tmp_path: Path, small: Any) -> None:
    translator = small.small_face("transformer")
    for found in translator.translate(small.TEXT, beam=3, alternatives=3, max_tokens=5, guard=False).alternatives:
        (held,) = data_of(found.explore(tmp_path / "a.html", show=False).read_text("utf-8"))["traces"]
        trace = Trace.from_dict(held)
        assert [step.chosen for step in trace.steps] == found.ids
        assert trace.output == found.text and trace.source == small.TEXT


def test_a_long_text_has_a_trace_a_part(tmp_path: Path) -> None:
    found = regard.load("fr-en").translate("Le chat dort.\nJane visite l'Afrique.", beam=1)
    held = data_of(found.explore(tmp_path / "a.html", show=False).read_text("utf-8"))["traces"]
    assert len(held) == len(found.parts) == 2
    assert [Trace.from_dict(one).source for one in held] == ["Le chat dort.", "Jane visite l'Afrique."]


def test_notebooks_get_a_frame_and_a_picture(small: Any) -> None:
    trace = trace_text(small.small_face("transformer"), small.TEXT)
    shown = trace._repr_mimebundle_()
    assert list(shown) == ["text/plain", "text/html", "image/png"]
    assert base64.b64decode(shown["image/png"]).startswith(b"\x89PNG")
    ((frame, inside),) = Elements(shown["text/html"]).all("iframe")
    assert Elements(shown["text/html"]).found[0][0] == "iframe" and inside == ""
    assert frame["srcdoc"] == make_page([trace])
    assert "<script" not in shown["text/html"]  # all of it is inside the attribute
    assert shown["text/plain"] == repr(trace) and len(repr(trace)) < 400


def test_a_notebook_shows_steps_where_there_is_no_attention(small: Any) -> None:
    shown = trace_text(small.small_face("rnn-lm"), small.TEXT[:3], max_tokens=1)._repr_mimebundle_()
    assert base64.b64decode(shown["image/png"]).startswith(b"\x89PNG")
    assert "no attention" in shown["text/plain"]
