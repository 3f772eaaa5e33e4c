"""Embeddings in a browser: the picture of S U N N Y, the printed numbers, words in the plane, similar sentences.

Elements: one-hot, embedding-table, embedding-product, similarity (matrices), one-hot-word, one-hot-example,
one-hot-about, one-hot-cost, word-plane, plane-word, plane-send, nearest, similarity-text, similarity-send.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

LABELS = """all => all.map(word => word.getBBox()).map(box => [box.x, box.x + box.width, box.y + box.height / 2])"""


@pytest.fixture
def embeddings(wide: Any, explorer: Any) -> Any:
    """Opens Embeddings with a state."""

    def go(state: str = "") -> Page:
        wide.page.goto(f"{explorer.address}/#tab=embeddings{state}")
        expect(wide.page.get_by_test_id("embedding-product-canvas")).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def matrix(page: Page, name: str, columns: int) -> list[list[float]]:
    cells = page.get_by_test_id(f"{name}-table").locator("td[data-value]")
    flat = cells.evaluate_all("all => all.map(one => Number(one.dataset.value))")
    return [flat[i : i + columns] for i in range(0, len(flat), columns)]


def test_A1_the_word_of_the_slide(embeddings: Any) -> None:
    """Five one-hot rows over 26 letters, ones in the columns 18, 20, 13, 13, 24; five dense rows, the two N equal."""
    import torch

    page = embeddings()
    one_hot = matrix(page, "one-hot", 26)
    assert [row.index(1) for row in one_hot] == [18, 20, 13, 13, 24] and all(sum(row) == 1 for row in one_hot)
    table, product = matrix(page, "embedding-table", 5), matrix(page, "embedding-product", 5)
    assert len(table) == 26 and len(product) == 5
    assert product == [table[column] for column in (18, 20, 13, 13, 24)]
    assert product[2] == product[3] != product[1]
    torch.manual_seed(123)  # the table of `regard plot one-hot`
    assert table == [pytest.approx(row, abs=0.00501) for row in torch.nn.Embedding(26, 5).weight.tolist()]
    expect(page.get_by_test_id("one-hot-about")).to_contain_text("S U N N Y: the columns 18, 20, 13, 13, 24 of 26")
    expect(page.get_by_test_id("one-hot-cost")).to_have_text(f"{5 * 26 * 5}")


def test_A1_printed_numbers_are_those_of_torch(embeddings: Any) -> None:
    import torch

    page = embeddings("&example=printed")
    torch.manual_seed(123)
    expected = torch.nn.Embedding(4, 5)(torch.tensor([2, 3, 1])).tolist()
    product = matrix(page, "embedding-product", 5)
    assert product == [pytest.approx(row, abs=6e-5) for row in expected]
    assert product[0] == [0.6957, -1.8061, -1.1589, 0.3255, -0.6315]


def test_another_word_and_a_number_opened_into_its_sum(embeddings: Any) -> None:
    page = embeddings("&pin=1.2")
    page.get_by_test_id("one-hot-word").fill("bab")
    page.get_by_test_id("one-hot-word").press("Enter")
    expect(page.get_by_test_id("one-hot-about")).to_contain_text("B A B: the columns 1, 0, 1 of 26")
    readout = page.get_by_test_id("embedding-product-readout")
    expect(readout).to_contain_text("1·(−0.3) + … + 0·")
    expect(readout).to_contain_text("= −0.30: row 0 of the table")


def test_A2_words_in_the_plane_and_the_nearest(embeddings: Any) -> None:
    import regard

    page = embeddings("&words=60")
    words = page.get_by_test_id("word-plane").locator("text, circle")
    expect(words).to_have_count(60)
    labels = page.get_by_test_id("word-plane").locator("text").evaluate_all(LABELS)
    assert 30 < len(labels) <= 60
    for i, (left, right, middle) in enumerate(labels):  # no label covers another one
        assert all(right <= a + 1 or b <= left + 1 or abs(middle - y) > 11 for a, b, y in labels[:i])
    page.get_by_test_id("plane-word").fill("jour")
    page.get_by_test_id("plane-send").click()
    table = regard.look.word_table(regard.load("fr-en", device="cpu"))
    expected = [f"{word} {cosine:.2f}" for word, cosine in table.nearest("jour")]
    expect(page.get_by_test_id("nearest").locator("li")).to_have_text(expected)
    expect(page.get_by_test_id("word-plane").locator(".chosen")).to_have_text("jour")
    page.get_by_test_id("nearest").get_by_role("button").first.click()
    expect(page.get_by_test_id("word-plane").locator(".chosen")).to_have_text(expected[0].split()[0])


def test_a_word_without_vector_is_refused(wide: Any, explorer: Any) -> None:
    page = wide.page
    page.goto(f"{explorer.address}/#tab=embeddings&near=xyzzyx")
    expect(page.get_by_test_id("alert")).to_contain_text("'xyzzyx' is not one token of this model")
    wide.errors.clear()  # the refusal itself


def test_A3_a_sentence_is_nearest_to_its_translation(embeddings: Any) -> None:
    page = embeddings("&encoder=demo-encoder")
    expect(page.get_by_test_id("similarity-canvas")).to_be_visible()
    cosines = matrix(page, "similarity", 6)
    for i, row in enumerate(cosines):
        others = [value if j != i else -1 for j, value in enumerate(row)]
        assert others.index(max(others)) == i ^ 1 and row[i] == pytest.approx(1, abs=1e-5)
    page.get_by_test_id("similarity-text").fill("Il faisait froid.\nIt was cold.\n")
    page.get_by_test_id("similarity-send").click()
    expect(page.get_by_test_id("similarity-table").locator("td[data-value]")).to_have_count(4)
