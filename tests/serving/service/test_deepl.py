"""DeepL's API, with its real client."""

from __future__ import annotations

from typing import Any

import deepl
import pytest

from tests.serving.service.conftest import KEY, OTHER_KEY, Running


@pytest.fixture(scope="module")
def client(locked: Running) -> deepl.DeepLClient:
    return deepl.DeepLClient(KEY, server_url=locked.url)


def test_the_real_client(client: deepl.DeepLClient) -> None:
    single: Any = client.translate_text("Je t'aime.", source_lang="FR", target_lang="EN-GB")
    assert (single.text, single.detected_source_lang, single.billed_characters) == ("I love you.", "FR", 10)
    several: Any = client.translate_text(["Good morning.", "I love you."], target_lang="FR")
    assert several[1].text == "Je t'aime." and several[0].detected_source_lang == "EN"
    assert [language.code for language in client.get_source_languages()] == ["FR", "EN"]
    assert [language.code for language in client.get_target_languages()] == ["EN", "FR"]
    usage = client.get_usage()
    assert usage.character.count is not None and usage.character.count >= 34 and not usage.any_limit_reached


def test_its_errors(client: deepl.DeepLClient, locked: Running) -> None:
    with pytest.raises(deepl.AuthorizationException):
        deepl.DeepLClient("wrong", server_url=locked.url).get_usage()
    with pytest.raises(deepl.DeepLException, match="de is not supported as target of fr"):
        client.translate_text("Bonjour.", source_lang="FR", target_lang="DE")
    with pytest.raises(deepl.DeepLException, match="formality is not supported"):
        client.translate_text("Bonjour.", source_lang="FR", target_lang="EN-GB", formality="more")


def test_plain_requests(server: Running, locked: Running) -> None:
    asked = {"text": ["Bonjour."], "source_lang": "FR", "target_lang": "EN"}
    assert server.post("/v2/translate", asked).json == {
        "translations": [{"detected_source_language": "FR", "text": "Good morning."}]
    }
    wrong_fields = (
        ({"text": []}, "text must be a list"),
        ({"target_lang": None}, "target_lang is missing"),
        ({"tag_handling": "tex"}, "tag_handling must be html or xml"),
    )
    for wrong, message in wrong_fields:
        answer = server.post("/v2/translate", {**asked, **wrong})
        assert answer.status == 400 and message in answer.json["message"]
    assert locked.post("/v2/translate", asked, Authorization=f"DeepL-Auth-Key {OTHER_KEY[:-1]}").status == 403


def test_tags(server: Running) -> None:
    client = deepl.DeepLClient("any-key", server_url=server.url)
    html = client.translate_text(
        "<p>Le <b>chat</b> noir dort.</p>", source_lang="FR", target_lang="EN-GB", tag_handling="html"
    )
    assert html.text == "<p>The black <b>cat</b> is sleeping.</p>" and html.billed_characters == 32
    xml: Any = client.translate_text(
        'Le <g id="1">chat</g> dort.<k>chien</k>',
        source_lang="FR",
        target_lang="EN-GB",
        tag_handling="xml",
        ignore_tags=["k"],
    )
    assert xml.text == 'The <g id="1">cat</g> is sleeping.<k>chien</k>'
