"""Text files of word2vec and GloVe are imported, and exported again."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import UsageError
from regard.interop import export_model, import_model, read

ROWS = "the 1.5 -0.25 3\nof 0.125 2 -1e-3\n. . . 4 5 6\nélève 0.1 0.2 0.3\n"
WORDS = ["the", "of", ". . .", "élève"]


@pytest.mark.parametrize("format", ["glove", "word2vec", "gzip"])
def test_there_and_back(tmp_path: Path, format: str) -> None:
    path = tmp_path / ("vectors.txt.gz" if format == "gzip" else "vectors.txt")
    content = (("4 3\n" if format == "word2vec" else "") + ROWS).encode()
    path.write_bytes(gzip.compress(content) if format == "gzip" else content)
    vectors = regard.load(import_model(path, tmp_path / "ours"))
    assert vectors.words == WORDS
    expected = torch.tensor([[1.5, -0.25, 3], [0.125, 2, -1e-3], [4, 5, 6], [0.1, 0.2, 0.3]])
    assert torch.equal(vectors.vectors, expected)
    assert path.name in (tmp_path / "ours/README.md").read_text()
    out = export_model(tmp_path / "ours", tmp_path / "out.txt", to="words")
    again = read(out)
    assert torch.equal(dict(again.weights())["words.weight"], vectors.model.words.weight)
    assert again.tokenizer.vocabulary == WORDS


def test_they_cannot_be_trained(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text(ROWS)
    folder = import_model(tmp_path / "vectors.txt", tmp_path / "ours")
    (tmp_path / "text.txt").write_text("the of the of\n" * 200)
    (tmp_path / "tune.toml").write_text('name = "tune"\n[data]\ntext = ["text.txt"]\n[model]\nkind = "word-vectors"\n')
    with pytest.raises(UsageError, match="comes from a file and is not trained"):
        regard.train(tmp_path / "tune.toml", out=tmp_path / "run", init=folder, quiet=True)
