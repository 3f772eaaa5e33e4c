"""Subwords: nothing is lost, the same texts give the same model, and what is drawn depends on the arguments alone."""

from __future__ import annotations

import io
import random
import re
import subprocess
import sys
import threading
import unicodedata
from collections import Counter
from functools import cache
from itertools import pairwise
from math import exp
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given, strategies as st

from regard.errors import DataError, ModelError, UsageError
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START, UNKNOWN
from regard.text.tokenizers.subwords import BYTES, SubwordTokenizer, _restored, train_subwords
from regard.text.tokenizers.tokenizer import Word

SUBJECTS = ("the cat", "a small dog", "my old sister", "their teacher", "the children", "nobody", "the garden's owner")
VERBS = ("sees", "has seen", "will paint", "remembers", "does not like", "sold", "is looking for", "wanted")
OBJECTS = ("the sea", "a white house", "seven apples", "the été of 1999", "your brother", "naïve poems", "the train")
ENDS = (".", "!", " , they say.", "?", ": so what?", "...")
LOOKALIKES = ("<s>", "</s>", "<unk>", "<pad>", "<0x41>", "▁", "▁▁a", "▅", "\x1a", "\x1a1", "\x1a0")
TRICKY = (*LOOKALIKES, "\U0001f469\u200d\U0001f467", "e\u0301", "\t", "\n", "  ")
KINDS = ("unigram", "bpe")

texts = st.lists(st.one_of(st.text(), st.sampled_from(TRICKY), st.text("the cat.\n\t"))).map("".join)


@cache
def sentences() -> tuple[str, ...]:
    draw = random.Random(0)
    made = [" ".join(map(draw.choice, (SUBJECTS, VERBS, OBJECTS))) + draw.choice(ENDS) for _ in range(400)]
    return tuple(text[0].upper() + text[1:] for text in made)


@cache
def trained(kind: str, lossless: bool = False) -> SubwordTokenizer:
    lines = ["\n".join(sentences()[i : i + 4]) + "\n\tindented  twice\n" for i in range(0, 400, 4)]
    return train_subwords(lines if lossless else sentences(), size=350, kind=kind, lossless=lossless)


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first(kind: str, lossless: bool) -> None:
    tokenizer = trained(kind, lossless)
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.save()[1])
    assert tuple(model.id_to_piece(i) for i in range(4)) == SPECIAL_TOKENS
    assert (model.pad_id(), model.unk_id(), model.bos_id(), model.eos_id()) == (PAD, UNKNOWN, START, END)
    assert tokenizer.size == 350
    assert tokenizer.lossless is lossless


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
@example(text="".join(TRICKY))
@example(text="\ufeff\u2028\x85 \xa0 \x00\r\n\ufffd\U0010ffff")
def test_lossless_models_lose_nothing(kind: str, text: str) -> None:
    """Any text comes back, in NFC; what looks like a special token stays text."""
    tokenizer = trained(kind, True)
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == unicodedata.normalize("NFC", text)
    assert not {PAD, UNKNOWN, START, END} & set(tokens)
    assert tokenizer.encode_all([text, text]) == [tokens, tokens]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tab_separates_words_as_a_space_does(kind: str) -> None:
    tokenizer = trained(kind)
    plain = tokenizer.encode("the cat is here")
    for text in ("the\tcat is here", "the \t cat\nis\r\nhere\t"):
        assert tokenizer.encode(text) == plain and tokenizer.encode_all([text]) == [plain]
        assert tokenizer.cut(text) == tokenizer.cut("the cat is here")
    lines = ["the\tcat", "a\tcat is\tthe cat"] * 10  # sentencepiece itself skips lines with tabs
    learned = train_subwords(lines, size=None, kind=kind, lossless=False)  # type: ignore[arg-type]
    assert (
        learned.save()
        == train_subwords(
            [line.replace("\t", " ") for line in lines],
            size=None,
            kind=kind,  # type: ignore[arg-type]
            lossless=False,
        ).save()
    )


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
@example(text=" ".join(TRICKY))
def test_translation_models_lose_spaces_only(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    tokens = tokenizer.encode(text)
    separators = "[ \t-\r\x1c-\x1f\x85\u2028\u2029]+"  # tabs and line breaks count as spaces
    assert tokenizer.decode(tokens) == re.sub(separators, " ", unicodedata.normalize("NFC", text)).strip(" ")
    assert not {PAD, UNKNOWN, START, END} & set(tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_in_either_normal_form_are_the_same(kind: str) -> None:
    text = "The naïve été"
    assert unicodedata.normalize("NFD", text) != text
    for lossless in (False, True):
        tokenizer = trained(kind, lossless)
        assert tokenizer.encode(unicodedata.normalize("NFD", text)) == tokenizer.encode(text)


def test_half_a_surrogate_becomes_the_replacement_character() -> None:
    assert trained("unigram").decode(trained("unigram").encode("a\ud800b")) == "a\ufffdb"


def test_frequent_words_are_one_piece() -> None:
    tokenizer = trained("unigram")
    assert tokenizer.pieces(tokenizer.encode("The cat sees the sea.")) == ["▁The", "▁cat", "▁sees", "▁the", "▁sea", "."]
    lossless = trained("bpe", True)
    shown = lossless.pieces(lossless.encode("the cat\n\tsold"))
    assert "".join(shown).replace("▁", " ") == "the cat⏎⇥sold"
    assert shown.count("⏎") == shown.count("⇥") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_give_the_same_bytes(kind: str) -> None:
    again = train_subwords(iter(sentences()), size=350, kind=kind, lossless=False)
    assert again.save() == trained(kind).save()
    assert again.save()[0] == "tokenizer.model"
    loaded = SubwordTokenizer(again.save()[1])
    assert loaded.encode_all(sentences()) == again.encode_all(sentences())


# sizes


@pytest.mark.parametrize("kind", KINDS)
def test_a_size_the_data_does_not_allow(kind: str) -> None:
    with pytest.raises(
        UsageError, match=r"vocabulary of 99999 is larger than the data allows: choose at most \d+"
    ) as error:
        train_subwords(sentences(), size=99_999, kind=kind, lossless=False)
    largest = int(re.search(r"at most (\d+)", str(error.value))[1])
    assert train_subwords(sentences(), size=largest, kind=kind, lossless=False).size == largest
    with pytest.raises(UsageError, match=f"at most {largest}"):
        train_subwords(sentences(), size=largest + 1, kind=kind, lossless=False)
    characters = len(set("".join(sentences())))  # the space among them: ▁ is a piece
    smallest = 4 + BYTES + characters
    with pytest.raises(UsageError, match=f"a vocabulary of 100 is too small .*more than {smallest}"):
        train_subwords(sentences(), size=100, kind=kind, lossless=False)
    assert train_subwords(sentences(), size=smallest + 1, kind=kind, lossless=False).size == smallest + 1


def test_the_size_is_chosen_from_the_data() -> None:
    """Words that stand five times or more, by hand; and never more than there is to learn."""
    lines = ["red green"] * 5 + ["blue red"] * 4  # red 9, green 5, blue 4: two words; r e d g n b l u and ▁
    wanted = 4 + BYTES + max(8 + 2, 3 * 8)
    chosen = train_subwords(lines, size=None, kind="bpe", lossless=False).size
    assert 4 + BYTES + 9 <= chosen <= wanted
    many = [f"w{a}{b}{c}" for a in "abcdefghij" for b in "klmnopqrst" for c in "uvxyz"] * 5  # 500 words, 26 letters
    assert train_subwords(many, size=None, kind="bpe", lossless=False).size == 4 + BYTES + 26 + 500
    rare = [word for word in many[:500] for _ in range(4)]
    assert train_subwords(rare, size=None, kind="bpe", lossless=False).size == 4 + BYTES + 3 * 26


def test_pieces_of_tokenised_text_may_hold_letters_and_marks() -> None:
    texts = ["il dit qu&apos; un homme lit .", "un homme dit qu&apos; il lit ."] * 30
    apart, whole = (
        train_subwords(texts, size=None, kind="bpe", lossless=False, tokenised=tokenised) for tokenised in (False, True)
    )
    for one, pieces in ((apart, ["▁qu", "&", "apos", ";"]), (whole, ["▁qu&apos;"])):
        assert one.pieces(one.encode("qu&apos;")) == pieces
        assert one.decode(one.encode(texts[0])) == texts[0]


def test_unknown_kinds_and_empty_texts() -> None:
    with pytest.raises(UsageError, match="unknown kind of subwords 'bqe'; did you mean 'bpe'"):
        train_subwords(["a"], size=None, kind="bqe", lossless=False)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no words"):
        train_subwords(["", " \n"], size=None, kind="bpe", lossless=False)


@pytest.mark.parametrize("lossless", [False, True])
def test_long_lines_are_learned_from(lossless: bool) -> None:
    """sentencepiece itself leaves lines of more than 4,192 bytes out without a word."""
    long = " ".join(["zebra"] * 5000)
    tokenizer = train_subwords([long, "ox"], size=None, kind="bpe", lossless=lossless)
    assert "▁zebra" in tokenizer.pieces(range(tokenizer.size))
    tokenizer = train_subwords(["qi" * 9000, "ox"], size=None, kind="bpe", lossless=lossless)
    assert "qi" in tokenizer.pieces(range(tokenizer.size))


def test_large_alphabets_leave_the_rarest_characters_to_bytes() -> None:
    common = "".join(chr(0x4E00 + i) for i in range(1200))
    tokenizer = train_subwords([*common] * 5 + ["\u9fa0"], size=None, kind="bpe", lossless=False)
    shown = set("".join(tokenizer.pieces(range(tokenizer.size))))
    assert len(set(common) - shown) <= 2
    assert "\u9fa0" not in shown
    assert tokenizer.decode(tokenizer.encode("\u9fa0")) == "\u9fa0"


# words


@pytest.mark.parametrize("kind", KINDS)
def test_words(kind: str) -> None:
    tokenizer = trained(kind)
    text = "My old sister zigzags 😀😀 x▁y ."
    tokens = tokenizer.encode(text)
    words = tokenizer.words(tokens)
    assert [word.text for word in words] == text.split(" ")
    assert words[0].start == 0 and words[-1].end == len(tokens)
    assert all(one.end == other.start for one, other in pairwise(words))
    assert words[4].end - words[4].start >= 8  # four bytes an emoji


@given(st.text("ab é😀\n\t", max_size=30))
@example("  a\n\n\tb ")
def test_words_of_lossless_models(text: str) -> None:
    tokenizer = trained("unigram", True)
    tokens = tokenizer.encode(text)
    words = tokenizer.words(tokens)
    assert [word.text for word in words] == text.split()
    ends = [0, *(word.end for word in words)]
    assert [word.start for word in words] == ends[:-1]  # each begins with the blanks before it
    assert tokenizer.decode(tokens[ends[-1] :]).strip() == ""


def test_words_around_special_tokens() -> None:
    tokenizer = trained("unigram")
    cat, sees, stop = (tokenizer.encode(text)[0] for text in ("cat", "sees", "sees."))
    stop = tokenizer.encode("sees.")[-1]
    tokens = [START, cat, UNKNOWN, UNKNOWN, stop, sees, END, PAD]
    assert tokenizer.words(tokens) == [
        Word("cat", 1, 2),
        Word("<unk>", 2, 3),
        Word("<unk>", 3, 4),
        Word(".", 4, 5),
        Word("sees", 5, 6),
    ]
    assert tokenizer.words([]) == []
    assert tokenizer.pieces(tokens)[:3] == ["<s>", "▁cat", "<unk>"]


@pytest.mark.parametrize(("kind", "lossless"), [("bpe", False), ("unigram", False), ("unigram", True)])
@given(tokens=st.lists(st.integers(4, 349), max_size=12), spaces=st.sets(st.integers(0, 5)))
def test_tokens_decode_as_sentencepiece_decodes_them(
    kind: str, lossless: bool, tokens: list[int], spaces: set[int]
) -> None:
    """Whatever a model writes: spaces alone, at the beginning, twice, and bytes."""
    tokenizer = trained(kind, lossless)
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.save()[1])
    for place in spaces:
        tokens.insert(place, model.piece_to_id("▁"))
    placeholders = tokenizer._placeholders
    own = {PAD, UNKNOWN, START, END, placeholders.joiner, *placeholders.tokens}
    tokens = [token for token in tokens if token not in own]
    assert tokenizer.decode([START, *tokens, END, PAD]) == _restored(model.decode(tokens))


def test_decode_writes_unknown_words() -> None:
    tokenizer = trained("unigram")
    cat, sees = (tokenizer.encode(text)[0] for text in ("cat", "sees"))
    stop = tokenizer.encode("sees.")[-1]
    assert tokenizer.decode([START, cat, sees, END, PAD]) == "cat sees"
    tokens = [cat, UNKNOWN, stop, sees, UNKNOWN, UNKNOWN]
    assert tokenizer.decode(tokens) == "cat. sees"
    assert tokenizer.decode(tokens, unknown=["Ana", "Bo", "Cy"]) == "cat Ana. sees Bo Cy"
    assert tokenizer.decode(tokens, unknown=["Ana"]) == "cat Ana. sees"
    assert tokenizer.decode([UNKNOWN, cat], unknown=["Ana"]) == "Ana cat"
    lossless = trained("unigram", True)
    tokens = [*lossless.encode("the"), UNKNOWN, *lossless.encode(" cat\n")]
    assert lossless.decode(tokens, unknown=["Ana"]) == "the Ana cat\n"


# sampling

FRESH = """
import sys
from pathlib import Path
from regard.text.tokenizers.subwords import SubwordTokenizer
texts = sys.stdin.read().split("|")
for path in sys.argv[1:]:
    print(SubwordTokenizer(Path(path).read_bytes()).sample_all(texts, seed=7, alpha=0.2))
"""


@pytest.mark.slow
def test_another_process_draws_the_same(tmp_path: Path) -> None:
    """sentencepiece's own sampling fails this, seeded or not."""
    some = list(sentences()[:60])
    for kind in KINDS:
        (tmp_path / kind).write_bytes(trained(kind).save()[1])
    command = [sys.executable, "-c", FRESH, *(str(tmp_path / kind) for kind in KINDS)]
    done = subprocess.run(command, input="|".join(some), capture_output=True, text=True, encoding="utf-8", check=True)
    here = [trained(kind).sample_all(some, seed=7, alpha=0.2) for kind in KINDS]
    assert done.stdout.splitlines() == list(map(str, here))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_depends_on_the_arguments_alone(kind: str) -> None:
    tokenizer, some = trained(kind), list(sentences()[:60])
    first = tokenizer.sample_all(some, seed=7, alpha=0.2)
    other = tokenizer.sample_all(some, seed=8, alpha=0.2)
    assert tokenizer.sample_all(some, seed=7, alpha=0.2) == first
    assert other != first
    in_threads: list[list[list[int]]] = []

    def draw() -> None:
        tokenizer.sample_all(some[:3], seed=1, alpha=0.5)
        in_threads.append(tokenizer.sample_all(some, seed=7, alpha=0.2))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert in_threads == [first] * 4
    assert SubwordTokenizer(tokenizer.save()[1]).sample_all(some, seed=7, alpha=0.2) == first


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_drawn_segmentation_reads_the_same(kind: str, lossless: bool) -> None:
    tokenizer = trained(kind, lossless)
    some = [*sentences()[:100], "".join(TRICKY), "", "😀 zigzag"]
    usual = tokenizer.encode_all(some)
    drawn = [tokenizer.sample_all(some, seed=seed, alpha=0.3) for seed in range(5)]
    for one in drawn:
        assert [tokenizer.decode(tokens) for tokens in one] == [tokenizer.decode(tokens) for tokens in usual]
    assert len({str(one) for one in drawn}) == 5
    assert sum(map(len, drawn[0])) > sum(map(len, usual))


def test_alpha_of_both_kinds() -> None:
    """BPE: the share of merges left out, 0 leaves the usual one and 1 the characters. Unigram: 0 is wildest."""
    some = list(sentences()[:100])
    usual = trained("bpe").encode_all(some)
    assert trained("bpe").sample_all(some, seed=1, alpha=0.0) == usual
    assert trained("bpe").pieces(trained("bpe").sample_all(["the cat"], seed=1, alpha=1.0)[0]) == [*"▁the▁cat"]
    lengths = [sum(map(len, trained("unigram").sample_all(some, seed=1, alpha=alpha))) for alpha in (0.0, 0.3, 1.0)]
    assert lengths[0] > lengths[1] > lengths[2] >= sum(map(len, trained("unigram").encode_all(some)))
    with pytest.raises(UsageError, match="between 0 and 1"):
        trained("bpe").sample_all(some, seed=1, alpha=1.5)


def segmentations(word: str, scores: dict[str, float]) -> dict[tuple[str, ...], float]:
    """Every way to write a word as pieces, with the sum of their scores."""
    if not word:
        return {(): 0.0}
    return {
        (word[:end], *rest): scores[word[:end]] + score
        for end in range(1, len(word) + 1)
        if word[:end] in scores
        for rest, score in segmentations(word[end:], scores).items()
    }


def test_unigram_draws_by_the_models_probabilities() -> None:
    """Against all segmentations of a word, listed by brute force: P to the power alpha, as Kudo 2018 has it."""
    tokenizer, alpha, draws = trained("unigram"), 0.3, 4000
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.save()[1])
    scores = {model.id_to_piece(i): model.get_score(i) for i in range(4 + BYTES, model.get_piece_size())}
    word, every = next(
        (word, every)
        for word in sorted({one + other for text in sentences()[:20] for one, other in pairwise(text.split())})
        if 6 <= len(every := segmentations("▁" + word, scores)) <= 20
    )
    total = sum(exp(alpha * score) for score in every.values())
    got = Counter(map(tuple, map(tokenizer.pieces, tokenizer.sample_all([word] * draws, seed=3, alpha=alpha))))
    assert got.keys() <= every.keys()
    for pieces, score in every.items():
        assert got[pieces] / draws == pytest.approx(exp(alpha * score) / total, abs=0.03)


def test_equally_good_segmentations_at_the_end_of_the_list_are_left_out() -> None:
    """Among more than 32 segmentations those that tie with the last depend on chance, so none of them is used."""
    tokenizer = trained("unigram")
    drawn = {str(tokens) for tokens in tokenizer.sample_all(["tatatatatata"] * 3000, seed=0, alpha=0.0)}
    assert 1 <= len(drawn) < 32


def test_bpe_leaves_out_merges_at_the_given_rate() -> None:
    """With one merge in the model, a word that has it once loses it in a share alpha of the draws."""
    tokenizer = train_subwords(["xy zy"] * 9, size=4 + BYTES + 4 + 1, kind="bpe", lossless=False)
    merge = tokenizer.pieces([tokenizer.size - 5])[0]  # the one merge comes before the characters ▁ x y z
    assert len(merge) == 2
    for alpha in (0.1, 0.5):
        words = [f"{'x' * i}y" for i in range(1, 40)] + [f"{'z' * i}y" for i in range(1, 40)]
        drawn = tokenizer.sample_all(words * 20, seed=0, alpha=alpha)
        usual = tokenizer.encode_all(words * 20)
        able = [(one, other) for one, other in zip(drawn, usual, strict=True) if tokenizer.size - 5 in other]
        kept = sum(tokenizer.size - 5 in one for one, _ in able) / len(able)
        assert kept == pytest.approx(1 - alpha, abs=0.04)


def test_bytes_are_drawn_as_bytes() -> None:
    """Also by a vocabulary that could spell their names: <0xF0> is a piece, not six characters."""
    letters = " ".join("<0x>123456789ABCDEF")
    for kind in KINDS:
        tokenizer = train_subwords([letters], size=None, kind=kind, lossless=False)
        drawn = tokenizer.sample_all(["\U0001f600 <0x41>"] * 20, seed=0, alpha=0.5)
        assert {tokenizer.decode(tokens) for tokens in drawn} == {"\U0001f600 <0x41>"}


def test_very_long_words_keep_their_usual_pieces() -> None:
    long = "cat" * 30
    for kind in KINDS:
        assert trained(kind).sample_all([long], seed=0, alpha=0.5) == [trained(kind).encode(long)]


# files from anywhere


def test_damaged_models() -> None:
    good = trained("bpe").save()[1]
    for bad in (b"", b"abc", good[:1000], good[:-10], b"\x0a\xff" + good):
        with pytest.raises(ModelError, match="not a sentencepiece model"):
            SubwordTokenizer(bad)


def test_models_that_number_special_tokens_otherwise() -> None:
    def other(**ids: int) -> bytes:
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences()),
            model_writer=model,
            vocab_size=340,
            normalization_rule_name="identity",
            byte_fallback=True,
            minloglevel=2,
            **ids,
        )
        return model.getvalue()

    with pytest.raises(ModelError, match=r"first pieces are <unk> <s> </s> .*, not the special tokens <pad>"):
        SubwordTokenizer(other())
    assert SubwordTokenizer(other(pad_id=0, unk_id=1, bos_id=2, eos_id=3)).size == 340
    named = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    good = other(**named)
    # The same names, but the start token is an ordinary piece: a text "<s>" could become it.
    start = good.index(b"<s>")
    entry = good[start - 2 : start + 10]
    assert entry[-2:] == b"\x18\x03"  # field 3 (type) = 3 (control)
    ordinary = good.replace(entry, entry[:-1] + b"\x01", 1)
    with pytest.raises(ModelError, match="not the special tokens"):
        SubwordTokenizer(ordinary)


def test_any_damaged_byte_is_refused_or_harmless() -> None:
    good = trained("unigram").save()[1]
    draw = random.Random(0)
    for _ in range(150):
        bad = bytearray(good)
        bad[draw.randrange(len(bad))] = draw.randrange(256)
        try:
            SubwordTokenizer(bytes(bad)).encode("The cat sees the sea 😀.")
        except ModelError:
            continue
