"""Lab and Positions on the server, in float64: the lectures' numbers, and numpy's for the rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

Q, K = [[2.0, -1, 0], [-2, 1, 4]], [[2.0, 1, -1], [0, 3, -1], [1, 1, 3]]
V = [[2.0, 3, 1], [2, -1, 0], [0, 5, 1]]


def arrays(client: Any, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, body)
    assert answer.status == 200, answer.content
    return {
        name: np.array([np.nan if value is None else value for value in one["values"]]).reshape(one["shape"])
        for name, one in answer.json.items()
    }


def lab(client: Any, **body: Any) -> dict[str, Any]:
    return arrays(client, "/api/lab", **{"q": Q, "k": K, "v": V, **body})


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_the_worked_example(client: Any) -> None:
    """D6 as printed, and with the scale of D9 as explorer.md has it."""
    found = lab(client, score="dot")
    assert found["raw"].tolist() == found["scaled"].tolist() == found["masked"].tolist() == [[3, -3, 1], [-7, -1, 11]]
    assert np.abs(found["weights"] - [[0.879, 0.002, 0.119], [0, 0, 1]]).max() < 5e-4
    assert np.abs(found["out"][0] - [1.762, 3.229, 0.998]).max() < 5e-4
    assert np.abs(lab(client)["weights"][0] - [0.743, 0.023, 0.234]).max() < 5e-4
    assert np.abs(lab(client, score="dot", scale=1 / math.sqrt(3))["weights"][0] - [0.743, 0.023, 0.234]).max() < 5e-4


def test_masks(client: Any) -> None:
    """D10: what is barred has no weight, and a row without keys is zero."""
    found = lab(client, q=[[1.0]], k=[[2.0], [2.0], [9.0]], v=V, score="dot", mask=[[True, True, False]])
    assert found["weights"].tolist() == [[0.5, 0.5, 0]]
    assert np.isnan(found["masked"][0, 2]) and found["scaled"][0, 2] == 9
    nothing = lab(client, mask=[[False] * 3, [True] * 3])
    assert nothing["weights"][0].tolist() == nothing["out"][0].tolist() == [0, 0, 0]
    causal = lab(client, q=K, mask="causal")
    assert np.isnan(causal["masked"]).tolist() == [[False, True, True], [False, False, True], [False] * 3]
    assert np.allclose(causal["weights"].sum(-1), 1, atol=1e-15)


@pytest.mark.parametrize("seed", range(3))
def test_every_score_is_numpys(client: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    q, k, v = draw.normal(size=(4, 3)), draw.normal(size=(5, 2)), draw.normal(size=(5, 6))
    given = {"q": q.tolist(), "k": k.tolist(), "v": v.tolist(), "temperature": 0.7}
    w = draw.normal(size=(3, 2))
    found = lab(client, **given, score="general", w=w.tolist(), scale=0.5)
    assert np.allclose(found["raw"], q @ w @ k.T, atol=1e-13)
    assert np.allclose(found["weights"], softmax(q @ w @ k.T * 0.5 / 0.7), atol=1e-14)
    assert np.allclose(found["out"], softmax(q @ w @ k.T * 0.5 / 0.7) @ v, atol=1e-13)
    w, wq, wk = draw.normal(size=(1, 7)), draw.normal(size=(7, 3)), draw.normal(size=(7, 2))
    found = lab(client, **given, score="additive", w=w.tolist(), wq=wq.tolist(), wk=wk.tolist())
    scores = np.tanh((q @ wq.T)[:, None] + (k @ wk.T)[None]) @ w[0]
    assert np.allclose(found["raw"], scores, atol=1e-13) and np.array_equal(found["raw"], found["scaled"])
    assert np.allclose(found["weights"], softmax(scores / 0.7), atol=1e-14)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": V[:2]}, "k has 3 rows and v 2"),
        ({"k": [[1.0, 2]] * 3}, "q has width 3 and k 2"),
        ({"q": [[1.0, 2, 3], [1]]}, "the rows of q are not equally long"),
        ({"q": []}, "q: "),
        ({"q": [[]]}, "q.0: "),
        ({"q": [["a", 1, 2]]}, "q.0.0: input should be a valid number, got 'a'"),
        ({"q": [[math.inf, 1, 2]]}, "q.0.0: input should be a finite number"),
        ({"score": "general"}, "the score 'general' has the matrix 'w', which is missing"),
        ({"score": "general", "w": [[1.0]]}, "w has the shape [1, 1], and [3, 3] fits"),
        ({"score": "additive", "w": [[1.0]] * 2}, "w has the shape [2, 1], and [1, any] fits"),
        ({"score": "additive", "w": [[1.0]], "wq": [[1.0]]}, "wq has the shape [1, 1], and [1, 3] fits"),
        ({"score": "best"}, "score: "),
        ({"mask": [[True]]}, "the mask must have a row of 3 for each of the 2 queries"),
        ({"mask": "diagonal"}, "mask"),
        ({"temperature": 0}, "temperature: "),
        (
            {"q": [[1.0]] * 501, "k": [[1.0]] * 500, "v": [[1.0]] * 500},
            "make 250,500 numbers, and 250,000 are the limit",
        ),
    ],
)
def test_what_does_not_fit_is_explained(client: Any, change: dict[str, Any], message: str) -> None:
    answer = client.post("/api/lab", {"q": Q, "k": K, "v": V, **change})
    assert answer.status == 400
    assert message in answer.error


def test_positions_have_the_numbers_of_the_lectures(client: Any) -> None:
    """B3, B4, and explorer.md: n = 500, d = 128."""
    found = arrays(client, "/api/positions", length=500, dim=128)
    products = found["products"]
    assert np.allclose(np.diag(products), 64, atol=1e-9)
    assert max(np.ptp(np.diag(products, k)) for k in range(500)) < 1e-6
    assert np.array_equal(found["curve"], products[0])
    variance = found["variance"]
    assert variance.shape == (64,)
    assert variance[-1] == pytest.approx(53.26, abs=5e-3)
    assert round(100 * variance[50 // 2 - 1] / variance[-1]) == 81
    assert variance[60 // 2 - 1] < 0.95 * variance[-1] <= variance[62 // 2 - 1]


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_tables_are_numpys(client: Any, layout: str) -> None:
    angles = np.arange(7)[:, None] * 50.0 ** (-np.arange(0, 6, 2) / 6)  # (7, 3)
    first, second = (slice(0, None, 2), slice(1, None, 2)) if layout == "interleaved" else (slice(3), slice(3, None))
    for kind, parts in (("sinusoidal", (np.sin, np.cos)), ("rotary", (np.cos, np.sin))):
        table = arrays(client, "/api/positions", length=7, dim=6, kind=kind, layout=layout, base=50)["table"]
        assert np.allclose(table[:, first], parts[0](angles), atol=1e-14)
        assert np.allclose(table[:, second], parts[1](angles), atol=1e-14)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"length": 0, "dim": 4}, "length: "),
        ({"length": 4, "dim": 5}, "dim: input should be a multiple of 2, got 5"),
        ({"length": 1000, "dim": 2}, "go up to 250,000 numbers"),
        ({"length": 4, "dim": 4, "base": -1}, "base: "),
        ({"length": 4, "dim": 4, "kind": "learned"}, "kind: "),
    ],
)
def test_positions_that_are_none_are_explained(client: Any, body: dict[str, Any], message: str) -> None:
    answer = client.post("/api/positions", body)
    assert answer.status == 400
    assert message in answer.error


# Random features.


def features(client: Any, **body: Any) -> dict[str, Any]:
    answer = client.post("/api/features", {"q": Q, "k": K, **body})
    assert answer.status == 200, answer.content
    content = answer.json
    maps = {name: content[name] for name in ("exact", "limit", "weights")}
    return {
        "error": content["error"],
        **{name: np.array(one["values"]).reshape(one["shape"]) for name, one in maps.items()},
    }


@pytest.mark.parametrize("normalize", [False, True])
def test_random_features_with_given_rows(client: Any, normalize: bool) -> None:
    """F3, once more by numpy: the lecture's sines and cosines, and those with the factor of the key."""
    W = np.random.default_rng(0).normal(size=(7, 3))
    q, k = np.array(Q), np.array(K)
    if normalize:
        x, y = (one / np.linalg.norm(one, axis=-1, keepdims=True) for one in (q, k))
    else:
        x, y = q / 3**0.25, k / 3**0.25
    exact = softmax(x @ y.T)
    for name in ("plain", "trig"):
        phi_x, phi_y = (np.concatenate([np.sin(one @ W.T), np.cos(one @ W.T)], -1) for one in (x, y))
        products = phi_x @ phi_y.T * (np.exp((y**2).sum(-1) / 2) if name == "trig" else 1)
        wanted = products / products.sum(-1, keepdims=True)
        found = features(client, w=W.tolist(), map=name, normalize=normalize)
        assert np.allclose(found["weights"], wanted, atol=1e-9)
        assert np.allclose(found["exact"], exact, atol=1e-12)
        assert np.allclose(found["limit"], softmax(x @ y.T - (y**2).sum(-1) / 2), atol=1e-12)
        error = np.linalg.norm(wanted - exact) / np.linalg.norm(exact)
        assert found["error"] == pytest.approx(error, rel=1e-9)


def test_elu_and_other_scales(client: Any) -> None:
    found = features(client, map="elu", normalize=True, scale=1.0, causal=True, q=K)
    q = np.where(np.array(K) > 0, np.array(K) + 1, np.exp(K))
    products = q @ q.T * np.tri(3)
    assert np.allclose(found["weights"], products / products.sum(-1, keepdims=True), atol=1e-12)
    scores = np.where(np.tri(3) > 0, np.array(K) @ np.array(K).T, -np.inf)  # as they are, and not normalised
    assert np.allclose(found["exact"], softmax(scores), atol=1e-12)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"map": "trig"}, "elu has no random rows w, and every other map has some"),
        ({"map": "elu", "w": [[1.0, 2, 3]]}, "elu has no random rows w"),
        ({"w": [[1.0, 2]]}, "w has width 2 and q 3"),
        ({"w": [[1.0, 2, 3]], "k": [[1.0]]}, "q has width 3 and k 1"),
        ({"w": [[1.0, 2, 3]], "map": "cosine"}, "map: "),
        ({"w": [[1.0, 2, 3]], "scale": 0.0}, "scale: "),
        ({"w": [[1.0, 2, 3]] * 200, "q": [[1.0, 2, 3]] * 700}, "250,000 are the limit"),
    ],
)
def test_features_that_do_not_fit(client: Any, body: dict[str, Any], message: str) -> None:
    answer = client.post("/api/features", {"q": Q, "k": K, **body})
    assert answer.status == 400 and message in answer.json["error"], answer.json
