"""Every tag and formula of the lectures stands in its chapter of the book, with links to code and tests.

The build of the documentation runs the chapters (docs/run_chapters.py); test_build.py and tests/browser look at the
result.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "docs/book"
CHAPTERS = {
    "tokens": "A",
    "positions": "B",
    "recurrent": "C",
    "attention": "D",
    "transformer": "E",
    "training": "E",
    "language-models": "E",
    "random-features": "F",
    "elsewhere": "G",
}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # a dataclass looks itself up
    spec.loader.exec_module(module)
    return module


links = load(ROOT / "scripts/link_book_tags.py")
runner = load(ROOT / "docs/run_chapters.py")
LINES = links.tag_lines(links.TABLE.read_text("utf-8"))

# What the displayed formulas of a tag's section contain, without spaces.
FORMULAS = {
    "A1": [r"(e_iW)_j=", r"W_{ij}"],
    "A2": [r"\log\sigma(-u_{c_i}\cdotv_w)", r"b_i+b'_j-\logX_{ij}"],
    "A3": [r"s=\frac{1}{n}\sum_{t=1}^{n}x_t"],
    "B1": [r"f(PX)=Pf(X)"],
    "B2": [r"PE(t,2i)=\sin\left(\frac{t}{10000^{2i/d}}\right)", r"PE(t,2i+1)=\cos\left(\frac{t}{10000^{2i/d}}\right)"],
    "B3": [r"p_t\cdotp_{t'}=\sum_{i=0}^{d/2-1}\cos\bigl(\omega_i(t-t')\bigr)", r"p_{t+k}=R_k\,p_t"],
    "B4": [r"\operatorname{Var}_{|t-t'|}"],
    "C1": [r"h_t&=(1-z_t)\odotn_t+z_t\odoth_{t-1}", r"c_t&=f_t\odotc_{t-1}+i_t\odotg_t"],
    "C2": [r"\operatorname{softmax}(Wh_t+b)"],
    "C3": [r"\prod_{t=T-k+1}^{T}"],
    "C4": [r"s_0=h_n", r"s_i=F(y_{i-1},s_{i-1})"],
    "D1": [r"Y=AV", r"a_{jk}=\frac{\exp(s_{jk})}{\sum_{l=1}^{n}\exp(s_{jl})}"],
    "D5": [r"w\cdot\tanh(W_qq+W_kk)", r"s=q^\topWk", r"s=q\cdotk\\", r"w\cdot\tanh(W[q;k])", r"q\cdotk/\sqrt{d_k}"],
    "D6": [r"QK^\top=\begin{pmatrix}3&-3&1\\-7&-1&11\end{pmatrix}"],
    "D7": [r"e_{ij}=x_i\cdotx_j"],
    "D8": [r"Q=XW_Q,\qquadK=XW_K,\qquadV=XW_V"],
    "D9": [r"\operatorname{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right)V"],
    "D10": [r"-\infty&\text{otherwise}"],
    "D11": [r"\operatorname{Concat}(\text{head}_1,\dots,\text{head}_h)\,W^O"],
    "D12": [r"\operatorname{diag}(W^Q_1,\dots,W^Q_h)"],
    "D13": [r"(YW_Q)(XW_K)^\top"],
    "D14": [r"e_{ij}=a(s_{i-1},h_j)", r"c_i=\sum_j\alpha_{ij}h_j", r"g(y_{i-1},s_i,c_i)"],
    "D15": [r"\operatorname{softmax}_j(s_i\cdoth_j)"],
    "E1": [r"\gamma\odot\frac{x-\mu}{\sigma}+b", r"\frac1p\sum_{c=1}^{p}(x_c-\mu)^2"],
    "E2": [r"\operatorname{ReLU}(xW_1+b_1)\,W_2+b_2"],
    "E3": [r"U=\operatorname{LayerNorm}\bigl(\operatorname{Attention}(X)\,W_0+X\bigr)", r"X'=\operatorname{LayerNorm}"],
    "E4": [
        r"U_1&=\operatorname{LayerNorm}(T_1W_0+Y)",
        r"\operatorname{LayerNorm}(T_2W_1+U_1)",
        r"Y'&=\operatorname{LayerNorm}",
    ],
    "E6": [r"P=\operatorname{softmax}(YW)"],
    "E7": [r"L=-\sum_{i=1}^{m}\logp(y_i\midy_{<i},x)"],
    "E8": [r"y_i=\arg\max_v"],
    "E10": [r"\prod_{t=1}^{T}p(x_t\midx_1,\dots,x_{t-1})"],
    "F1": [r"h=D^{-1}\exp\left(\frac{QK^\top}{\sqrt{d_k}}\right)V"],
    "F2": [r"\sin(w_1\cdotx),\dots,\sin(w_M\cdotx),\cos(w_1\cdotx)", r"\exp\left(-\frac{\sigma^2|x-y|^2}{2}\right)"],
    "F3": [r"e^{|q|^2/(2\sqrt{d_k})}\;e^{|k|^2/(2\sqrt{d_k})}\;\operatorname{E}"],
    "F4": [r"\phi\left(\frac{\sin\bigl(R(q_{jc}-k_{kc})\bigr)}"],
    "G3": [r"P(w)=p_{gen}\,P_{vocab}(w)+(1-p_{gen})"],
    "G4": [r"e_{tj}=w\cdot\tanh(Wh_{t-1}+Ua_j)"],
    "G5": [r"z_0=\bigl[x_{class}"],
    "B7": [r"\operatorname{rot}_i(q)\cdot\operatorname{rot}_j(k)"],
}


def text_of(chapter: str) -> str:
    return (BOOK / f"{chapter}.md").read_text("utf-8")


def sections(text: str) -> list[str]:
    return re.split(r"^## ", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), flags=re.MULTILINE)


def tags_of(text: str) -> list[str]:
    return links.LINE.findall(text)


def formulas(section: str) -> str:
    """The displayed formulas of a section, without spaces and alignment."""
    return "\n".join(re.sub(r"[\s&]", "", formula) for formula in re.findall(r"\$\$(.*?)\$\$", section, re.DOTALL))


def test_every_chapter_has_its_place() -> None:
    assert {path.stem for path in BOOK.glob("*.md")} == {*CHAPTERS, "index", "comparison", "answers"}


def test_every_tag_stands_in_its_chapter_once() -> None:
    """Tags of A to G stand in the chapter of their letter, those of H (what the lectures stress) in any."""
    found = [(tag, chapter) for chapter in CHAPTERS for tag in tags_of(text_of(chapter))]
    assert sorted(tag for tag, _ in found) == sorted(LINES)
    assert all(tag[0] in (CHAPTERS[chapter], "H") for tag, chapter in found)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_links_of_tags_are_those_of_the_table(chapter: str) -> None:
    text = text_of(chapter)
    assert links.with_links(text, LINES) == text, "run scripts/link_book_tags.py"


@pytest.mark.parametrize("tag", FORMULAS)
def test_formulas_stand_in_the_section_of_their_tag(tag: str) -> None:
    (section,) = (part for chapter in CHAPTERS for part in sections(text_of(chapter)) if tag in tags_of(part))
    for fragment in FORMULAS[tag]:
        assert fragment.replace("&", "") in formulas(section), f"{tag}: {fragment}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_what_the_book_promises(chapter: str) -> None:
    """A question, code, formulas, a figure, a claim that is checked, and exercises."""
    text = text_of(chapter)
    assert re.match(r"# .+\n\n\*.+\?\*\n\n", text)
    assert text.count("```python\n") >= 8 and text.count("$$") >= 6
    assert "show_source(" in text and "assert " in text and ("plt." in text or "regard.look." in text)
    assert (
        text.count("## Exercises") == 1 and len(re.findall(r"^\d\. ", text.split("## Exercises")[1], re.MULTILINE)) >= 5
    )
    assert "![" not in text, "a figure that the chapter does not draw"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_named_exercises_are_those_of_the_topic(chapter: str) -> None:
    from regard.exercises.catalogue import entries

    match = re.search(
        r"regard exercise list --topic (\w+)` lists them, among them\n(.*?)\. ", text_of(chapter), re.DOTALL
    )
    assert match is not None
    named = re.findall(r"`([\w-]+)`", match[2])
    assert len(named) >= 3 and set(named) <= {entry.name for entry in entries(match[1])}


def test_a_block_shows_what_it_prints_and_returns(tmp_path: Path) -> None:
    first = "```python\nprint('printed')\n1 + 1\n```\n"
    second = "```python\nimport matplotlib.pyplot as plt\nplt.plot([1]);\n```\n"
    page = f"# x\n\n{first}end\n{second}"
    shown = runner.run_chapter("book/planted", page, tmp_path)
    assert ":class: output\nprinted\n```\n" in shown and ":class: output\n2\n```\n" in shown
    assert "(../generated/book-planted-1.svg)" in shown and "Line2D" not in shown
    assert (tmp_path / "book-planted-1.svg").stat().st_size > 1000


def test_a_block_that_fails_stops_the_build(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        runner.run_chapter("book/planted", "# x\n\n```python\n1 / 0\n```\n", tmp_path)
    assert failure.value.__notes__[0] == "in the block of planted.md that begins on line 4"
