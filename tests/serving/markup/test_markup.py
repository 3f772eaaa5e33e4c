"""HTML and XML: what is translated, what stays byte for byte, and where tags go in a translation."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from regard.serving.markup.placing import Placer, Words, find_words
from regard.serving.markup.segments import HTML, XML, Segment, plain_text, read_markup

TAG = re.compile(r"<[^>]+>")


def unchanged(document: str) -> str:
    return "".join(part if isinstance(part, str) else part.markup() for part in read_markup(document))


def texts(document: str) -> list[str]:
    return [part.text for part in read_markup(document) if isinstance(part, Segment)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<p>Le <b>chat</b> dort.</p><p>Il <i>pleut</i></p>", ["Le chat dort.", "Il pleut"]),
        ("<ul>\n <li>Un\n  chat</li>\n <li> <a href='?a=1&b=2'>Deux</a> </li></ul>", ["Un chat", "Deux"]),
        ("Bonjour<br>Tom", ["Bonjour", "Tom"]),
        ("caf&eacute; &lt;b&gt; &amp;amp;", ["café <b> &amp;"]),
        ("<script>var a = '<b>chat</b>';</script><style>b {}</style>un", ["un"]),
        ("Tapez <code>ls &amp;</code> ici", ["Tapez ici"]),
        ('<p translate="no">Chat</p><p class="a notranslate">Chien</p><p>Loup</p>', ["Loup"]),
        ("<!-- chat --><!DOCTYPE html><?php echo 'chat' ?>chien", ["chien"]),
        ('<img alt="a > b" src=x>chien', ["chien"]),
        ("<b>42</b> !", []),
        ("", []),
        ("a < b", ["a < b"]),
        ("<div <b>chat", ["chat"]),
    ],
)
def test_texts_between_the_tags(document: str, expected: list[str]) -> None:
    assert texts(document) == expected
    assert plain_text(document) == " ".join(expected)


@pytest.mark.parametrize(
    "document",
    [
        "<p>Le <b>chat</b> dort.</p>",
        "<div>\n\t<p> <b>Le</b> chat </p>\n</div>",
        "Un <b><i>deux</i> trois</b> <img src='a'> quatre<img src='b'>cinq <code>x</code> six",
        "<b>un <i>deux</b> trois</i> quatre</u>",
        "<b>un<p>deux</b></p>",
        "&lt;script&gt; &amp; <a title='&quot;'>x</a>",
        "<table><tr><td>un<td>deux</table>",
        "<b></b>un<a id=x></a> deux",
        "<code>never ends",
    ],
)
def test_what_is_not_translated_stays_byte_for_byte(document: str) -> None:
    assert unchanged(document) == document


def test_xml_tags_belong_to_sentences() -> None:
    (segment,) = read_markup('Le <g id="1">chat</g> <x id="2"/> dort', XML)
    assert isinstance(segment, Segment) and segment.text == "Le chat dort"
    assert segment.markup() == 'Le <g id="1">chat</g> <x id="2"/> dort'


def placed(document: str, translation: str, pairs: dict[int, int]) -> str:
    """Return a document whose words are translated as `pairs` say."""
    (segment,) = (part for part in read_markup(document, HTML) if isinstance(part, Segment))
    source = Words(segment.text, list(find_words(segment.text, segment.text.split())))
    target = Words(translation, list(find_words(translation, translation.split())))
    elements = Placer(source, target, list(pairs.items())).place(segment.elements, 0, len(translation))
    return Segment(translation, elements).markup()


@pytest.mark.parametrize(
    ("document", "translation", "pairs", "expected"),
    [
        ("Le <b>chat</b> noir", "The black cat", {0: 0, 1: 2, 2: 1}, "The black <b>cat</b>"),
        ("Le <b>chat noir</b> dort", "The black cat sleeps", {0: 0, 1: 2, 2: 1, 3: 3}, "The <b>black cat</b> sleeps"),
        ("<a>Il dort</a>.", "He is asleep.", {0: 0}, "<a>He is asleep</a>."),
        ("Il <i>dort</i>, <b>lui</b>.", "He sleeps, him.", {0: 0, 1: 1, 2: 2}, "He <i>sleeps</i>, <b>him</b>."),
        ("<b>a</b> <i>b</i>", "y x", {0: 1, 1: 0}, "<i>y</i> <b>x</b>"),
        ("<b>a b</b> <i>c</i>", "x y z", {0: 0, 1: 2, 2: 1}, "<b>x y z</b><i></i>"),
        ("<b>a <i>b</i></b> c", "z y x", {0: 2, 1: 1, 2: 0}, "z <b><i>y</i> x</b>"),
        ("a<br/> b", "x", {0: 0}, "x"),
        ("a <img> b", "y x", {0: 1, 1: 0}, "<img> y x"),
        ("a<img> b", "y x", {0: 1, 1: 0}, "y x<img>"),
        ("<b>a", "x", {0: 0}, "<b>x"),
        ("a</b>", "x", {0: 0}, "x</b>"),
        ("a <b>b</b>", "x & y", {0: 0, 1: 1}, "x <b>&amp;</b> y"),
    ],
)
def test_places_of_tags(document: str, translation: str, pairs: dict[int, int], expected: str) -> None:
    if "<br" in document:
        assert texts(document) == ["a", "b"]  # a line break ends a segment
    else:
        assert placed(document, translation, pairs) == expected


NODES = st.recursive(
    st.sampled_from(["un", "deux trois", " ", ", ", "<img>", "&amp;", "<!-- -->"]),
    lambda inner: st.builds(
        lambda name, nodes: f"<{name}>{' '.join(nodes)}</{name}>",
        st.sampled_from(["a", "b", "i", "code"]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(NODES, max_size=5).map("".join), st.data())
def test_each_tag_occurs_once_and_in_order(content: str, data: st.DataObject) -> None:
    """For any alignment: no tag is lost, repeated or changed, and elements nest as before."""
    document = f"mot {content}"
    words = len(texts(document)[0].split())
    translation = " ".join(f"w{i}" for i in range(data.draw(st.integers(1, 6))))
    pairs = data.draw(st.dictionaries(st.integers(0, words), st.integers(0, 6)))
    result = placed(document, translation, pairs)
    assert Counter(TAG.findall(result)) == Counter(TAG.findall(document))
    assert TAG.sub("", re.sub("<code>.*?</code>", "", result)).split() != [] and "w0" in result
    again = "".join(part if isinstance(part, str) else part.markup() for part in read_markup(result))
    assert "".join(again.split()) == "".join(result.split())  # nothing overlaps


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="<>/ab \"'=&;!-é\n", max_size=60))
def test_any_text_can_be_read(document: str) -> None:
    for part in read_markup(document):
        if isinstance(part, Segment):
            assert part.text == part.text.strip(" ") and part.markup()
