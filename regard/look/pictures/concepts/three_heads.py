"""Three heads that ask what, when and who about one word, and attention as a search among titles.

D4, D11, E9. All weights are computed by regard.attend from vectors that can be checked by hand.

    n words   d features of a word
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, stack, tensor, zeros

from regard.attention.dispatch import attend
from regard.look.lecture_examples import jane_flow
from regard.look.pictures.drawing.colours import INK, RULE, colour_of
from regard.look.pictures.drawing.figures import caption, new_figure, quiet

# The features of a word are (person, action, place, time); a head asks for one of them.
HEADS = {"what is happening?": 1, "when?": 3, "who?": 0}
SHARPNESS = 4.0

QUERY = "how does attention work in translation"
VIDEOS = {  # the title is the key, the video is the value
    "how attention works": "video 1",
    "a translation with attention": "video 2",
    "recurrent nets": "video 3",
    "cooking pasta": "video 4",
}
STEMS = {"works": "work", "does": "do"}


def three_heads_weights(word: int = 2) -> Tensor:
    """Return the weights (3, n) with which each head of one word attends to the words of the sentence.

    The keys of every head are the words' features. W_Q of a head sends any word to the feature that this head asks for.
    """
    x = jane_flow().x
    if not 0 <= word < len(x):
        raise ValueError(f"word must be from 0 to {len(x) - 1}, not {word}")
    matrices = zeros(len(HEADS), 4, 4)  # W_Q of each head
    for head, feature in enumerate(HEADS.values()):
        matrices[head, :, feature] = SHARPNESS
    queries = x[word] @ matrices  # (3, 4)
    return attend(queries, x, x, score="dot", return_weights=True)[1]


def three_heads_plot(*, word: int = 2) -> Figure:
    """Draw whom the three heads of one word attend to."""
    words, weights = jane_flow().words, three_heads_weights(word)
    figure = new_figure(9.6, 3.6)
    panels = figure.subplots(1, 3, sharey=True)
    for axes, question, row in zip(panels, HEADS, weights.tolist(), strict=True):
        _bars(axes, words, row)
        axes.set_title(question, fontsize=12, weight="bold", color=INK, loc="left")
    figure.suptitle(f"Three heads of “{words[word]}”", fontsize=14, weight="bold", color=INK, x=0.02, ha="left")
    caption(
        figure,
        "Keys are the words' features (person, action, place, time). The matrix W_Q of each head turns the word into a "
        "question for one feature. The matrices are chosen by hand; regard.attend computes the weights.",
    )
    return figure


def search_weights() -> tuple[Tensor, Tensor]:
    """Return scores and weights (n,) of the titles for the query: shared words, by the lengths of both texts."""
    vocabulary = sorted({word for text in (QUERY, *VIDEOS) for word in _words(text)})

    def counts(text: str) -> Tensor:
        row = tensor([float(_words(text).count(word)) for word in vocabulary])
        return row / row.norm()

    q, k = counts(QUERY)[None], stack([counts(title) for title in VIDEOS])
    _, weights = attend(SHARPNESS * q, k, k, score="dot", return_weights=True)
    return (q @ k.T)[0], weights[0]


def search_plot() -> Figure:
    """Draw attention as a search: the query is compared with titles (keys), and videos (values) are mixed; D4."""
    scores, weights = search_weights()
    figure = new_figure(9.6, 3.8)
    left, right = figure.subplots(1, 2, sharey=True)
    titles = [f"“{title}”" for title in VIDEOS]
    _bars(left, titles, scores.tolist())
    left.set_title("keys: how similar is each title?", fontsize=12, weight="bold", color=INK, loc="left")
    left.set_xlabel("q · k")
    _bars(right, titles, weights.tolist())
    right.set_title("values: how much of each video?", fontsize=12, weight="bold", color=INK, loc="left")
    right.set_xlabel("weight = softmax of the scores")
    for y, video in enumerate(VIDEOS.values()):
        right.text(1.0, y, video, ha="right", va="center", fontsize=10, color=INK)
    figure.suptitle(f"query: “{QUERY}”", fontsize=14, weight="bold", color=INK, x=0.02, ha="left")
    caption(
        figure,
        f"A text is the vector of its word counts, of length 1. A search engine returns the best video; attention "
        f"returns the sum of all videos by weight (scores times {SHARPNESS:g} before the softmax), which can be "
        f"differentiated.",
    )
    return figure


def _words(text: str) -> list[str]:
    return [STEMS.get(word, word) for word in text.split()]


def _bars(axes: Axes, labels: list[str], values: list[float]) -> None:
    axes.barh(range(len(labels)), values, color=[colour_of(min(1.0, 0.25 + 0.75 * value)) for value in values])
    axes.set_yticks(range(len(labels)), labels)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.grid(axis="x", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    quiet(axes)
