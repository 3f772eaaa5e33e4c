"""Summaries and answers from a user's files to the commands: training, the folder, the faces, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.api.copying.copying_model import CopyingModel
from regard.cli import app
from regard.errors import DataError, ModelError, UsageError
from regard.tasks.folder_face import face_of
from regard.tasks.losses import copying_loss
from regard.text.batches.batch import Batch
from regard.text.files.corpus import read_questions
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.special_tokens import END, PAD, SEPARATOR, START

NAMES, PLACES = ("Ana", "Bo", "Cy", "Dee"), ("park", "farm", "lake", "pier")
SETTINGS = {
    "model.layers": 1,
    "model.dim": 32,
    "model.heads": 2,
    "model.hidden": 32,
    "model.order": "pre",
    "model.dropout": 0.0,
    "training.lr": 0.01,
    "training.warmup": 10,
    "training.batch_tokens": 512,
    "training.device": "cpu",
    "decoding.sentences": 16,
}


def stories() -> list[tuple[str, str, str]]:
    """Every pair of a name and a place, after a sentence about the sky: story, name and place."""
    return [(f"The sky was grey. {name} saw the {place}.", name, place) for name in NAMES for place in PLACES]


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("summaries")
    rows = stories() * 8
    (folder / "texts.txt").write_text("".join(f"{story}\n" for story, _, _ in rows))
    (folder / "short.txt").write_text("".join(f"{name}: {place}\n" for _, name, place in rows))
    settings = " ".join(f"--set {key}={value}" for key, value in {**SETTINGS, "training.steps": 120}.items())
    call = f"train {folder}/texts.txt {folder}/short.txt --model summarizer --out {folder}/run -q {settings}"
    result = CliRunner().invoke(app, call.split())
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("answers")
    rows = [
        row
        for story, name, place in stories()
        for row in ((story, f"Who saw the {place}?", name), (story, f"What did {name} see?", place))
    ]
    lines = [json.dumps(dict(zip(("story", "question", "answer"), row, strict=True))) for row in rows]
    (folder / "questions.jsonl").write_text("".join(f"{line}\n" for line in lines * 4))
    recipe = f'[data]\npairs = "{folder}/questions.jsonl"\nvalidation_pairs = "{folder}/questions.jsonl"\n'
    (folder / "answers.toml").write_text(recipe + '[model]\nkind = "answerer"\n')
    run = regard.train(
        folder / "answers.toml", out=folder / "run", overrides={**SETTINGS, "training.steps": 150}, quiet=True
    )
    assert run.scores["exact"] == run.scores["f1"] == 100.0
    return folder


def test_two_files_give_a_summarizer(summaries: Path) -> None:
    assert face_of(summaries / "run") == "summarizer"
    summarizer = regard.load(summaries / "run", device="cpu")
    assert isinstance(summarizer, regard.Summarizer)
    summary = summarizer.summarize("The sky was grey. Bo saw the lake.")
    assert summary.text == "Bo: lake" and summary.sentences == ["The sky was grey.", "Bo saw the lake."]
    assert sum(summary.shares) == pytest.approx(1) and summary.shares[1] > 0.5
    assert len(summary.weights) == len(summary.tokens) and "".join(summary.tokens) == "▁Bo:▁lake"
    assert all(len(row) == 2 and 0 < sum(row) <= 1.0001 for row in summary.weights)
    assert "regard summarize -m THIS_FOLDER" in (summaries / "run/README.md").read_text()


def test_a_jsonl_file_gives_an_answerer(answers: Path) -> None:
    answerer = regard.load(answers / "run", device="cpu")
    assert isinstance(answerer, regard.Answerer)
    who, what = answerer.answer("The sky was grey. Cy saw the pier.", ["Who saw the pier?", "What did Cy see?"])
    assert (who.text, what.text) == ("Cy", "pier") and who.support == what.support == 1
    other = answerer.answer(["The sky was grey. Ana saw the farm."], ["What did Ana see?"], beam=3)
    assert other[0].text == "farm" and other[0].score <= 0
    assert "regard answer -m THIS_FOLDER" in (answers / "run/README.md").read_text()


def test_texts_have_the_same_result_alone_and_together(summaries: Path) -> None:
    summarizer: Any = regard.load(summaries / "run", device="cpu")
    texts = ["Ana saw the park.", "The sky was grey. Dee saw the pier.", "Bo saw the lake. The sky was grey."]
    for together, text in zip(summarizer.summarize(texts), texts, strict=True):
        alone = summarizer.summarize(text)
        assert (together.source, together.text) == (text, alone.text)
        assert together.shares == pytest.approx(alone.shares, abs=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_folder_gives_the_same_face(answers: Path, tmp_path: Path, dtype: str) -> None:
    answerer: Any = regard.load(answers / "run", device="cpu")
    again: Any = regard.load(answerer.save(tmp_path / "saved"), device="cpu", dtype=dtype)
    asked = ("The sky was grey. Dee saw the park.", "Who saw the park?")
    before, after = answerer.answer(*asked), again.answer(*asked)
    assert after.text == before.text == "Dee"
    assert after.shares == (before.shares if dtype == "float32" else pytest.approx(before.shares, abs=0.1))


def test_sentences_are_tokenised_as_the_whole_text(answers: Path) -> None:
    answerer: CopyingModel = regard.load(answers / "run", device="cpu")  # type: ignore[assignment]
    story, question = "The sky was grey. Cy saw the pier.\nBo saw the lake.", "Who saw the pier?"
    read = answerer.read(story, then=f"{SEPARATOR} {question}")
    assert read.ids == [*answerer.tokenizer.encode(f"{story} {SEPARATOR} {question}"), END]
    assert read.sentences == ["The sky was grey.", "Cy saw the pier.", "Bo saw the lake."]
    assert sum(read.lengths) == len(answerer.tokenizer.encode(story))


def test_the_commands(summaries: Path, answers: Path, tmp_path: Path) -> None:
    texts, story = tmp_path / "texts.txt", tmp_path / "story.txt"
    texts.write_text("The sky was grey. Bo saw the lake.\n\nThe sky was grey. Cy saw the park.\n")
    story.write_text("The sky was grey.\nBo saw the lake.\n")
    (tmp_path / "references.txt").write_text("Bo: lake\nnothing\nCy: park\n")
    summarize = ["summarize", "-m", f"{summaries}/run", str(texts)]
    answer = ["answer", "-m", f"{answers}/run", str(story), "Who saw the lake?", "What did Bo see?"]

    def output(call: list[str]) -> str:
        result = CliRunner().invoke(app, call)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert output(summarize).splitlines() == ["Bo: lake", "", "Cy: park"]
    assert output([*summarize, "--beam", "2"]).splitlines() == ["Bo: lake", "", "Cy: park"]
    assert output([*summarize, "--sentences"]).splitlines()[2].endswith("%  Bo saw the lake.")
    assert json.loads(output([*summarize, "--json"]).splitlines()[1])["summary"] is None
    scores = output([*summarize, "--reference", str(tmp_path / "references.txt")])
    assert scores == "ROUGE-1 66.7  ROUGE-2 66.7  ROUGE-L 66.7\n"
    assert output(answer).splitlines() == ["Bo", "lake"]
    assert output([*answer, "--sentences"]).splitlines()[1].endswith("%  Bo saw the lake.")
    assert json.loads(output([*answer, "--json"]).splitlines()[1])["answer"] == "lake"
    picture = tmp_path / "picture.png"
    for call in (
        ["answer", "-m", f"{answers}/run", str(story), "Who saw the lake?"],
        ["summary", "-m", f"{summaries}/run", str(story)],
    ):
        assert output(["plot", *call, "-o", str(picture)]).strip() == str(picture)
        assert picture.read_bytes().startswith(b"\x89PNG")
    wrong = CliRunner().invoke(app, ["answer", "-m", f"{summaries}/run", str(story), "Who?"])
    assert wrong.exit_code == 2 and "use `regard summarize" in wrong.output
    assert CliRunner().invoke(app, [*summarize, "--json", "--sentences"]).exit_code == 2


def test_empty_and_long_texts(summaries: Path, answers: Path, tmp_path: Path) -> None:
    summarizer: Any = regard.load(summaries / "run", device="cpu")
    answerer: Any = regard.load(answers / "run", device="cpu")
    with pytest.raises(DataError, match="the text is empty"):
        summarizer.summarize("  ")
    with pytest.raises(DataError, match="a question is empty"):
        answerer.answer("Bo saw the lake.", " ")
    with pytest.raises(DataError, match="2 stories and 1 questions"):
        answerer.answer(["a.", "b."], ["Who?"])
    with pytest.raises(TypeError, match="one question is about one story"):
        answerer.answer(["a."], "Who?")
    with pytest.raises(UsageError, match="max_tokens must be at least 1"):
        summarizer.summarize("Bo saw the lake.", max_tokens=0)
    with pytest.warns(UserWarning, match="the longest of training had"):
        summarizer.summarize("Bo saw the lake. " * 20, max_tokens=2)
    (tmp_path / "empty.txt").write_text("\n")
    result = CliRunner().invoke(app, ["answer", "-m", f"{answers}/run", f"{tmp_path}/empty.txt", "Who?"])
    assert result.exit_code == 3 and "is empty: there is nothing to ask about" in result.output


def test_a_text_without_positions_is_named_and_the_others_are_summarized(tmp_path: Path) -> None:
    """Only learned positions have a limit."""
    (tmp_path / "a.txt").write_text("".join(f"Bo saw {i}.\n" for i in range(40)))
    (tmp_path / "b.txt").write_text("it\n" * 40)
    settings = {**SETTINGS, "training.steps": 2, "training.warmup": 1, "decoding.sentences": 0}
    settings |= {
        "model.position": "learned",
        "model.max_length": 24,
        "data.max_length": 23,
        "tokenizer.kind": "characters",
    }
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    out = ["--out", str(tmp_path / "run"), "--model", "summarizer", "-q"]
    trained = CliRunner().invoke(app, ["train", *files, *out, *options])
    assert trained.exit_code == 0, trained.output
    (tmp_path / "new.txt").write_text(f"Bo saw it.\n{'Bo saw it. ' * 5}\nBo saw it.\n")
    result = CliRunner().invoke(app, ["summarize", "-m", str(tmp_path / "run"), str(tmp_path / "new.txt")])
    assert result.exit_code == 3 and "line 2: a text has" in result.stderr, result.output
    assert len(result.stdout.splitlines()) == 3 and result.stdout.splitlines()[1] == ""


def test_support_says_where_the_pointer_should_look(tmp_path: Path) -> None:
    """Answers that are in no sentence: only the support can teach which one the pointer attends to."""
    file, recipe = tmp_path / "questions.jsonl", tmp_path / "recipe.toml"
    recipe.write_text(f'[data]\npairs = "{file}"\nvalidation_pairs = "{file}"\n[model]\nkind = "answerer"\n')
    settings = {**SETTINGS, "training.steps": 40, "training.pointing": 1.0, "decoding.sentences": 0}

    def write(sentence: int | None) -> None:
        rows = [
            {"story": story, "question": f"Did {name} see it?", "answer": "yes"}
            | ({} if sentence is None else {"support": ["The sky was grey.", f"{name} saw the {place}."][sentence]})
            for story, name, place in stories() * 4
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    for sentence in (0, 1):
        write(sentence)
        run = regard.train(recipe, out=tmp_path / f"run-{sentence}", overrides=settings, quiet=True)
        answer = run.load(device="cpu").answer("The sky was grey. Bo saw the lake.", "Did Bo see it?")
        assert answer.text == "yes" and answer.support == sentence and answer.shares[sentence] > 0.6
    write(None)
    with pytest.raises(UsageError, match="does not name the sentence"):
        regard.train(recipe, out=tmp_path / "none", overrides=settings, quiet=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"story": "A.", "question": "Q", "answer": "A", "support": "B."}\n',
            r"a\.jsonl:1: .*not a part of the story",
        ),
        ("", r"no usable text \(0 lines read\)"),
        ('{"story": "A.", "question": "Who?"}\n', r"a\.jsonl:1: .*answer"),
        ("a\tb\tc\n", r"a\.jsonl:1: "),
        ('{"story": "A.", "question": "Who?", "answer": 3}\n', r"a\.jsonl:1: .*answer"),
        ('{"story": " ", "question": "Who?", "answer": "A"}\n', r"no usable text \(1 lines read\)"),
        ('{"story": "A\\u0000.", "question": "Who?", "answer": "A"}\n', r"a\.jsonl:1: 'story' contains a NUL"),
    ],
)
def test_files_that_are_no_questions(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(DataError, match=message):
        read_questions(tmp_path / "a.jsonl", separator=SEPARATOR)


def test_faults_can_be_skipped_and_other_formats_are_refused(tmp_path: Path) -> None:
    good = '{"story": "A.", "question": "Who?", "answer": "A"}\n'
    (tmp_path / "a.jsonl").write_text(f'{good}{{"story": 1}}\n\n{good}')
    corpus = read_questions(tmp_path / "a.jsonl", separator="|", faults="skip")
    assert corpus.source == ["A. | Who?"] * 2 and corpus.target == ["A"] * 2 and list(corpus.lines) == [1, 4]
    with pytest.raises(UsageError, match=r"questions are read from \.jsonl files"):
        read_questions(tmp_path / "a.tsv", separator="|")


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("demo-summarizer", {"data.copy": 0.1}, "copy"),
        ("demo-summarizer", {"training.r_drop": 1.0}, "r_drop"),
        ("demo-answerer", {"tokenizer.shared": False}, "shared"),
    ],
)
def test_settings_without_effect_are_refused(recipe: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        regard.train(recipe, overrides=settings, quiet=True)


def test_unequal_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("one\n")
    result = CliRunner().invoke(app, ["train", f"{tmp_path}/a.txt", f"{tmp_path}/b.txt", "--model", "summarizer", "-q"])
    assert result.exit_code == 3 and "has 2 lines and" in result.output


@pytest.mark.parametrize("name", ["demo-summarizer", "demo-answerer"])
def test_the_recipes_train(name: str, tmp_path: Path) -> None:
    overrides = {"data.demo": 60, "data.validation": 8, "training.steps": 4, "training.validate_every": 4}
    overrides |= {"training.warmup": 1, "decoding.sentences": 4, "training.device": "cpu"}
    run = regard.train(name, out=tmp_path / name, overrides=overrides, quiet=True)
    assert {"rougeL", "exact"} & run.scores.keys() and run.load(device="cpu") is not None


def test_a_tokenizer_of_another_size_is_refused(answers: Path) -> None:
    answerer: Any = regard.load(answers / "run", device="cpu")
    with pytest.raises(ModelError, match="tokens, but the model"):
        regard.Answerer(answerer.model, train_characters(["ab"]))


def test_pointing_counts_the_attention_to_the_support_at_all_tokens_but_the_end() -> None:
    torch.manual_seed(0)
    model = regard.make_model(
        regard.AnswererConfig(source_vocabulary=20, target_vocabulary=20, share_embeddings=True,
                              layers=1, dim=16, heads=2, hidden=16, dropout=0.0)
    ).eval()  # fmt: skip
    source = torch.tensor([[9, 10, 11, 12, END], [13, 14, 15, END, PAD]])
    inputs, labels = torch.tensor([[START, 10, 11], [START, 14, PAD]]), torch.tensor([[10, 11, END], [14, END, PAD]])
    batch = Batch([0, 1], source, inputs, labels, 5, support=torch.tensor([[1, 3], [0, 2]]))
    with torch.no_grad():
        _, weights = model.decode_and_point(inputs, model.encode(source))
        plain, pointing = (copying_loss(model, batch, pointing=weight).total for weight in (0.0, 0.5))
    shares = [weights[0, 0, 1:3].sum(), weights[0, 1, 1:3].sum(), weights[1, 0, 0:2].sum()]
    torch.testing.assert_close(pointing - plain, -0.5 * torch.stack(shares).log().sum())
