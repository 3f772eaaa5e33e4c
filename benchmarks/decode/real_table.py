"""The table of decode_real.py, written into docs/results.md and the README: `<!-- table: decode-real -->`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs" / "results.md", ROOT / "README.md")
MARKED = re.compile(r"(<!-- table: decode-real -->\n).*?(<!-- end of table -->)", re.DOTALL)
FILE = 0  # in place of a batch size
Report = dict[str, Any]


def write_tables(path: Path) -> str:
    """Write the table of a report into the pages, and return it."""
    table = make_table(json.loads(path.read_text(encoding="utf-8")))
    for page in PAGES:
        text, count = MARKED.subn(lambda match: f"{match[1]}{table}{match[2]}", page.read_text(encoding="utf-8"))
        if not count:
            raise SystemExit(f"{page.name} has no place for it: <!-- table: decode-real --> … <!-- end of table -->")
        page.write_text(text, encoding="utf-8")
    return table


def make_table(report: Report) -> str:
    """Return the description and the table, as Markdown."""
    threads = min(cell["threads"] for cell in report["cells"])
    measured = [cell for cell in report["cells"] if cell["threads"] == threads]
    cells = {(cell["form"], cell["batch"], cell["beam"]): cell for cell in measured}
    forms = [form for form in ("int8", "fp32") if any(key[0] == form for key in cells)]
    head = ["batch, beam"]
    for form in forms:
        head += [f"regard {form}", f"CTranslate2 {form}", "CPU ratio", "wall ratio"]
    has_transformers = any("transformers" in cell["cpu_ms"] for cell in cells.values())
    rows = [[*head, *(["transformers fp32"] if has_transformers else [])]]
    rows.append(["---"] * len(rows[0]))
    for batch, beam in dict.fromkeys(key[1:] for key in cells):
        row = [f"{'file' if batch == FILE else batch}, {beam}"]
        for form in forms:
            row += _numbers(cells[form, batch, beam])
        if has_transformers:
            row.append(f"{cells['fp32', batch, beam]['cpu_ms']['transformers']:.1f}")
        rows.append(row)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*_describe(report, threads, has_transformers), "", *lines, ""])


def _numbers(cell: Report) -> list[str]:
    times = [f"{cell['cpu_ms'][name]:.1f}" for name in ("regard", "CTranslate2")]
    return [*times, f"{cell['cpu_ratio']:.2f}", f"{cell['wall_ratio']:.2f}"]


def _describe(report: Report, threads: int, has_transformers: bool) -> list[str]:
    machine, summary = report["hardware"], report["summary"]
    lines = [
        f"Milliseconds of CPU time for each text on {threads} thread{'s' if threads > 1 else ''} of a machine with",
        f"{machine['cores']} cores ({machine['cpu']}; load {machine['load']:.1f} at the start), and how many times",
        f"as long CTranslate2 {report['versions']['ctranslate2']} takes, in CPU time and in wall time.",
        f"{report['sentences']} sentences of {report['words']:.1f} words on average; {report['date'][:10]}.",
        f"{summary['met']} of {summary['cells']} cells, on all numbers of threads, reach {summary['target']} in both.",
    ]
    for form in ("int8", "fp32"):
        for texts in report.get(f"{form}_texts", []):
            line = f"{form}, beam {texts['beam']}: {texts['same']} of {texts['texts']} texts are the same"
            if "read_alike" in texts:
                line += f", {texts['same_of_these']} of the {texts['read_alike']} that both read alike"
            if "bleu" in texts:
                line += f"; BLEU {texts['bleu']['regard']:.2f} and {texts['bleu']['CTranslate2']:.2f}"
            lines.append(f"{line}.")
    if has_transformers:
        lines.append(
            "transformers has no translation model with rotary positions: its column is a Marian model of the same\n"
            "sizes with random weights, which generates as many tokens as the longest translation of each batch has."
        )
    return lines
