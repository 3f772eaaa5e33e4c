"""Cut HTML or XML into segments, the texts that are translated as a whole, with their inline tags; and join them again.

    <p>Le <b>chat</b> dort.</p>   ->   "<p>", Segment("Le chat dort.", <b> around 3..7), "</p>"

Everything else stays as it is, byte for byte: tags, attributes, comments, scripts, and what `translate="no"` excludes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

NAME = r"[A-Za-z_][^\s/>]*"
TOKEN = re.compile(
    rf"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|<![^>]*>|<\?.*?\?>|<(?P<end>/?)(?P<name>{NAME})(?:[^>"']|"[^"]*"|'[^']*')*>""",
    re.DOTALL,
)
EXCLUDED = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)
BLANKS = re.compile(r"[ \t\n\r\f]+")  # not the non-breaking space


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


INLINE = names(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label mark q s samp small span "
    "strike strong sub sup time tt u var wbr"
)
VOID = names("area base br col embed hr img input link meta source track wbr")
UNTRANSLATED = names("code kbd math noscript samp script style svg template textarea var")


@dataclass(frozen=True)
class MarkupRules:
    """Which tags belong to a sentence, and whose content is not translated."""

    inline: Collection[str] | None = INLINE  # None: all but those of `splitting`, as in XML
    untranslated: frozenset[str] = UNTRANSLATED
    void: Collection[str] = VOID
    splitting: Collection[str] = ()

    def is_inline(self, name: str) -> bool:
        return name not in self.splitting and (self.inline is None or name in self.inline)


HTML = MarkupRules()
XML = MarkupRules(inline=None, untranslated=frozenset(), void=())


@dataclass
class Element:
    """A tag inside a segment, from `start` to `end` of its text. A point has no end tag, and no children.

    A point may be visible, such as an image, or an element that is excluded. `blanks` says on which sides it is not
    joined to the text.
    """

    opening: str
    start: int
    end: int
    closing: str = ""
    children: list[Element] = field(default_factory=list)
    blanks: tuple[bool, bool] = (False, False)

    def begin(self, text: str) -> str:
        """Return the opening tag; a visible point gets the blanks that are missing in this text."""
        before, after = text[: self.start], text[self.end :]
        left = " " if self.blanks[0] and before and not before.endswith(" ") else ""
        right = " " if self.blanks[1] and after and not after.startswith(" ") else ""
        return left + self.opening + right


@dataclass
class Segment:
    """A text that is translated as a whole, and its inline elements in order; blanks around it stay."""

    text: str
    elements: list[Element]
    before: str = ""
    after: str = ""

    def markup(self) -> str:
        """Return the text with its tags, its special characters encoded."""
        return self.before + "".join(_markup(self.text, self.elements, 0, len(self.text))) + self.after


def _markup(text: str, elements: Sequence[Element], start: int, end: int) -> Iterator[str]:
    for element in elements:
        yield html.escape(text[start : element.start], quote=False)
        yield element.begin(text)
        yield from _markup(text, element.children, element.start, element.end)
        yield element.closing
        start = element.end
    yield html.escape(text[start:end], quote=False)


def read_markup(content: str, rules: MarkupRules = HTML) -> list[str | Segment]:
    """Return the parts of a document: segments, and what is between them as it is."""
    builder, position = DocumentBuilder(content, rules), 0
    while (token := TOKEN.search(content, position)) is not None:
        builder.add_text(position, token.start())
        position = builder.add_token(token)
    builder.add_text(position, len(content))
    builder.end_segment(len(content))
    return builder.parts


def plain_text(content: str, rules: MarkupRules = HTML) -> str:
    """Return the texts of a document without its tags."""
    return " ".join(part.text for part in read_markup(content, rules) if isinstance(part, Segment))


class DocumentBuilder:
    """Collects the parts of a document while it is read."""

    def __init__(self, content: str, rules: MarkupRules) -> None:
        self.content, self.rules = content, rules
        self.parts: list[str | Segment] = []
        self.begin = 0  # where the segment begins that is being read
        self._clear()

    def _clear(self) -> None:
        self.text = self.before = ""
        self.elements: list[Element] = []
        self.open: list[tuple[str, Element]] = []  # elements whose end tag has not come yet, with their names

    def add_text(self, start: int, end: int) -> None:
        """Add text to the segment, its entities decoded and its blanks collapsed, as a browser shows it."""
        raw = html.unescape(self.content[start:end])
        text = BLANKS.sub(" ", raw)
        if text.startswith(" ") and (not self.text or self.text.endswith(" ")):
            if not self.text and not self.elements:
                self.before = raw[: len(raw) - len(raw.lstrip(" \t\n\r\f"))]
            text = text[1:]
        self.text += text

    def add_token(self, token: re.Match[str]) -> int:
        """Add a tag or a comment; return where the reading goes on, which is after an element that is excluded."""
        name = (token["name"] or "").lower().rstrip("/")
        if name and not token["end"] and self._is_excluded(token, name):
            end = self._end_of_element(token, name)
            self._add_opaque(name, token.start(), end)
            return end
        if not name or self.rules.is_inline(name):
            self._add_inline(token, name)
        else:
            self._add_boundary(token.start(), token.end())
        return token.end()

    def end_segment(self, end: int) -> None:
        """End the segment; one without letters stays as it is."""
        raw = self.content[self.begin : end]
        if not any(map(str.isalpha, self.text)):
            self.parts.append(raw)
        else:
            text = self.text.rstrip(" ")
            for _, element in self.open:
                element.end = len(text)
            after = self.text[len(text) :]
            for element in everything(self.elements):
                after = "" if element.start > len(text) else after  # the blank is in front of this element
                element.start, element.end = min(element.start, len(text)), min(element.end, len(text))
            self.parts.append(Segment(text, self.elements, self.before, after))
        self._clear()

    def _is_excluded(self, token: re.Match[str], name: str) -> bool:
        if token[0].endswith("/>") or name in self.rules.void:
            return False
        return name in self.rules.untranslated or EXCLUDED.search(token[0]) is not None

    def _end_of_element(self, token: re.Match[str], name: str) -> int:
        depth, position = 1, token.end()
        tags = re.compile(rf"<(/?){re.escape(name)}(?=[\s/>])[^>]*>", re.IGNORECASE)
        while depth and (tag := tags.search(self.content, position)) is not None:
            position = tag.end()
            depth += -1 if tag[1] else not tag[0].endswith("/>")
        return len(self.content) if depth else position

    def _add_opaque(self, name: str, start: int, end: int) -> None:
        if self.rules.is_inline(name):
            self._place_point(start, end)
        else:
            self._add_boundary(start, end)

    def _place_point(self, start: int, end: int) -> None:
        around = self.content[start - 1 : start], self.content[end : end + 1]
        blanks = tuple(BLANKS.fullmatch(each) is not None for each in around)
        here = len(self.text)
        self._place(Element(self.content[start:end], here, here, blanks=(blanks[0], blanks[1])))

    def _add_boundary(self, start: int, end: int) -> None:
        self.end_segment(start)
        self.parts.append(self.content[start:end])
        self.begin = end

    def _add_inline(self, token: re.Match[str], name: str) -> None:
        here = len(self.text)
        if token["end"] and any(opened == name for opened, _ in self.open):
            while (last := self.open.pop())[0] != name:
                last[1].end = here  # its end tag, if it comes at all, will stand alone
            last[1].end, last[1].closing = here, token[0]
            return
        if name and not token["end"] and (token[0].endswith("/>") or name in self.rules.void):
            self._place_point(*token.span())
            return
        element = Element(token[0], here, here)
        self._place(element)
        if name and not token["end"]:
            self.open.append((name, element))

    def _place(self, element: Element) -> None:
        (self.open[-1][1].children if self.open else self.elements).append(element)


def everything(elements: Sequence[Element]) -> Iterator[Element]:
    """Yield elements and all that are inside them."""
    for element in elements:
        yield element
        yield from everything(element.children)
