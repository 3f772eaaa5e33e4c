"""Slides as one HTML file: it opens from a disk, needs no network, and follows a presentation clicker."""

from __future__ import annotations

import base64
import html
from io import BytesIO

from matplotlib.figure import Figure

from regard.look.page.single_file import content_hash
from regard.look.slides.deck import Deck, Slide, marked
from regard.look.slides.pictures import picture_of

DPI = 130
TAGS = {"code": "code", "_": "sub", "^": "sup"}

STYLE = """
:root { color-scheme: light; font: min(2.3vh, 1.3vw)/1.4 system-ui, sans-serif; color: #1f2430; }
body { margin: 0; background: #fff; }
section { display: none; box-sizing: border-box; height: 100vh; padding: 2.5rem 3rem; grid-template-columns: 38% 1fr;
  grid-template-rows: auto minmax(0, 1fr); gap: 1rem 2.5rem; }
section.now { display: grid; }
section.first.now { place-content: center; grid-template-rows: auto; grid-template-columns: auto; text-align: center; }
h1 { font-size: 2.1rem; line-height: 1.15; margin: 0; grid-column: 1 / -1; }
h1 small { background: #e6eefb; color: #2457b3; border-radius: .5rem; padding: 0 .6rem; font-size: .6em;
  vertical-align: .2em; }
.question { font-size: 1.5rem; margin: 0; }
ol { list-style: upper-alpha; font-size: 1.3rem; padding-left: 2rem; margin: 1rem 0; }
.answer { display: none; border-left: 5px solid #0b7a5e; padding-left: 1rem; font-size: 1.2rem; }
.notes { display: none; color: #596275; }
.shown .answer, .shown .notes { display: block; }
.shown li.right { color: #0b7a5e; font-weight: 700; }
.shown li.right::after { content: " ✓"; }
figure { margin: 0; min-height: 0; display: grid; place-items: center; visibility: hidden; }
.shown figure, figure.open { visibility: visible; }
img { max-width: 100%; max-height: 100%; object-fit: contain; }
footer { position: fixed; right: 1.5rem; bottom: .8rem; color: #596275; font-size: .8rem; }
body.blank > * { visibility: hidden !important; } body.blank { background: #000; }
@page { size: 16in 9in; margin: 0; }
@media print { section { display: grid; height: 9in; break-after: page; } .answer, .notes { display: block; }
  figure { visibility: visible; } li.right { color: #0b7a5e; font-weight: 700; } footer { display: none; } }
"""

SCRIPT = """
const slides = [...document.querySelectorAll("section")];
const place = document.querySelector("footer");
let at = 0;
function show(next, answered) {
  at = Math.max(0, Math.min(slides.length - 1, next));
  slides.forEach((slide, i) => {
    slide.classList.toggle("now", i === at);
    slide.classList.toggle("shown", i === at && answered);
  });
  place.textContent = `${at + 1} / ${slides.length} ${slides[at].dataset.minutes ?? ""}`;
  try { history.replaceState(null, "", `#${at + 1}${answered ? "a" : ""}`); } catch { /* a frame has no address */ }
}
function forward() {
  const open = slides[at];
  if (open.querySelector(".answer") && !open.classList.contains("shown")) show(at, true);
  else if (at < slides.length - 1) show(at + 1, false);
}
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.body.classList.contains("blank")) document.body.classList.remove("blank");
  else if (["ArrowRight", "PageDown", " ", "Enter"].includes(event.key)) forward();
  else if (["ArrowLeft", "PageUp"].includes(event.key)) show(at - 1, false);
  else if (event.key === "Home") show(0, false);
  else if (event.key === "End") show(slides.length - 1, false);
  else if (event.key === "b" || event.key === ".") document.body.classList.add("blank");
  else return;
  event.preventDefault();
});
addEventListener("click", forward);
const [, number, answered] = /^#(\\d+)(a?)$/.exec(location.hash) ?? ["", "1", ""];
show(Number(number) - 1, answered === "a");
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<section class="first"><h1>{title}</h1><p>{subtitle}</p></section>
{slides}
<footer></footer>
<script>{script}</script>
</body>
</html>
"""


def make_html(deck: Deck) -> str:
    """Return the slides as one HTML page."""
    return PAGE.format(
        title=html.escape(deck.title),
        subtitle=html.escape(deck.subtitle),
        style=STYLE,
        policy=f"default-src 'none'; img-src data:; style-src '{content_hash(STYLE)}'; "
        f"script-src '{content_hash(SCRIPT)}'",
        script=SCRIPT,
        slides="\n".join(map(_section, deck.slides)),
    )


def _section(slide: Slide) -> str:
    choices = "".join(
        f"<li{' class=right' if i == slide.right else ''}>{_text(choice)}</li>"
        for i, choice in enumerate(slide.choices)
    )
    minutes = f' data-minutes="· {slide.minutes} min"' if slide.minutes else ""
    notes = f'<p class="notes">{_text(slide.notes)}</p>' if slide.notes else ""
    draw = picture_of(slide)
    picture = f'<figure><img alt="{html.escape(slide.title)}" src="{_image(draw())}"></figure>' if draw else ""
    return (
        f'<section id="{slide.id}"{minutes}><h1><small>{slide.tag}</small> {_text(slide.title)}</h1>'
        f'<div><p class="question">{_text(slide.question)}</p><ol>{choices}</ol>'
        f'<p class="answer">{_text(slide.answer)}</p>{notes}</div>{picture}</section>'
    )


def _text(text: str) -> str:
    return marked(
        text, plain=html.escape, style=lambda kind, content: f"<{TAGS[kind]}>{html.escape(content)}</{TAGS[kind]}>"
    )


def _image(figure: Figure) -> str:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
