"""Text classification from a labelled file to labels: training, the folder, the face and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.errors import DataError, ModelError, UsageError
from regard.models.config import ClassifierConfig
from regard.models.encoders.text_classifier import TextClassifier
from regard.tasks.folder_face import face_of
from regard.tasks.losses import classification_loss
from regard.text.batches.batch import Batch
from regard.text.tokenizers.labels import LabelTokenizer, train_labels

LINES = ["animal\tcat hen dog", "animal\tdog cat", "tool\tsaw pin", "tool\tpin axe saw"] * 20
SETTINGS = {
    "model.layers": 1,
    "model.dim": 16,
    "model.heads": 2,
    "model.hidden": 16,
    "training.steps": 30,
    "training.lr": 0.02,
    "training.warmup": 1,
    "training.batch_tokens": 128,
    "tokenizer.kind": "characters",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "lines.tsv").write_text("".join(f"{line}\n" for line in LINES))
    (folder / "lines.toml").write_text(
        '[data]\npairs = "lines.tsv"\nvalidation_pairs = "lines.tsv"\n[model]\nkind = "classifier"\n'
    )
    return regard.train(folder / "lines.toml", out=folder / "run", overrides=SETTINGS, quiet=True)


def test_a_labelled_file_gives_a_classifier(run: Any) -> None:
    assert run.scores["accuracy"] == 1.0
    assert face_of(run.folder) == "classifier"
    classifier = run.load(device="cpu")
    assert isinstance(classifier, regard.Classifier) and classifier.labels == ["animal", "tool"]
    result = classifier.classify("hen cat")
    assert result.label == "animal" and result.probability > 0.5
    assert sum(result.probabilities.values()) == pytest.approx(1) and next(iter(result.probabilities)) == "animal"
    assert result.tokens == ["h", "e", "n", "▁", "c", "a", "t", "</s>"] and sum(result.weights) == pytest.approx(1)
    assert "regard classify -m THIS_FOLDER" in (run.folder / "README.md").read_text()


def test_texts_of_any_length_have_the_same_result_alone_and_together(run: Any) -> None:
    classifier = run.load(device="cpu")
    texts = ["saw", "cat hen dog cat hen dog", "", "pin axe"]
    for together, text in zip(classifier.classify(texts), texts, strict=True):
        alone = classifier.classify(text)
        assert (together.text, together.label) == (text, alone.label)
        assert together.weights == pytest.approx(alone.weights, abs=1e-6)
        assert together.probability == pytest.approx(alone.probability, abs=1e-6)


def test_a_folder_gives_the_same_classifier(run: Any, tmp_path: Path) -> None:
    classifier = run.load(device="cpu")
    again = regard.load(classifier.save(tmp_path / "saved"), device="cpu")
    assert again.classify("cat pin").probabilities == classifier.classify("cat pin").probabilities
    (tmp_path / "saved/target.labels.json").unlink()
    with pytest.raises(ModelError, match=r"target\.labels\.json"):
        regard.load(tmp_path / "saved")


def test_the_command_prints_labels_and_weights(run: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("dog cat\nsaw pin\n")
    call = ["classify", "-m", str(run.folder), str(tmp_path / "texts.txt")]
    plain = CliRunner().invoke(app, call)
    assert [line.split("\t")[0] for line in plain.stdout.splitlines()] == ["animal", "tool"], plain.output
    assert CliRunner().invoke(app, [*call, "--weights"]).stdout.splitlines()[1].startswith("  d ")
    first = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout.splitlines()[0])
    assert first["label"] == "animal" and len(first["tokens"]) == len(first["weights"]) == 8
    assert CliRunner().invoke(app, [*call, "--json", "--weights"]).exit_code == 2
    wrong = CliRunner().invoke(app, ["embed", "-m", str(run.folder), str(tmp_path / "texts.txt")])
    assert isinstance(wrong.exception, SystemExit) and "use `regard classify" in wrong.output


def test_other_columns_and_formats(tmp_path: Path) -> None:
    """The label is the first column of a table, and the key "label" of JSON lines; data.columns names others."""
    from regard.recipes.tables import DataRecipe
    from regard.tasks.classification import TASK
    from regard.training.recipe.schema import Recipe

    (tmp_path / "a.tsv").write_text("x\thello\ny\tworld\n")
    (tmp_path / "b.tsv").write_text("hello\tx\nworld\ty\n")
    (tmp_path / "c.jsonl").write_text('{"label": "x", "text": "hello"}\n{"label": "y", "text": "world"}\n')
    for name, columns in (("a.tsv", None), ("b.tsv", (0, 1)), ("c.jsonl", None)):
        file = (str(tmp_path / name),)
        data = DataRecipe(pairs=file, validation_pairs=file, columns=columns)
        corpora = TASK.read(Recipe(name="a", data=data, model={"kind": "classifier"}))
        assert (list(corpora.train.source), list(corpora.train.target or [])) == (["hello", "world"], ["x", "y"])


def test_loss_is_the_cross_entropy_and_unknown_labels_count_as_wrong() -> None:
    torch.manual_seed(0)
    config = ClassifierConfig(source_vocabulary=9, target_vocabulary=7, layers=1, dim=8, heads=2, hidden=8)
    model = TextClassifier(config).eval()
    source = torch.tensor([[4, 5, 3], [6, 3, 0], [7, 8, 3]])
    labels = torch.tensor([[4, 3], [6, 3], [1, 3]])  # the last label is unknown
    loss = classification_loss(model, Batch([0, 1, 2], source, source, labels, 3))
    logits = model(source)[:2]
    expected = -logits.log_softmax(-1)[torch.arange(2), torch.tensor([0, 2])].sum()
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.nll, expected)
    assert loss.correct is not None and loss.tokens == 3
    assert int(loss.correct) == int((logits.argmax(1) == torch.tensor([0, 2])).sum())
    smooth = classification_loss(model, Batch([0, 1], source[:2], source[:2], labels[:2], 2), smoothing=0.1)
    torch.testing.assert_close(
        smooth.total, F.cross_entropy(logits, torch.tensor([0, 2]), reduction="sum", label_smoothing=0.1)
    )


def test_padding_changes_nothing() -> None:
    torch.manual_seed(1)
    config = ClassifierConfig(source_vocabulary=9, target_vocabulary=6, layers=1, dim=8, heads=2, hidden=8)
    model = TextClassifier(config).eval()
    logits, weights = model.classify(torch.tensor([[4, 5, 3]]))
    padded, padded_weights = model.classify(torch.tensor([[4, 5, 3, 0, 0]]))
    torch.testing.assert_close(padded, logits)
    torch.testing.assert_close(padded_weights[:, :3], weights)
    assert padded_weights[:, 3:].eq(0).all()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 3, "needs two labels or more, and the data has 1, 'a': add"),
        (["a", "b" * 101], "these look like texts"),
    ],
)
def test_labels_that_are_no_classes(labels: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        train_labels(labels)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"labels": 1}', b'{"labels": []}', b'{"labels": ["b", "a"]}', b'{"labels": [""]}']
)
def test_damaged_labels_are_refused(content: bytes) -> None:
    with pytest.raises(ModelError, match="not the labels of a classifier"):
        LabelTokenizer(content)


def test_label_tokenizer_goes_round() -> None:
    tokenizer = train_labels(["b", "a", "b"])
    assert tokenizer.encode_all(["a", "b", "?"]) == [[4], [5], [1]] and tokenizer.size == 6
    assert tokenizer.decode([2, 5, 3]) == "b" and tokenizer.pieces([4, 3]) == ["a", "</s>"]
    assert [word.text for word in tokenizer.words([2, 4, 3])] == ["a"]
    assert LabelTokenizer(tokenizer.save()[1]).labels == ["a", "b"]


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(UsageError, match="copy"):
        regard.train("demo-classifier", overrides={"data.copy": 0.1}, quiet=True)
