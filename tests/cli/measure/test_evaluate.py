"""`regard evaluate`: sacreBLEU's own numbers, and the attention held against alignments that we know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu
from typer.testing import Result

from regard.api.ensemble import join_translators
from regard.api.translator import Translator
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import Search
from regard.demo.corpus import demo_words
from regard.tasks.loading import load

Run = Callable[..., Result]
FRENCH = ["le chat noir dort", "Jane visite l'Afrique.", "la maison", "Jane dort dans la maison"] * 3
ENGLISH = ["the black cat sleeps", "Jane visits Africa.", "the house", "Jane sleeps in the house"] * 3
CLOSE = ["the black cat sleeps", "Jane visits the Africa.", "the house", "Jane sleeps in house"] * 3
LOWER = [text.lower() for text in ENGLISH]
FAR = ["a cat", "Jane Africa.", "a house", "Jane in a house sleeps"] * 3


def lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@pytest.fixture
def test_set(tmp_path: Path) -> tuple[Path, Path]:
    return lines(tmp_path / "test.fr", FRENCH), lines(tmp_path / "test.en", ENGLISH)


def test_hypotheses_are_scored_by_sacrebleu(command: Run, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    close = lines(tmp_path / "close.en", CLOSE)
    result = command("evaluate", *test_set, "--hypotheses", close, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["sentences"] == 12
    assert found["bleu"]["value"] == pytest.approx(sacrebleu.corpus_bleu(CLOSE, [ENGLISH]).score)
    assert found["chrf"]["value"] == pytest.approx(sacrebleu.corpus_chrf(CLOSE, [ENGLISH]).score)
    low, high = found["bleu"]["interval"]
    assert low < found["bleu"]["value"] < high and "tok:13a" in found["bleu"]["signature"]
    assert [bucket["count"] for bucket in found["by_length"]] == [12]  # too few to be parted


def test_options_reach_sacrebleu(command: Run, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    loud = lines(tmp_path / "loud.en", [text.upper() for text in CLOSE])
    found = json.loads(command("evaluate", *test_set, "--hypotheses", loud, "--json").stdout)
    assert found["bleu"]["value"] < 10
    options = ("--lowercase", "--tokenize", "char", "--json")
    found = json.loads(command("evaluate", *test_set, "--hypotheses", loud, *options).stdout)
    wanted = sacrebleu.corpus_bleu(CLOSE, [ENGLISH], tokenize="char", lowercase=True).score
    assert found["bleu"]["value"] == pytest.approx(wanted)
    assert found["chrf"]["value"] == pytest.approx(sacrebleu.corpus_chrf([t.lower() for t in CLOSE], [LOWER]).score)
    result = command("evaluate", *test_set, "--hypotheses", loud, "--tokenize", "13b")
    assert result.exit_code == 2 and "unknown tokenize '13b'; did you mean '13a'?" in result.stderr


def test_a_model_and_its_translations(
    command: Run, models: dict[str, str], test_set: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "ours.en"
    result = command("evaluate", "-m", models["translator"], *test_set, "--beam", "1", "--out", out)
    assert result.exit_code == 0, result.stderr
    ours = [one.text.replace("\n", " ") for one in load(models["translator"]).translate(FRENCH, beam=1)]
    assert out.read_text(encoding="utf-8").split("\n") == [*ours, ""]
    bleu = sacrebleu.corpus_bleu(ours, [ENGLISH]).score
    shown = result.stdout.splitlines()
    assert shown[0] == "12 sentences" and shown[1].startswith(f"BLEU {bleu:.1f} [")
    assert shown[2].startswith("chrF2 ") and shown[4].split() == ["words", "sentences", "BLEU", "chrF"]
    assert shown[5].split()[:2] == ["2-5", "12"]


def test_several_models_as_one(
    command: Run, models: dict[str, str], test_set: tuple[Path, Path], tmp_path: Path
) -> None:
    out, both = tmp_path / "ours.en", ("-m", models["translator"], "-m", models["other"])
    result = command("evaluate", *both, *test_set, "--beam", "1", "--out", out)
    assert result.exit_code == 0, result.stderr
    joined = join_translators([load(models["translator"]), load(models["other"])])
    ours = [one.text.replace("\n", " ") for one in joined.translate(FRENCH, beam=1)]
    assert out.read_text(encoding="utf-8").split("\n") == [*ours, ""]
    result = command("evaluate", *both, test_set[0])
    assert result.exit_code == 2 and "an ensemble translates: pass the references" in result.stderr


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), Beam(5, length_penalty=1.0)),
        (("--beam", "3", "--length-penalty", "0.6"), Beam(3, length_penalty=0.6)),
        (("--beam", "1"), Greedy()),
    ],
)
def test_search(
    command: Run,
    models: dict[str, str],
    test_set: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    wanted: Search,
) -> None:
    """The translations are looked for as the options say, those of the model to compare with too."""
    used, translate = [], Translator.translate

    def watched(self: Translator, text: list[str], *, search: Search) -> object:
        used.append(search)
        return translate(self, text, search=Greedy(), max_tokens=2)

    monkeypatch.setattr(Translator, "translate", watched)
    result = command("evaluate", "-m", models["translator"], *test_set, "--against", models["other"], *options)
    assert result.exit_code == 0, result.stderr
    assert used == [wanted, wanted]


def test_lengths(command: Run, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    """Parted where the user says, however few sentences are there."""
    options = ("--hypotheses", lines(tmp_path / "close.en", CLOSE), "--json")
    found = json.loads(command("evaluate", *test_set, *options, "--lengths", "2,4").stdout)["by_length"]
    assert [(one["low"], one["high"], one["count"]) for one in found] == [(2, 2, 3), (3, 4, 6), (5, 5, 3)]
    short = [text for text, source in zip(CLOSE, FRENCH, strict=True) if len(source.split()) <= 2]
    wanted = sacrebleu.corpus_bleu(short, [["the house"] * 3]).score
    assert found[0]["bleu"]["value"] == pytest.approx(wanted)
    for lengths, message in (("4,2", "increasing lengths"), ("4;2", "comma-separated whole numbers")):
        result = command("evaluate", *test_set, *options, "--lengths", lengths)
        assert result.exit_code == 2 and message in result.stderr


def test_against_a_file(command: Run, test_set: tuple[Path, Path], tmp_path: Path) -> None:
    close, far = lines(tmp_path / "close.en", CLOSE), lines(tmp_path / "far.en", FAR)
    options = ("--hypotheses", close, "--against", far)
    found = json.loads(command("evaluate", *test_set, *options, "--json").stdout)["comparison"]["bleu"]
    ours, theirs = (sacrebleu.corpus_bleu(texts, [ENGLISH]).score for texts in (CLOSE, FAR))
    assert found["difference"] == pytest.approx(ours - theirs) and found["difference"] > 0
    assert found["wins"] > 0.99
    shown = command("evaluate", *test_set, *options).stdout
    assert f"BLEU against {far}: {theirs:.1f} there, {ours:.1f} here" in shown
    assert f"difference {ours - theirs:+.1f}" in shown


def test_against_a_model(command: Run, models: dict[str, str], test_set: tuple[Path, Path], tmp_path: Path) -> None:
    close = lines(tmp_path / "close.en", CLOSE)
    options = ("--hypotheses", close, "--against", models["other"], "--beam", "1", "--json")
    found = json.loads(command("evaluate", *test_set, *options).stdout)["comparison"]["chrf"]
    theirs = [one.text.replace("\n", " ") for one in load(models["other"]).translate(FRENCH, beam=1)]
    assert found["a"]["value"] == pytest.approx(sacrebleu.corpus_chrf(theirs, [ENGLISH]).score)


def test_alignment_error(command: Run, models: dict[str, str], test_set: tuple[Path, Path], tmp_path: Path) -> None:
    """Against its own alignment the error is 0, against its mirror image 1, against half of each a half."""
    translator = load(models["translator"])
    own, mirrored, mixed = [], [], []
    for i, (source, target) in enumerate(zip(FRENCH, ENGLISH, strict=True)):
        found = translator.align(source, target, words=demo_words)
        count = len(found.source) - 1
        own.append(" ".join(f"{s}-{t}" for s, t in found.pairs))
        mirrored.append(" ".join(f"{(s + 1) % count}-{t}" for s, t in found.pairs))
        mixed.append(mirrored[i] if i % 2 else own[i])
    for gold, wanted in ((own, 0.0), (mirrored, 1.0)):
        options = ("--alignment", lines(tmp_path / "gold", gold), "--beam", "1", "--json")
        result = command("evaluate", "-m", models["translator"], *test_set, *options)
        assert json.loads(result.stdout)["alignment_error_rate"] == pytest.approx(wanted)
    links = sum(len(line.split()) for line in own)
    wrong = sum(len(line.split()) for i, line in enumerate(own) if i % 2)
    options = ("--alignment", lines(tmp_path / "gold", mixed), "--beam", "1")
    shown = command("evaluate", "-m", models["translator"], *test_set, *options).stdout
    assert f"alignment error rate {wrong / links:.3f}" in shown


def test_a_language_model(command: Run, models: dict[str, str], test_set: tuple[Path, Path]) -> None:
    wanted = load(models["writer"]).perplexity("".join(f"{line}\n" for line in FRENCH))
    found = json.loads(command("evaluate", "-m", models["writer"], test_set[0], "--json").stdout)
    assert found["perplexity"] == pytest.approx(wanted.perplexity) and found["tokens"] == wanted.tokens
    assert found["stride"] == found["window"] // 2
    shown = command("evaluate", "-m", models["writer"], test_set[0]).stdout
    assert f"{wanted.perplexity:.3f}" in shown and f"bits per character  {wanted.bits_per_character:.4f}" in shown


def test_the_stride_of_a_language_model(command: Run, models: dict[str, str], test_set: tuple[Path, Path]) -> None:
    writer = load(models["writer"])
    text = "".join(f"{line}\n" for line in FRENCH)
    wanted = {stride: writer.perplexity(text, stride=stride) for stride in (1, writer.window)}
    assert wanted[1].loss != pytest.approx(wanted[writer.window].loss, rel=1e-6)
    for stride, likelihood in wanted.items():
        options = ("evaluate", "-m", models["writer"], test_set[0], "--stride", stride)
        found = json.loads(command(*options, "--json").stdout)
        assert found["loss"] == pytest.approx(likelihood.loss, rel=1e-5)
        assert (found["tokens"], found["characters"]) == (likelihood.tokens, len(text))
        assert (found["window"], found["stride"]) == (writer.window, stride)
        assert f"{likelihood.loss:.4f}  (windows of {writer.window}, stride {stride})" in command(*options).stdout


def test_wrong_use(command: Run, models: dict[str, str], test_set: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = test_set
    short = lines(tmp_path / "short.en", ENGLISH[:3])
    few = lines(tmp_path / "few", ["0-0"] * 3)
    gold = lines(tmp_path / "gold", ["0-0"] * 12)
    model = ("-m", models["translator"])
    cases = [
        ([*model, source], 2, "is not a language model: pass the references"),
        ([*model, source, target, "--stride", "4"], 2, "--stride is for language models"),
        (["-m", models["writer"], source, "--stride", "0"], 2, "stride must be between 1 and"),
        ([*model, source, "--against", short], 2, "--against is for translations"),
        ([*model, source, "--length-penalty", "2"], 2, "--length-penalty is for translations"),
        ([*model, source, "--lengths", "2"], 2, "--lengths is for translations"),
        ([*model, source, target, "--hypotheses", short], 2, "a model or --hypotheses, not both"),
        ([source, target, "--hypotheses", short, "--alignment", short], 2, "--alignment needs a model"),
        ([source, target, "--hypotheses", short], 3, f"{short} has 3 lines for 12 sentences"),
        ([source, short, "--hypotheses", short], 3, f"{source} has 12 lines and {short} has 3"),
        (["-m", models["writer"], source, target], 2, "use `regard generate"),
        ([source, target, "--hypotheses", target, "--against", tmp_path / "no"], 4, "there is no folder"),
        ([*model, source, target, "--beam", "1", "--alignment", target], 3, "is not a link"),
        ([*model, source, target, "--beam", "1", "--alignment", few], 3, f"{few} has 3 lines of alignments for 12"),
        ([*model, source, target, "--beam", "1", "--out", tmp_path / "no" / "x"], 2, "cannot write"),
        (["-m", models["plain"], source, target, "--beam", "1", "--alignment", gold], 2, "has no attention"),
    ]
    for arguments, code, message in cases:
        result = command("evaluate", *arguments)
        assert result.exit_code == code and message in result.stderr, (arguments, result.stderr)
