"""LibreTranslate's API, with its real client and with plain requests."""

from __future__ import annotations

import json
from html import escape
from typing import Any
from urllib.parse import urlencode

import pytest
from libretranslatepy import LibreTranslateAPI

from regard.api.translator import Translator
from tests.serving.service.conftest import KEY, Running

FRENCH = "Je t'aime."
FORM = "application/x-www-form-urlencoded"


def translate(server: Running, **fields: Any) -> Any:
    answer = server.post("/translate", {"source": "fr", "target": "en", **fields})
    assert answer.status == 200, answer.content
    return answer.json


def test_the_real_client(server: Running) -> None:
    client = LibreTranslateAPI(server.url)
    assert client.translate(FRENCH, "fr", "en") == "I love you."
    assert client.translate("I love you.", "en", "fr") == "Je t'aime."
    assert [(entry["code"], entry["name"], entry["targets"]) for entry in client.languages()] == [
        ("fr", "French", ["en", "fr"]),
        ("en", "English", ["en", "fr"]),
    ]
    (best, *_) = client.detect("Où est la bibliothèque, s'il vous plaît ?")
    assert best["language"] == "fr" and 50 < best["confidence"] <= 100


def test_the_real_client_with_a_key(locked: Running) -> None:
    """It sends the key in the body, also of GET requests."""
    client = LibreTranslateAPI(locked.url, api_key=KEY)
    assert client.translate(FRENCH, "fr", "en") == "I love you."
    assert len(client.languages()) == 2
    assert client.detect("Good morning, my dear friends!")[0]["language"] == "en"


def test_json_form_and_query_are_the_same(server: Running) -> None:
    fields = {"q": FRENCH, "source": "fr", "target": "en"}
    expected = {"translatedText": "I love you."}
    form = urlencode(fields).encode()
    assert translate(server, q=FRENCH) == expected
    assert server.ask("POST", "/translate", form, {"Content-Type": FORM}).json == expected
    assert server.ask("POST", f"/translate?{urlencode(fields)}").json == expected
    mixed = server.ask("POST", "/translate?source=de&target=en", urlencode(fields).encode(), {"Content-Type": FORM})
    assert mixed.json == expected  # the body wins


def test_a_list_gives_a_list(server: Running, translator: Translator) -> None:
    texts = ["Bonjour.", FRENCH, "Il pleut."]
    expected = [translator.translate(text).text for text in texts]
    assert translate(server, q=texts) == {"translatedText": expected}
    assert translate(server, q=[FRENCH]) == {"translatedText": ["I love you."]}
    form = urlencode([("q", texts[0]), ("q", texts[1]), ("source", "fr"), ("target", "en")]).encode()
    assert server.ask("POST", "/translate", form, {"Content-Type": FORM}).json == {"translatedText": expected[:2]}


def test_texts_that_are_no_sentences(server: Running, translator: Translator) -> None:
    assert translate(server, q="42 ... !") == {"translatedText": "42 ... !"}
    assert translate(server, q=["", "Bonjour."])["translatedText"][0] == ""
    browser = urlencode({"q": "Bonjour.\r\nIl pleut.", "source": "fr", "target": "en"}).encode()
    answer = server.ask("POST", "/translate", browser, {"Content-Type": FORM})
    assert answer.json == {"translatedText": translator.translate("Bonjour.\nIl pleut.").text}


def test_a_long_text_is_translated_in_the_same_parts_as_by_the_translator(
    server: Running, translator: Translator
) -> None:
    text = " ".join(["Il pleut aujourd'hui, mais nous irons au marché.", "Tom a dit que tu viendrais."] * 20)
    assert len(translator.split(text)) > 4
    assert translate(server, q=text) == {"translatedText": translator.translate(text).text}


@pytest.mark.parametrize("sent", [2, "2"])
def test_alternatives(server: Running, translator: Translator, sent: int | str) -> None:
    texts = ["Tu es gentil.", "Il pleut."]
    expected = [translator.translate(text, alternatives=3).alternatives for text in texts]
    found = translate(server, q=texts, alternatives=sent)
    assert found["translatedText"] == [each[0].text for each in expected]
    assert found["alternatives"] == [[other.text for other in each[1:]] for each in expected]
    assert translate(server, q=texts[0], alternatives=sent)["alternatives"] == found["alternatives"][0]


def test_alignment_and_scores_on_request(server: Running, translator: Translator) -> None:
    found = translate(server, q=[FRENCH], attention=True, scores=True)
    expected = translator.translate(FRENCH)
    assert found["alignment"] == [expected.alignment().to_dict() | {"pairs": [[0, 0], [1, 1], [1, 2]]}]
    assert found["score"] == [pytest.approx(expected.score, abs=1e-4)]


def test_html_keeps_its_tags(server: Running, translator: Translator) -> None:
    page = (
        '<h1 class="chat">Je t\'aime.</h1>\n<p>Le <b>chat noir</b> dort dans la <a href="?a=1&amp;b">maison</a>.<br>\n'
        "Tom &amp; Marie dorment &lt;3</p><script>chat()</script>"
    )
    english = translate(server, q=[page, "Bonjour."], format="html", target="en")["translatedText"]
    encoded = escape(translator.translate("Tom & Marie dorment <3").text, quote=False)
    assert english == [
        '<h1 class="chat">I love you.</h1>\n<p>The <b>black cat</b> sleeps in the <a href="?a=1&amp;b">house</a>.<br>\n'
        f"{encoded}</p><script>chat()</script>",
        "Good morning.",
    ]
    assert translate(server, q="<p>42</p>", format="html") == {"translatedText": "<p>42</p>"}
    question = "<p>Où est la <b>bibliothèque</b>, s'il vous plaît ?</p>"
    assert translate(server, q=question, format="html", source="auto")["detectedLanguage"]["language"] == "fr"


def test_the_language_is_detected(server: Running) -> None:
    text = "Où est la bibliothèque, s'il vous plaît ?"
    found = translate(server, q=text, source="auto")
    assert found["detectedLanguage"]["language"] == "fr" and found["detectedLanguage"]["confidence"] > 50
    assert len(translate(server, q=[text, text], source="auto")["detectedLanguage"]) == 2
    german = {"q": "Wo ist bitte die nächste Bibliothek, meine Damen?", "source": "auto", "target": "en"}
    assert (
        "probably German (de), which no model translates; available: fr, en" in server.post("/translate", german).error
    )


def test_a_stream_grows_to_the_translation(server: Running, translator: Translator) -> None:
    text = "Bonjour.\nIl pleut.\nJe t'aime."
    answer = server.post("/translate", {"q": text, "source": "fr", "target": "en", "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in answer.content.decode().split("\n\n") if line]
    final = translator.translate(text).text
    assert events[-1] == {"translatedText": final, "done": True}
    assert all(final.startswith(event["translatedText"]) for event in events) and len(events) >= 2


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"q": ""}, 400, "Invalid request: missing q parameter"),
        ({"q": []}, 400, "Invalid request: missing q parameter"),
        ({"q": None}, 400, "Invalid request: missing q parameter"),
        ({"q": {"a": 1}}, 400, "q must be a text or a list of texts"),
        ({"q": ["a", 1]}, 400, "q must be a text or a list of texts"),
        ({"q": "a\ud800"}, 400, "unpaired surrogate"),
        ({"source": ""}, 400, "missing source parameter"),
        ({"target": None}, 400, "missing target parameter"),
        ({"source": "xx"}, 400, "xx is not supported as source; available: fr, en"),
        ({"target": "xx"}, 400, "xx is not supported as target of fr; available: en"),
        ({"target": "fr"}, 400, "fr is not supported as target of fr; available: en"),
        ({"format": "xml"}, 400, "format xml is not supported: send text or html"),
        ({"format": "html", "alternatives": 1}, 400, "alternatives is available for format text, not for html"),
        ({"format": "html", "stream": True}, 400, "stream is available for format text"),
        ({"alternatives": -1}, 400, "alternatives must be a whole number from 0 to 8"),
        ({"alternatives": 9}, 400, "alternatives must be a whole number from 0 to 8"),
        ({"alternatives": 1.5}, 400, "alternatives must be a whole number from 0 to 8"),
        ({"q": ["a"], "stream": True}, 400, "stream is for one text"),
        ({"q": "a" * 5001}, 400, "a text has 5,001 characters; the limit is 5,000"),
        ({"q": ["a"] * 65}, 400, "the request has 65 texts; the limit is 64"),
        ({"q": ["a" * 4001] * 10}, 400, "the texts have 40,010 characters; the limit is 40,000"),
        ({"q": ["a"] * 64, "alternatives": 4}, 400, "64 texts with 5 results each are more than 256"),
        ({"q": ["1 2 3 4 5 6 7 8 9 a " * 200] * 5}, 400, "tokens; the limit is 8,192"),
    ],
)
def test_what_is_wrong_is_said(server: Running, fields: dict[str, Any], status: int, message: str) -> None:
    answer = server.post("/translate", {"q": "a", "source": "fr", "target": "en", **fields})
    assert answer.status == status and message in answer.error


def test_unknown_fields_are_listed(server: Running) -> None:
    answer = server.post("/translate", {"q": FRENCH, "source": "fr", "target": "en", "colour": 1, "é\n": 2})
    assert answer.headers["x-ignored-fields"] == "colour, \\xe9\\n"


def test_settings_and_what_is_not_available(server: Running, locked: Running) -> None:
    settings = server.get("/frontend/settings").json
    assert (settings["charLimit"], settings["keyRequired"], settings["filesTranslation"]) == (5000, False, False)
    assert settings["language"]["source"] == {"code": "fr", "name": "French"}
    assert locked.get("/frontend/settings", Authorization=f"Bearer {KEY}").json["keyRequired"] is True
    for path, reason in (("/translate_file", "translate the text of the file"), ("/suggest", "nothing is stored")):
        answer = server.post(path, {})
        assert answer.status == 501 and reason in answer.error
