"""The table of decode_real.py, written into docs/results.md and the README: `<!-- table: decode-real -->`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
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


def join_reports(paths: Sequence[Path]) -> Report:
    """Join reports of one machine and one day: a whole run takes longer than a machine stays quiet.

    The cells of batches may have fewer sentences than those of the file.
    """
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    joined: Report = max(reports, key=lambda report: report["sentences"])
    for report in reports:
        for key in ("hardware", "versions", "model", "busy"):
            known, new = ({**part[key], "load": None} if key == "hardware" else part[key] for part in (joined, report))
            if new != known:
                raise SystemExit(f"the reports differ in {key}: {known} and {new}")
        for key in report.keys() - joined.keys():
            joined[key] = report[key]  # the texts and profiles of another form
        for form in ("int8", "fp32"):
            joined[f"{form}_profile"] = joined.get(f"{form}_profile") or report.get(f"{form}_profile", [])
    cells = [{**cell, "sentences": report["sentences"]} for report in reports for cell in report["cells"]]
    met = sum(min(cell["cpu_ratio"], cell["wall_ratio"]) >= joined["summary"]["target"] for cell in cells)
    joined["cells"] = sorted(cells, key=_order)
    joined["commands"] = [report["command"] for report in reports]
    joined["hardware"]["load"] = max(report["hardware"]["load"] for report in reports)
    joined["summary"] = {"target": joined["summary"]["target"], "cells": len(cells), "met": met}
    return joined


def _order(cell: Report) -> tuple[object, ...]:
    return cell["form"], cell["threads"], cell["batch"] or sys.maxsize, cell["beam"]  # the file after the batches


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


def _sentences(report: Report) -> str:
    """Say how many sentences there are; in joined reports, batches may have fewer."""
    fewest = min(cell.get("sentences", report["sentences"]) for cell in report["cells"])
    fewer = f" (in batches the first {fewest})" if fewest < report["sentences"] else ""
    return f"{report['sentences']} sentences{fewer}"


def _numbers(cell: Report) -> list[str]:
    times = [f"{cell['cpu_ms'][name]:.1f}" for name in ("regard", "CTranslate2")]
    return [*times, f"{cell['cpu_ratio']:.2f}", f"{cell['wall_ratio']:.2f}"]


def _describe(report: Report, threads: int, has_transformers: bool) -> list[str]:
    machine, summary = report["hardware"], report["summary"]
    lines = [
        f"Milliseconds of CPU time for each text on {threads} thread{'s' if threads > 1 else ''} of a machine with",
        f"{machine['cores']} cores ({machine['cpu']}; load {machine['load']:.1f} at the start), and how many times",
        f"as long CTranslate2 {report['versions']['ctranslate2']} takes, in CPU time and in wall time.",
        f"{_sentences(report)} of {report['words']:.1f} words on average; {report['date'][:10]}.",
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
