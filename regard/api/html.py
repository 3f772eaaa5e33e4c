"""Small HTML for notebooks: translations, alignments and models. All text is escaped, and colours suit light and dark.

There are no scripts, style sheets or links. Colours are transparent, so the notebook's background shows through, and
the text keeps its colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.api.results import Alignment, Translation

BORDER = "border:1px solid rgba(128,128,128,.4);padding:.2em .6em"
WEIGHT_COLOUR = "rgba(66,133,244,{:.2f})"  # its opacity is the weight
MAX_WORDS = 60  # of each side of an alignment; a page with more cells is slow
MAX_CHARACTERS = 2000  # of a text


def table_html(rows: Iterable[Sequence[str]], *, heading: Sequence[str] = ()) -> str:
    """Return a table of texts; the first cell of a row is its heading."""
    lines = [_row("th", "th", heading)] if heading else []
    lines += [_row("th", "td", row) for row in rows]
    return f'<table style="border-collapse:collapse">{"".join(lines)}</table>'


def translation_html(translation: Translation) -> str:
    """Return the source and its translations with their scores."""
    rows = [("source", translation.source, "")]
    ranked = translation.alternatives or [translation]
    for number, alternative in enumerate(ranked, start=1):
        name = "translation" if len(ranked) == 1 else f"translation {number}"
        rows.append((name, alternative.text, f"{alternative.score:.2f}"))
    return table_html(rows, heading=("", "text", "log-probability"))


def alignment_html(alignment: Alignment) -> str:
    """Return the weights as a table: one row per target word, one column per source word."""
    source, target = alignment.source[:MAX_WORDS], alignment.target[:MAX_WORDS]
    head = "".join(f'<th style="{BORDER}">{_text(word)}</th>' for word in source)
    lines = [f"<tr><th></th>{head}</tr>"]
    for word, weights in zip(target, alignment.weights.tolist(), strict=False):
        cells = "".join(
            f'<td style="{BORDER};background:{WEIGHT_COLOUR.format(weight)}">{weight:.2f}</td>'
            for weight in weights[: len(source)]
        )
        lines.append(f'<tr><th style="{BORDER};text-align:right">{_text(word)}</th>{cells}</tr>')
    hidden = len(alignment.source) > MAX_WORDS or len(alignment.target) > MAX_WORDS
    note = f"<p>only the first {MAX_WORDS} words of each side are shown</p>" if hidden else ""
    return f'<table style="border-collapse:collapse">{"".join(lines)}</table>{note}'


def describe_model(model: Any, info: dict[str, Any]) -> dict[str, str]:
    """Return the main facts of a loaded model, by name."""
    config = model.config
    languages = info.get("languages")
    facts = {"kind": str(config.kind)}
    if isinstance(languages, dict):
        facts["languages"] = " to ".join(str(language) for language in languages.values())
    facts["parameters"] = f"{sum(parameter.numel() for parameter in model.parameters()):,}"
    for name in ("layers", "dim", "heads", "hidden"):
        if (value := getattr(config, name, None)) is not None:
            facts[name] = str(value)
    facts["device"] = str(next(model.parameters()).device)
    return facts


def model_html(name: str, facts: dict[str, str], use: str) -> str:
    """Return the facts of a model, and a line of code that uses it."""
    return table_html([*facts.items(), ("use", use)], heading=(name, ""))


def model_repr(name: str, facts: dict[str, str]) -> str:
    """Return one line with the main facts."""
    main = ", ".join(facts[key] for key in ("kind", "languages") if key in facts)
    return f"{name}({main}, {facts['parameters']} parameters, on {facts['device']})"


def _row(first: str, other: str, cells: Sequence[str]) -> str:
    parts = [
        f'<{tag} style="{BORDER};text-align:left">{_text(cell)}</{tag}>'
        for tag, cell in zip((first, *[other] * (len(cells) - 1)), cells, strict=True)
    ]
    return f"<tr>{''.join(parts)}</tr>"


def _text(text: str) -> str:
    shortened = text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
    return escape(shortened).replace("\n", "<br>")
