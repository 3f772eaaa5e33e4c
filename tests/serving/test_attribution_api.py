"""The attribution panel's API: the numbers are those of the library, and requests stay small."""

from __future__ import annotations

from typing import Any

import numpy as np

import regard
from regard.look import attribute

TEXT = "Marie a acheté une voiture rouge"


def test_the_api_returns_what_the_library_computes(client: Any) -> None:
    body = {"model": "fr-en", "text": TEXT, "method": "occlusion", "target": "Mary bought a red car"}
    answer = client.post("/api/attribution", body).json
    found = attribute(regard.load("fr-en"), TEXT, method="occlusion", target="Mary bought a red car")
    np.testing.assert_allclose(answer["values"], found.values, atol=2e-4)
    assert [len(answer["outputs"]), len(answer["inputs"])] == list(found.values.shape)
    assert np.array(answer["attention"]).shape == found.values.shape and 0 < answer["agreement"] <= 1


def test_wrong_requests_are_refused_in_words(client: Any) -> None:
    for body, words in (
        ({"model": "fr-en", "text": TEXT, "method": "magic"}, "method"),
        ({"model": "fr-en", "text": "le chat " * 60, "target": "x"}, "at most 48"),
        ({"model": "fr-en", "text": " "}, "nothing to translate"),
    ):
        answer = client.post("/api/attribution", body)
        assert answer.status == 400 and words in answer.error, body
