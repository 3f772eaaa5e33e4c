"""Write the list of exercises into docs/learn/exercises.md: `python scripts/list_exercises.py`."""

from __future__ import annotations

import re
from pathlib import Path

from regard.exercises.catalogue import TOPICS, load_exercise

PAGE = Path(__file__).parents[1] / "docs/learn/exercises.md"
BEGIN, END = "<!-- exercises: made by scripts/list_exercises.py -->", "<!-- end of exercises -->"
LEVELS = {1: "●", 2: "●●", 3: "●●●"}


def table_of_exercises() -> str:
    """Return a section per topic with a table of its exercises."""
    sections = []
    for topic, rows in TOPICS.items():
        lines = [f"### {topic.title}", "", "| exercise | | question | tags | mistakes |", "|---|---|---|---|---|"]
        for name, level, tags, title in rows:
            mistakes = len(load_exercise(name)[1].mistakes)
            lines.append(f"| `{name}` | {LEVELS[level]} | {title} | {', '.join(tags.split())} | {mistakes} |")
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def with_table(page: str) -> str:
    """Return the page with an up-to-date list between its two comments."""
    return re.sub(f"{BEGIN}.*{END}", f"{BEGIN}\n\n{table_of_exercises()}\n\n{END}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
