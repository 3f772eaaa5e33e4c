"""Word vectors read from files, whole and damaged, and copied into an embedding table."""

from __future__ import annotations

import gzip

import pytest
import torch

from regard.errors import DataError
from regard.layers.embedding import Embedding
from regard.layers.word_vectors import fill_from_vectors, read_vectors

WORD2VEC = "3 2\nthe 0.5 -1 \ncat 1e-1 2 \nCat 7 8 \n"
GLOVE = "the 0.5 -1\ncat 1e-1 2\nCat 7 8\n"
WORDS, MATRIX = ["the", "cat", "Cat"], torch.tensor([[0.5, -1], [0.1, 2], [7, 8]])


@pytest.fixture
def write(tmp_path):
    def write(text, name="vectors.txt"):
        path = tmp_path / name
        data = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


class TestReadVectors:
    @pytest.mark.parametrize("text", [WORD2VEC, GLOVE, GLOVE.replace("\n", "\r\n"), GLOVE.rstrip("\n")])
    @pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
    def test_formats(self, write, text, name):
        words, matrix = read_vectors(write(text, name))
        assert words == WORDS
        assert matrix.dtype == torch.float32
        torch.testing.assert_close(matrix, MATRIX)

    def test_limit(self, write):
        words, matrix = read_vectors(write(WORD2VEC + "not read"), limit=2)
        assert words == WORDS[:2]
        torch.testing.assert_close(matrix, MATRIX[:2])
        with pytest.raises(ValueError, match="limit must be at least 1, or None for all, got 0"):
            read_vectors("any", limit=0)

    def test_words_with_spaces_and_other_alphabets(self, write):
        words, matrix = read_vectors(write("été 1 2\n. . . 3 4\na\u00a0b 5 6\n東京 7 8\n"))
        assert words == ["été", ". . .", "a\u00a0b", "東京"]
        assert matrix.flatten().tolist() == list(range(1, 9))

    def test_the_first_of_repeated_words_wins(self, write):
        path = write("a 1 2\nb 3 4\na 5 6\na 7 8\n")
        with pytest.warns(UserWarning, match=r"vectors\.txt: 2 rows repeat a word"):
            words, matrix = read_vectors(path)
        assert (words, matrix.tolist()) == (["a", "b"], [[1, 2], [3, 4]])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"vectors\.txt: no word vectors in this file"),
            ("4 2\n", r"vectors\.txt: no word vectors in this file"),
            ("a 1 2\nb 3\n", r"vectors\.txt, line 2: expected a word and 2 numbers, got 2 columns"),
            ("a 1 2\nb 3 4 5\n", r"vectors\.txt, line 2: expected a word and 2 numbers, got 4 columns"),
            ("2 3\na 1 2\n", r"vectors\.txt, line 2: expected a word and 3 numbers, got 3 columns"),
            ("a 1 2\n\nb 1 2\n", r"vectors\.txt, line 2: expected a word and 2 numbers, got 1 columns"),
            ("word\n", r"vectors\.txt, line 1: expected a word and its numbers, got 1 columns"),
            ("a 1 2\nb 3 four\n", r"vectors\.txt, line 2: 'four' is not a number"),
            ("a 1 2\nb nan 3\n", r"vectors\.txt, line 2: 'nan' is not a finite number"),
            ("a 1 2\nb 3 1e300\n", r"vectors\.txt, line 2: '1e300' is not a finite number"),
            ("3 2\na 1 2\nb 3 4\n", r"vectors\.txt: its first line promises 3 words, but 2 follow"),
            (b"a 1 2\n\xff\xfe 3 4\n", r"vectors\.txt, line 2: not UTF-8 text; word2vec's binary format"),
        ],
    )
    def test_damaged_files(self, write, text, message):
        with pytest.raises(DataError, match=message):
            read_vectors(write(text))

    def test_files_that_cannot_be_read(self, tmp_path, write):
        with pytest.raises(DataError, match=r"none\.txt: no such file"):
            read_vectors(tmp_path / "none.txt")
        whole = write(GLOVE * 50, "whole.gz").read_bytes()
        (tmp_path / "cut.gz").write_bytes(whole[:-12])
        with pytest.raises(DataError, match=r"cut\.gz.*cannot be read"):
            read_vectors(tmp_path / "cut.gz")
        (tmp_path / "plain.gz").write_text(GLOVE)
        with pytest.raises(DataError, match=r"plain\.gz, after line 0: cannot be read: Not a gzipped file"):
            read_vectors(tmp_path / "plain.gz")


class TestFillFromVectors:
    TOKENS = ("<pad>", "the", "Cat", "THE", "CAT", "dog")

    def test_exact_then_lower_case(self, write):
        table = Embedding(vocabulary=6, dim=2, pad_id=0)
        dog = table.weight[5].detach().clone()
        report = fill_from_vectors(table, self.TOKENS, write(WORD2VEC))
        assert (report.found, report.missing, report.dim) == (4, ("dog",), 2)
        the, cat, capital_cat = MATRIX
        torch.testing.assert_close(
            table.weight.detach(), torch.stack([torch.zeros(2), the, capital_cat, the, cat, dog])
        )
        assert table.weight.requires_grad

    def test_the_padding_row_stays_zero(self, write):
        table = Embedding(vocabulary=2, dim=2, pad_id=0)
        report = fill_from_vectors(table, ("the", "cat"), write(GLOVE))
        assert table.weight[0].eq(0).all()
        assert (report.found, report.missing) == (1, ())

    def test_the_first_of_repeated_words_wins(self, write):
        table = Embedding(vocabulary=1, dim=2)
        fill_from_vectors(table, ["a"], write("a 1 2\na 3 4\n"))
        assert table.weight.tolist() == [[1, 2]]

    def test_rows_nobody_asks_for_are_not_parsed(self, write):
        table = Embedding(vocabulary=1, dim=2)
        assert fill_from_vectors(table, ["a"], write("b one two\na 1 2\n")).found == 1

    def test_errors_leave_the_table_alone(self, write):
        table = Embedding(vocabulary=2, dim=2)
        before = table.weight.detach().clone()
        with pytest.raises(ValueError, match="its vectors are 3 wide, but the embedding's dim is 2"):
            fill_from_vectors(table, ["a", "b"], write("a 1 2 3\n"))
        with pytest.raises(ValueError, match="tokens must name each of the table's 2 rows, got 1 tokens"):
            fill_from_vectors(table, ["a"], write("a 1 2\n"))
        with pytest.raises(DataError, match="line 2: 'x' is not a number"):
            fill_from_vectors(table, ["a", "b"], write("a 1 2\nb 3 x\n"))
        assert torch.equal(table.weight, before)
