"""Every tag of the lectures has a test named after it, or is listed as pending with the reason.

The list of tags is the table on docs/learn/lectures.md, whose links to code, tests and pictures must resolve.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from ..reference_links import reference_names

ROOT = Path(__file__).parents[2]
LAST = {"A": 4, "B": 8, "C": 4, "D": 17, "E": 11, "F": 4, "G": 6, "H": 4}
TAGS = [f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)]


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@dataclass(frozen=True)
class Row:
    tag: str
    what: str
    code: str
    test: str
    picture: str


def read_rows(text: str) -> list[Row]:
    """The rows of the table `| tag | what | code | test | picture |`."""
    lines = (line for line in text.splitlines() if re.match(r"\| [A-H]\d+ \|", line))
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]


def faults(tags: list[str], tested: dict[str, dict[str, str]], pending: dict[str, str]) -> list[str]:
    """What is wrong with the books: a tag without test and reason, with both, without a reason, or unknown."""
    found = [f"{tag} has neither a test nor a place in pending.toml" for tag in tags if tag not in {*tested, *pending}]
    found += [f"{tag} has a test and is pending too" for tag in tags if tag in tested and tag in pending]
    found += [f"{tag} is pending without a reason" for tag, reason in pending.items() if len(reason.split()) < 3]
    found += [f"{tag} is no tag of the lectures" for tag in sorted({*tested, *pending} - set(tags))]
    return found


# The titles of the tabs; that of the tab for other data depends on the model.
TABS = {"Image", "Series", "Sound"} | set(
    re.findall(r'entry\("\w", "\w+", "([\w ]+)"', (ROOT / "web/src/tabs/tabs.tsx").read_text(encoding="utf-8"))
)
links = load_script("link_lecture_tests")
TABLE = links.TABLE.read_text(encoding="utf-8")
ROWS = read_rows(TABLE)
TESTED = links.tests_by_tag(ROOT / "tests/lectures")
PENDING = links.read_pending()
by_row = pytest.mark.parametrize("row", ROWS, ids=[row.tag for row in ROWS])


def test_the_table_has_every_tag_once_and_in_order() -> None:
    assert [row.tag for row in ROWS] == TAGS


def test_every_tag_is_tested_or_pending() -> None:
    assert faults(TAGS, TESTED, PENDING) == []


@by_row
def test_code_exists(row: Row) -> None:
    """The code column names objects that can be imported; only a pending tag may have none."""
    names = reference_names(row.code)
    assert names or row.tag in PENDING, f"{row.tag} names no code"
    for name in names:
        find_object(name)


def test_links_to_tests_are_up_to_date() -> None:
    message = "run `python scripts/link_lecture_tests.py`"
    assert links.with_links(TABLE, TESTED) == TABLE, message
    assert links.page_of_tests(ROOT / "tests/lectures") == links.PAGE.read_text(encoding="utf-8"), message


@by_row
def test_picture_exists(row: Row) -> None:
    """The picture column links to headings of docs/learn/pictures.md, and names tabs of the explorer."""
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/learn/pictures.md").read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w]+", "-", heading.lower()).strip("-") for heading in headings}
    linked = re.findall(r"\]\(pictures\.md#([\w-]+)\)", row.picture)
    assert set(linked) <= anchors
    named = re.search(r"tabs? (.+)$", row.picture)
    tabs = named[1].split(" and ") if named else []
    assert set(tabs) <= TABS
    assert linked or tabs or row.tag in ("F4", "H1"), "which are an experiment and a property of the code"


def find_object(name: str) -> object:
    """The object that a dotted name means: a module, or something inside one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(f"{name} cannot be imported")


# The checker itself.


@pytest.mark.parametrize(
    ("tested", "pending", "fault"),
    [
        ({}, {}, "A1 has neither"),
        ({"A1": {"t": "f"}}, {"A1": "comes with training"}, "A1 has a test and is pending"),
        ({}, {"A1": ""}, "A1 is pending without a reason"),
        ({}, {"A1": "later"}, "A1 is pending without a reason"),
        ({"A1": {"t": "f"}, "Z9": {"t": "f"}}, {}, "Z9 is no tag"),
    ],
)
def test_a_wrong_book_is_found(tested: dict[str, dict[str, str]], pending: dict[str, str], fault: str) -> None:
    assert any(fault in sentence for sentence in faults(["A1"], tested, pending))


def test_a_right_book_has_no_faults() -> None:
    assert faults(["A1", "A2"], {"A1": {"t": "f"}}, {"A2": "comes with training"}) == []


def test_tests_are_found_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("def test_A1_a(): ...\ndef test_A10_b(): ...\ndef test_other(): ...\n")
    found = links.tests_by_tag(tmp_path)
    assert found == {"A1": {"test_A1_a": "test_x"}, "A10": {"test_A10_b": "test_x"}}
    rows = "| A1 | what | code | | |\n| A2 | what | code | old | |"
    first, second = read_rows(links.with_links(rows, found))
    assert first.test == "[`test_x`](lecture-tests.md#test-x-py)" and second.test == "pending"


def test_a_name_that_does_not_exist_is_found() -> None:
    assert find_object("regard.errors.DataError").__name__ == "DataError"
    with pytest.raises(AttributeError):
        find_object("regard.errors.NoSuchError")
