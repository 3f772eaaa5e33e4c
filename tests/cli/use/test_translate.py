"""`regard translate`: a line for each line, whatever the lines are."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings, strategies as st
from typer.testing import Result

from regard.api.ensemble import join_translators
from regard.api.translator import Translator
from regard.cli.shared.input_lines import progress
from regard.cli.shared.search_options import make_random_search, make_rules, make_search
from regard.cli.use.translated_lines import LineSettings, output_line, translate_batch, translate_lines
from regard.decoding.cpu import c_matrix as compiled
from regard.decoding.cpu.packed_weight import Weight
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens, NoRepeat, RepetitionPenalty
from regard.decoding.searches.minimum_risk import MinimumRisk, overlap
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.speculative import Speculative
from regard.errors import DataError
from regard.tasks.loading import load
from regard.text.files import input_windows
from regard.text.files.input_windows import line_windows
from regard.text.tokenizers.special_tokens import END

ROOT = Path(__file__).parents[3]
SCRIPT = "from regard.cli import main; main()"

Run = Callable[..., Result]
SHORT = ("--max-tokens", "6")


def test_a_line_for_each_line_and_what_the_library_says(command: Run, models: dict[str, str]) -> None:
    lines = ["Jane visite l'Afrique.", "", "le chat", "   ", "Jane dort"]
    result = command("translate", "-m", models["translator"], *SHORT, stdin="\n".join(lines) + "\n")
    assert result.exit_code == 0, result.stderr
    wanted = load(models["translator"]).translate(lines, beam=5, max_tokens=6)
    assert result.stdout.split("\n") == [*(one.text.replace("\n", " ") for one in wanted), ""]
    assert result.stdout.split("\n")[1] == result.stdout.split("\n")[3] == ""


def test_a_file_with_windows_line_ends_a_mark_and_no_last_line_end(
    command: Run, models: dict[str, str], tmp_path: Path
) -> None:
    plain, windows = tmp_path / "plain.txt", tmp_path / "windows.txt"
    plain.write_bytes("le chat\n\nJane dort en été\n".encode())
    windows.write_bytes("\ufeffle chat\r\n\r\nJane dort en été".encode())
    results = [command("translate", "-m", models["translator"], *SHORT, file) for file in (plain, windows)]
    assert results[0].stdout == results[1].stdout and results[0].stdout.count("\n") == 3


def test_only_line_feeds_end_lines(command: Run, models: dict[str, str]) -> None:
    text = "le chat\u2028dort\x0bdans\x85la\rmaison\n"
    assert command("translate", "-m", models["translator"], *SHORT, stdin=text).stdout.count("\n") == 1


def test_a_line_that_is_not_utf8_is_empty_and_told(command: Run, models: dict[str, str]) -> None:
    result = command("translate", "-m", models["translator"], *SHORT, stdin=b"le chat\n\xe9t\xe9\nle chat\n")
    assert result.exit_code == 3
    first, bad, last, end = result.stdout.split("\n")
    assert first == last != "" and bad == end == ""
    assert "regard: line 2: not UTF-8: " in result.stderr and "at byte 1" in result.stderr
    assert "1 of 3 lines failed" in result.stderr


def test_a_line_that_cannot_be_translated_fails_alone(command: Run, models: dict[str, str]) -> None:
    lines = ["le chat", "le chat noir dort dans la maison " * 9, "la maison"]
    result = command("translate", "-m", models["short"], "--include", "cat", stdin="\n".join(lines))
    assert result.exit_code == 3
    alone = load(models["short"]).translate([lines[0], lines[2]], include=["cat"])
    wanted = [alone[0].text, "", alone[1].text, ""]
    assert result.stdout.split("\n") == [text.replace("\n", " ") for text in wanted]
    assert "line 2: include works for one sentence, but a text has several parts" in result.stderr


def test_warnings_are_limited_in_number(command: Run, models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(translations: list[object], info: object) -> None:
        for _ in translations:
            warnings.warn("the input does not look like French", stacklevel=2)

    monkeypatch.setattr("regard.api.translator.warn_about_foreign", warn)
    result = command(
        "translate", "-m", models["translator"], "--max-tokens", "2", "--beam", "1", stdin="le chat\n" * 25
    )
    assert result.stderr.count("does not look like French") == 10
    assert "15 more warnings like these" in result.stderr


def test_long_words_are_parted(command: Run, models: dict[str, str]) -> None:
    for name in ("translator", "short"):  # trained on 100 tokens, and 24 places
        result = command("translate", "-m", models[name], *SHORT, "--beam", "1", stdin="chat" * 200)
        assert (result.exit_code, result.stderr, result.stdout.count("\n")) == (0, "", 1)


@pytest.mark.parametrize(
    ("options", "search"),
    [
        (["--beam", "1"], Greedy()),
        (["--beam", "3"], Beam(3)),
        (["--beam", "3", "--length-penalty", "0"], Beam(3, length_penalty=0.0)),
        (["--sample", "--seed", "7"], Sample(seed=7)),
        (
            ["--sample", "--temperature", "2", "--top-k", "9", "--top-p", "0.9", "--min-p", "0.01"],
            Sample(temperature=2.0, top_k=9, top_p=0.9, min_p=0.01),
        ),
        (["--beam", "1", "--min-tokens", "4"], Greedy(rules=(MinTokens(4),))),
        (["--no-repeat", "1"], Beam(5, rules=(NoRepeat(1),))),
        (["--sample", "--repetition-penalty", "9"], Sample(rules=(RepetitionPenalty(9.0),))),
    ],
)
def test_the_options_are_the_search(command: Run, models: dict[str, str], options: list[str], search: object) -> None:
    result = command("translate", "-m", models["translator"], *SHORT, *options, "--json", "-t", "le chat noir")
    wanted = load(models["translator"]).translate("le chat noir", search=search, max_tokens=6)
    found = json.loads(result.stdout)
    assert found["tokens"] == wanted.tokens and found["text"] == wanted.text
    assert found["score"] == pytest.approx(wanted.score, abs=1e-3)


def test_draws_depend_on_the_line_and_not_on_the_batch(command: Run, models: dict[str, str]) -> None:
    lines = ["Jane visite l'Afrique.", "le chat", "", "Jane dort", "le chat noir mange", "le chat"]
    draw = ("--sample", "--temperature", "3", "--seed", "4")
    results = [
        command("translate", "-m", models["translator"], *SHORT, *draw, "--batch", batch, stdin="\n".join(lines))
        for batch in ("1", "2", "99")
    ]
    assert results[0].stdout == results[1].stdout == results[2].stdout
    found = results[0].stdout.split("\n")
    assert found[1] != found[5]  # the same text on another line


def test_rules_reach_every_search() -> None:
    rules = make_rules(1.5, 2, 3, 9)
    assert rules == (RepetitionPenalty(1.5), NoRepeat(2), MinTokens(3)) and make_rules(None, None, None, None) == ()
    drawn = make_random_search(True, None, None, None, None, None, None, rules)
    assert drawn == Sample(rules=rules) and make_search(None, None, drawn, 1, rules) is drawn
    assert make_search(1, None, None, 1, rules) == Greedy(rules=rules)
    assert make_search(4, 0.5, None, 1, rules) == Beam(4, length_penalty=0.5, rules=rules)


def test_phrases_that_must_come(command: Run, models: dict[str, str]) -> None:
    options = ("-m", models["translator"], "--max-tokens", "14", "--include", "the house", "--include", "black cat")
    result = command("translate", *options, stdin="le chat\n\nJane dort\n")
    assert result.exit_code == 0, result.stderr
    first, empty, last, _ = result.stdout.split("\n")
    assert empty == "" and all(phrase in text for phrase in ("the house", "black cat") for text in (first, last))
    assert "black cat" in command("translate", *options, "-t", "le chat").stdout


def test_several_models_translate_as_one(command: Run, models: dict[str, str]) -> None:
    both = ("-m", models["translator"], "-m", models["other"])
    wanted = join_translators([load(models["translator"]), load(models["other"])])
    result = command("translate", *both, *SHORT, "--json", stdin="le chat noir\n")
    found = wanted.translate("le chat noir", max_tokens=6)
    assert json.loads(result.stdout)["tokens"] == found.tokens
    assert json.loads(result.stdout)["score"] == pytest.approx(found.score, abs=1e-3)
    shown = json.loads(command("translate", *both, *SHORT, "--json", "--attention", "-t", "le chat noir").stdout)
    weights = [weight for row in shown["alignment"]["weights"] for weight in row]
    assert weights == pytest.approx(found.alignment().weights.flatten().tolist(), abs=1e-3)
    result = command("translate", "-m", models["translator"], "-m", models["writer"], "-t", "le chat")
    assert result.exit_code == 2 and "use `regard generate" in result.stderr


def test_weights_are_laid_out_for_c_where_there_is_one(
    command: Run, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the results of plain ones, alignments too."""
    forms, translate = [], Translator.translate

    def watched(self: Translator, *texts: Any, **settings: Any) -> Any:
        forms.append(isinstance(next(self.decoding_model.parameters()), Weight))
        return translate(self, *texts, **settings)

    def plain(name: str) -> Translator:
        face = load(models[name])
        assert isinstance(face, Translator)
        return Translator(face.model, face.source_tokenizer, face.target_tokenizer, info=face.info)

    wanted = [plain("translator"), join_translators([plain("translator"), plain("other")])]
    monkeypatch.setattr(Translator, "translate", watched)
    both = ("-m", models["translator"], "-m", models["other"])
    for face, chosen in zip(wanted, (both[:2], both), strict=True):
        result = command("translate", *chosen, *SHORT, "--json", "--attention", stdin="le chat noir")
        assert forms.pop() is (compiled.compiled() is not None)
        found, told = json.loads(result.stdout), translate(face, "le chat noir", max_tokens=6)
        assert found["tokens"] == told.tokens and found["score"] == pytest.approx(told.score, abs=2e-4)
        for ours, theirs in zip(found["alignment"]["weights"], told.alignment().weights.tolist(), strict=True):
            assert ours == pytest.approx(theirs, abs=2e-4)
    command("translate", "-m", models["translator"], *SHORT, "--dtype", "bfloat16", "-t", "le chat")
    monkeypatch.setattr("regard.decoding.cpu.packed_copy.compiled", lambda: None)
    command("translate", "-m", models["translator"], *SHORT, "-t", "le chat")
    assert forms == [False, False]


def test_minimum_risk_takes_the_text_most_like_the_others(command: Run, models: dict[str, str]) -> None:
    options = ("--minimum-risk", "6", "--temperature", "2", "--seed", "3", *SHORT)
    result = command("translate", "-m", models["translator"], *options, "-t", "le chat noir", "--json")
    translator: Any = load(models["translator"])
    search = MinimumRisk(6, Sample(temperature=2.0, seed=3))
    found = translator.translate("le chat noir", search=search, max_tokens=6)
    assert json.loads(result.stdout)["tokens"] == found.tokens
    texts = translator.translate("le chat noir", search=search.search, alternatives=6, max_tokens=6, guard=False)
    drawn = [[token for token in text.ids if token != END] for text in texts.alternatives]

    def mean_utility(ids: list[int]) -> float:
        return sum(overlap(ids, other) for other in drawn) / len(drawn)

    assert mean_utility([token for token in found.ids if token != END]) == max(map(mean_utility, drawn))


@pytest.mark.parametrize("options", [["--beam", "1"], ["--sample", "--seed", "5"]])
def test_a_draft_helps(command: Run, models: dict[str, str], options: list[str]) -> None:
    """Greedy search finds the same text; a sample is one of Speculative."""
    chosen = ("translate", "-m", models["translator"], *SHORT, *options, "-t", "le chat noir", "--json")
    drafted = json.loads(command(*chosen, "--draft", models["other"]).stdout)
    if "--sample" not in options:
        assert drafted == json.loads(command(*chosen).stdout)
        return
    translator: Any = load(models["translator"])
    search = Speculative(load(models["other"]), Sample(seed=5))
    assert drafted["tokens"] == translator.translate("le chat noir", search=search, max_tokens=6).tokens


def test_the_length_penalty_reaches_the_beam() -> None:
    assert make_search(3, 0.5, None, 1) == Beam(3, length_penalty=0.5)
    assert make_search(None, None, None, 7) == Beam(7, length_penalty=1.0)


def test_line_breaks_of_the_model_do_not_break_lines() -> None:
    found: Any = SimpleNamespace(text="a\nb\rc", score=0.0)
    found.alternatives = [found, found]
    for n, wanted in ((1, "a b c"), (2, "5\t0.0000\ta b c\n5\t0.0000\ta b c")):
        assert output_line(5, found, LineSettings(Greedy(), n, None, attention=False, as_json=False)) == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--temperature", "0.5"], "--temperature is an option of sampling: add --sample"),
        (["--seed", "0"], "--seed is an option of sampling"),
        (["--sample", "--beam", "2"], "have no effect on samples"),
        (["--sample", "--length-penalty", "1"], "have no effect on samples"),
        (["--beam", "1", "--length-penalty", "1"], "--beam 1 has only one"),
        (["--minimum-risk", "4", "--sample"], "pass one of them"),
        (["--minimum-risk", "4", "--beam", "2"], "have no effect on samples"),
        (["--minimum-risk", "4", "--include", "cat"], "--include needs beam search"),
        (["--minimum-risk", "2", "-n", "3"], "alternatives=3 is more than candidates=2"),
        (["--draft", "fr-en"], "add --beam 1 or --sample"),
        (["--draft", "fr-en", "--beam", "1"], "model and draft must have the same tokenizers"),
        (["--draft", "fr-en", "--sample", "-n", "2"], "--draft is for one translation by one model"),
        (["--draft", "fr-en", "--beam", "1", "-m", "fr-en"], "--draft is for one translation by one model"),
        (["--draft", "shakespeare", "--beam", "1"], "use `regard generate -m shakespeare`"),
        (["--attention"], "--attention needs --json or --text"),
        (["--plot", "a.png"], "--plot draws one sentence"),
        (["-t", "le chat", "file.txt"], "a file or --text, not both"),
        (["--beam", "2", "-n", "3", "-t", "x"], "cannot find alternatives=3"),
        (["--beam", "2", "-n", "3"], "cannot find alternatives=3"),
        (["--sample", "--top-p", "2", "-t", "x"], "top_p must be a share"),
        (["--min-tokens", "7", "--max-tokens", "6"], "--min-tokens 7 is more than --max-tokens 6"),
        (["--repetition-penalty", "0.9"], "a repetition penalty must be a number from 1, got 0.9"),
        (["--repetition-penalty", "nan"], "a repetition penalty must be a number from 1"),
        (["--sample", "--include", "cat"], "--include needs beam search"),
        (["--beam", "1", "--include", "cat"], "--include needs beam search"),
        (["--include", " "], "--include ' ': the phrase is empty"),
        (["--include", "the black cat sleeps", "--max-tokens", "2"], "tokens, but a translation may have at most 2"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["--dtype", "int5"], "unknown dtype 'int5'"),
    ],
)
def test_wrong_options(command: Run, models: dict[str, str], options: list[str], message: str) -> None:
    result = command("translate", "-m", models["translator"], *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("regard: ") and message in result.stderr


def test_numbers_out_of_range(command: Run, models: dict[str, str]) -> None:
    for option in ("--min-tokens", "--no-repeat"):
        result = command("translate", "-m", models["translator"], option, "0", "-t", "le chat")
        assert result.exit_code == 2 and option in result.stderr and "than or equal to 1" in result.stderr
    result = command("translate", "-m", models["short"], "--min-tokens", "30", "-t", "le chat")
    assert result.exit_code == 2 and "more than the 24 positions that the model has learned" in result.stderr


def test_n_best_as_columns(command: Run, models: dict[str, str]) -> None:
    result = command("translate", "-m", models["translator"], *SHORT, "-n", "3", stdin=b"le chat\n\n\xff\n")
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    wanted = load(models["translator"]).translate("le chat", alternatives=3, max_tokens=6).alternatives
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3"]
    assert [row[2] for row in rows[:3]] == [one.text.replace("\n", " ") for one in wanted]
    assert [float(row[1]) for row in rows[:3]] == pytest.approx([one.score for one in wanted], abs=1e-3)
    assert rows[3:] == [["2", "0.0000", ""], ["3", "", ""]] and result.exit_code == 3


def test_json_lines(command: Run, models: dict[str, str]) -> None:
    options = ("--json", "--attention", "-n", "2")
    result = command("translate", "-m", models["translator"], *SHORT, *options, stdin=b"le chat noir\n\n\xff\n")
    full, empty, failed = map(json.loads, result.stdout.splitlines())
    assert full["text"] == full["alternatives"][0]["text"] and len(full["alternatives"]) == 2
    alignment = full["alignment"]
    assert alignment["source"] == ["le", "chat", "noir", "</s>"]
    assert [len(row) for row in alignment["weights"]] == [4] * len(alignment["target"])
    assert [sum(row) for row in alignment["weights"]] == pytest.approx([1.0] * len(alignment["target"]), abs=1e-3)
    assert (empty["text"], empty["tokens"], empty["alignment"]) == ("", [], None)
    assert failed["text"] == "" and "not UTF-8" in failed["error"]


def test_one_sentence_with_its_alignment_and_picture(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    picture = tmp_path / "align.png"
    options = ("--attention", "--plot", picture)
    result = command("translate", "-m", models["translator"], *SHORT, *options, "--text", "le chat noir")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].split() == ["le", "chat", "noir", "</s>"]
    assert picture.read_bytes().startswith(b"\x89PNG") and str(picture) in result.stderr


def test_no_attention_no_alignment(command: Run, models: dict[str, str]) -> None:
    result = command("translate", "-m", models["plain"], *SHORT, "--attention", "-t", "le chat")
    assert result.exit_code == 2 and "'rnn-seq2seq' has no attention to the source" in result.stderr


def test_missing_things(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    result = command("translate", "-m", models["translator"], tmp_path / "nothing.txt")
    assert result.exit_code == 3 and "nothing.txt: no such file" in result.stderr
    result = command("translate", "-m", tmp_path / "nothing")
    assert result.exit_code == 4 and "there is no folder" in result.stderr and "shipped: " in result.stderr
    result = command("translate", "-m", tmp_path)
    assert result.exit_code == 4 and "not a model folder" in result.stderr


@pytest.mark.parametrize(("name", "right"), [("writer", "generate"), ("encoder", "embed")])
def test_another_kind_of_model(command: Run, models: dict[str, str], name: str, right: str) -> None:
    result = command("translate", "-m", models[name], "-t", "le chat")
    assert result.exit_code == 2 and f"use `regard {right} -m {models[name]}`" in result.stderr


class Trickle:
    """A pipe that gives a few bytes at a time."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = iter(parts)

    def isatty(self) -> bool:
        return False

    def read1(self, size: int) -> bytes:
        return next(self.parts, b"")


BYTES = st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\xff"]), max_size=40).map(b"".join)


def cut_up(content: bytes, sizes: list[int]) -> list[bytes]:
    parts = []
    for size in sizes:
        parts.append(content[:size])
        content = content[size:]
    return [part for part in [*parts, content] if part]


@given(BYTES, st.lists(st.integers(1, 9), max_size=20), st.integers(1, 4))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_lines_do_not_depend_on_how_they_arrive(content: bytes, sizes: list[int], first: int) -> None:
    windows = list(line_windows(Trickle(cut_up(content, sizes)), first))  # type: ignore[arg-type]
    wanted = content.split(b"\n")
    assert [line for lines in windows for line in lines] == (wanted[:-1] if wanted[-1] == b"" else wanted)
    assert all(windows)


def test_windows_grow_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_windows, "WINDOW_LINES", 6)
    windows = line_windows(Trickle([b"a\n" * 20, b"a\n", b"a\n" * 7]), 2)  # type: ignore[arg-type]
    assert [len(lines) for lines in windows] == [2, 4, 6, 6, 2, 1, 6, 1]
    windows = line_windows(Trickle([b"a\n" * 20]), 9)  # type: ignore[arg-type]  # who asks for more gets it
    assert [len(lines) for lines in windows] == [9, 9, 2]


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_windows, "MAX_LINE_BYTES", 8)
    parts = [b"123456789", *[b"0" * 5] * 9, b"\n12345678\n"]
    ((long, short),) = line_windows(Trickle(parts), 2)  # type: ignore[arg-type]
    assert 8 < len(long) <= 14 and short == b"12345678"  # cut off, and still too long
    with pytest.raises(DataError, match="longer than 8 bytes"):
        input_windows.read_line(long)
    assert input_windows.read_line(short) == "12345678"


class Lengths:
    """A translator that notes what it gets together, and fails on what it is told to."""

    def __init__(self, bad: str = "", error: Exception | None = None) -> None:
        self.calls: list[list[int]] = []
        self.bad, self.error = bad, error

    def translate(self, texts: list[str], **settings: Any) -> list[Any]:
        self.calls.append([len(text) for text in texts])
        if self.error is not None and self.bad in texts:
            raise self.error
        return [SimpleNamespace(text=text.upper(), score=0.0) for text in texts]


PLAIN = LineSettings(Greedy(), 1, None, attention=False, as_json=False)


@given(st.lists(st.text("ab", max_size=9), max_size=30), st.integers(1, 7))
def test_similar_lengths_go_together_and_each_finds_its_place(texts: list[str], batch: int) -> None:
    translator: Any = Lengths()
    found = dict(translate_lines(translator, [text.encode() for text in texts], PLAIN, batch, first=7))
    assert [found[place].text for place in range(len(texts))] == [text.upper() for text in texts]  # type: ignore[union-attr]
    assert [length for call in translator.calls for length in call] == sorted(map(len, texts), reverse=True)
    assert all(len(call) == batch for call in translator.calls[:-1])


@pytest.mark.parametrize(
    ("error", "message"),
    [(DataError("too odd"), "too odd"), (RuntimeError("can't allocate memory: 1 TB"), "out of memory")],
)
@given(st.integers(1, 40), st.data())
def test_one_bad_line_is_found_among_many_in_few_calls(error: Exception, message: str, n: int, data: Any) -> None:
    bad = data.draw(st.integers(0, n - 1))
    translator: Any = Lengths(str(bad), error)
    found = translate_batch(translator, [(i, str(i)) for i in range(n)], PLAIN)
    assert [i for i, one in enumerate(found) if isinstance(one, str)] == [bad]
    assert message in str(found[bad]) and len(translator.calls) <= 2 * n.bit_length() + 1


def test_a_bug_is_not_hidden_as_a_bad_line() -> None:
    translator: Any = Lengths("a", RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        translate_batch(translator, [(0, "a"), (1, "b")], PLAIN)


def test_nul_is_no_text(command: Run, models: dict[str, str]) -> None:
    result = command("translate", "-m", models["translator"], *SHORT, stdin=b"le chat\nl\0e\0")
    assert result.exit_code == 3 and result.stdout.count("\n") == 2 and result.stdout.endswith("\n\n")
    assert "line 2: NUL at byte 2: if the file is UTF-16" in result.stderr


def test_the_order_of_the_input_is_kept_over_windows_and_batches(
    command: Run, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["le", "chat", "noir", "dort", "dans", "la", "maison"]
    lines = [" ".join(words[: 1 + i * 5 % 7]) for i in range(30)]
    texts = [one.text for one in load(models["translator"]).translate(lines, beam=1, max_tokens=6)]
    monkeypatch.setattr(input_windows, "WINDOW_LINES", 8)
    options = ("--beam", "1", "--batch", "3")
    result = command("translate", "-m", models["translator"], *SHORT, *options, stdin="\n".join(lines))
    assert result.stdout == "".join(text.replace("\n", " ") + "\n" for text in texts)


def test_packed_files(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    content = b"le chat\nla maison\n" * 20
    plain, packed, damaged = tmp_path / "a.txt", tmp_path / "a.gz", tmp_path / "b.gz"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    damaged.write_bytes(gzip.compress(content)[:-12])
    results = [command("translate", "-m", models["translator"], *SHORT, file) for file in (plain, packed, damaged)]
    assert results[0].stdout == results[1].stdout and results[0].stdout.count("\n") == 40
    assert results[2].exit_code == 3 and "damaged or cut off" in results[2].stderr


class Screen(io.StringIO):
    """A terminal that remembers what was written."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("terminal", "shown"), [(Screen, True), (io.StringIO, False)])
def test_progress_is_for_people_and_the_results_do_not_pass_through_it(
    terminal: type[io.StringIO], shown: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"x" * 100)
    screen, results = terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", results)
    monkeypatch.setenv("TERM", "xterm")
    with file.open("rb") as stream, progress(stream, file) as advance:
        sys.stdout.write("a result\n")
        typer.echo("a message", err=True)
        advance(25)
        advance(25)
    assert results.getvalue() == "a result\n"
    assert "a message" in screen.getvalue()
    assert ("translating" in screen.getvalue() and "50%" in screen.getvalue()) == shown


def measured(model: str, lines: int, place: Path) -> int:
    """The most memory that translating a file of so many lines takes, in MB."""
    file = place / f"{lines}.txt"
    file.write_text("".join(f"le chat {'noir ' * (i % 7)}\n" for i in range(lines)))
    code = SCRIPT.replace("main()", "\ntry: main()\nfinally: print(open('/proc/self/status').read())")
    line = [sys.executable, "-c", code, "translate", "-m", model, "--beam", "1", "--max-tokens", "2", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
    *texts, status = result.stdout.split("Name:")
    assert "".join(texts).count("\n") == lines, result.stderr
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")
@pytest.mark.timeout(600)
def test_memory_does_not_grow_with_the_file(models: dict[str, str], tmp_path: Path) -> None:
    few, many = (measured(models["translator"], lines, tmp_path) for lines in (2000, 20_000))
    assert many - few < 15, (few, many)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
@pytest.mark.timeout(90)  # an answer that stays in a buffer would be waited for
def test_lines_are_answered_one_by_one(models: dict[str, str]) -> None:
    """At a keyboard, with a prompt on stderr: the second line is typed only when the first has come back."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}  # our own flush shall do it
    line = [sys.executable, "-c", SCRIPT, "translate", "-m", models["translator"], "--beam", "1", "--max-tokens", "3"]
    keyboard, terminal = os.openpty()
    with subprocess.Popen(line, env=environment, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stderr is not None
        answers = []
        for text in (b"le chat\n", b"la maison\n"):
            os.write(keyboard, text)
            answers.append(run.stdout.readline())
        os.write(keyboard, b"\x04")  # the end of input
        assert (run.stdout.read(), run.stderr.read(), run.wait(timeout=60)) == (b"", b"> > > ", 0)
    os.close(terminal)
    os.close(keyboard)
    assert all(answer.endswith(b"\n") and len(answer) > 1 for answer in answers)
