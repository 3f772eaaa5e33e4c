"""E3 to E7, E10: the Transformer's blocks and stacks, its output, its training, and the language model.

X, X' in and out of a block   T what attention gives   U after the first norm   p width   V vocabulary
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard import (
    Block,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    Transformer,
    TransformerConfig,
    TransformerLM,
    TransformerLMConfig,
    preset,
)
from regard.text.batches.pairs import PairData
from regard.text.files.corpus import make_corpus
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.special_tokens import END, PAD, START, wrap

p, H = 8, 2


def block(*, cross: bool = False, order: str = "post") -> Block:
    """A block with biases and norms away from 0 and 1."""
    made = Block(
        self_attention=MultiHeadAttention(dim=p, heads=H),
        cross_attention=MultiHeadAttention(dim=p, heads=H) if cross else None,
        feed_forward=FeedForward(dim=p, hidden=12),
        norm=lambda: LayerNorm(p),
        order=order,
    )
    for parameter in made.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, std=0.5)
    return made


# The equations in plain tensor code, for one sentence.


def heads_of(layer: MultiHeadAttention, x: Tensor, y: Tensor, *, causal: bool = False) -> Tensor:
    """The concatenated heads, queries from x (m, p), keys and values from y (n, p); before W^O."""
    weights, biases = layer.input.weight.chunk(3), layer.input.bias.chunk(3)
    q, k, v = (z @ w.T + b for z, w, b in zip((x, y, y), weights, biases, strict=True))
    out = []
    for q_h, k_h, v_h in zip(q.chunk(H, -1), k.chunk(H, -1), v.chunk(H, -1), strict=True):
        scores = q_h @ k_h.T / (p / H) ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones(len(x), len(y)).triu(1) > 0, -torch.inf)
        out.append(scores.softmax(-1) @ v_h)
    return torch.cat(out, dim=-1)


def normed(norm: LayerNorm, x: Tensor) -> Tensor:
    sigma = ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True).add(1e-5).sqrt()
    return norm.weight * (x - x.mean(-1, keepdim=True)) / sigma + norm.bias


def through(linear: nn.Linear, x: Tensor) -> Tensor:
    return x @ linear.weight.T + linear.bias


def feed(net: FeedForward, x: Tensor) -> Tensor:
    return through(net.down, through(net.up, x).clamp(min=0))


def test_E3_encoder_block() -> None:
    """U = LayerNorm(Attention(X) W_0 + X); X' = LayerNorm(FFN(U) + U)."""
    b, X = block(), torch.randn(5, p)
    U = normed(b.self_norm, through(b.self_attention.output, heads_of(b.self_attention, X, X)) + X)
    want = normed(b.feed_norm, feed(b.feed_forward, U) + U)
    torch.testing.assert_close(b(X[None])[0], want, atol=1e-5, rtol=1e-5)


def test_E3_pre_norm_is_an_option() -> None:
    """U = X + Attention(LayerNorm(X)) W_0; X' = U + FFN(LayerNorm(U))."""
    b, X = block(order="pre"), torch.randn(5, p)
    N = normed(b.self_norm, X)
    U = X + through(b.self_attention.output, heads_of(b.self_attention, N, N))
    want = U + feed(b.feed_forward, normed(b.feed_norm, U))
    torch.testing.assert_close(b(X[None])[0], want, atol=1e-5, rtol=1e-5)


def test_E3_residuals_carry_the_positions_upward() -> None:
    """With sublayers that add nothing, what the positions put in arrives at the top; without residuals it could not."""
    model = Transformer(
        TransformerConfig(
            source_vocabulary=9, target_vocabulary=9, layers=3, dim=p, heads=H, hidden=12, order="pre", dropout=0.0
        )
    )
    for one in model.encoder.blocks:
        for layer in (one.self_attention.output, one.feed_forward.down):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
    same_word = torch.full((1, 4), 5)
    top = model.encode(same_word).states[0]  # (4, p)
    torch.testing.assert_close(top, model.encoder.norm(model.source(same_word))[0])
    assert len(top.detach().unique(dim=0)) == 4  # four places of one word, told apart


def test_E4_decoder_block() -> None:
    """U1 = LN(T1 W_0 + Y), U2 = LN(T2 W_1 + U1), Y' = LN(FFN(U2) + U2); T1 masked, T2 of U1 on the encoder's X'."""
    b, Y, X = block(cross=True), torch.randn(4, p), torch.randn(6, p)
    T1 = heads_of(b.self_attention, Y, Y, causal=True)
    U1 = normed(b.self_norm, through(b.self_attention.output, T1) + Y)
    T2 = heads_of(b.cross_attention, U1, X)
    U2 = normed(b.cross_norm, through(b.cross_attention.output, T2) + U1)
    want = normed(b.feed_norm, feed(b.feed_forward, U2) + U2)
    torch.testing.assert_close(b(Y[None], causal=True, memory=X[None])[0], want, atol=1e-5, rtol=1e-5)


def test_E5_six_blocks_alike_with_weights_of_their_own() -> None:
    config = preset("transformer-base", source_vocabulary=9, target_vocabulary=9)
    assert (config.layers, config.dim, config.heads) == (6, 512, 8)
    model = Transformer(preset("transformer-base", source_vocabulary=9, target_vocabulary=9, dim=p, heads=H, hidden=12))
    for stack in (model.encoder, model.decoder):
        shapes = [{name: w.shape for name, w in one.named_parameters()} for one in stack.blocks]
        assert len(shapes) == 6 and all(shape == shapes[0] for shape in shapes)
        matrices = [one.self_attention.input.weight for one in stack.blocks]
        assert len({w.data_ptr() for w in matrices}) == 6
        assert not any(torch.equal(matrices[0], other) for other in matrices[1:])


def test_E5_blocks_are_stacked() -> None:
    """Each reads what the one below gave; every decoder block looks at the encoder's top."""
    model = Transformer(
        TransformerConfig(source_vocabulary=9, target_vocabulary=9, layers=3, dim=p, heads=H, hidden=12)
    ).eval()
    source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[2, 7]])
    x, y = model.source(source), model.target(target)
    for one in model.encoder.blocks:
        x = one(x)
    for one in model.decoder.blocks:
        y = one(y, causal=True, memory=x)
    torch.testing.assert_close(model.encode(source).states, x)
    torch.testing.assert_close(model.decode(target, model.encode(source)), y)


@pytest.mark.parametrize("tie", [False, True])
def test_E6_a_distribution_over_the_vocabulary_for_each_position(tie: bool) -> None:
    """softmax(Y W), W of p x V: a matrix of its own or the table, turned around."""
    model = Transformer(
        TransformerConfig(source_vocabulary=9, target_vocabulary=7, layers=1, dim=p, heads=H, hidden=12, tie_output=tie)
    ).eval()
    source, target = torch.tensor([[4, 5, 6]]), torch.tensor([[2, 5]])
    Y = model.decode(target, model.encode(source))  # (1, 2, p)
    W = (model.target.embedding.weight if tie else model.output.weight).T
    assert W.shape == (p, 7)
    scores = (Y @ W).exp()
    probabilities = model(source, target).softmax(-1)
    torch.testing.assert_close(probabilities, scores / scores.sum(-1, keepdim=True))
    assert probabilities.shape == (1, 2, 7)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(1, 2))


def test_E7_training_on_the_target_moved_right_by_one() -> None:
    """The loss over all pairs in one pass = the sum of what word-by-word prediction pays, the end token included."""
    model = Transformer(
        TransformerConfig(source_vocabulary=9, target_vocabulary=9, layers=2, dim=p, heads=H, hidden=12)
    ).eval()
    source, words = torch.tensor([[4, 5, 6]]), [7, 8, 4]
    sentence = torch.tensor([wrap(words)])
    given, truth = sentence[:, :-1], sentence[:, 1:]
    assert given.tolist() == [[START, 7, 8, 4]] and truth.tolist() == [[7, 8, 4, END]]
    loss = F.cross_entropy(model(source, given)[0], truth[0], reduction="sum")

    # At test time there is only the text so far: no mask, and no later words either.
    paid = torch.zeros(())
    for i, word in enumerate([*words, END]):
        so_far = torch.tensor([[START, *words[:i]]])
        paid = paid - model(source, so_far)[0, -1].log_softmax(-1)[word]
    torch.testing.assert_close(loss, paid)
    # Its gradient reaches every word of the target but the last, which is only predicted.
    seen: list[Tensor] = []
    model.target.embedding.register_forward_hook(lambda module, args, y: seen.append(y))
    loss = F.cross_entropy(model(source, given)[0], truth[0])
    assert (torch.autograd.grad(loss, seen[0])[0].abs().sum(-1) > 0).all()


def test_E7_the_batches_of_the_trainer_pair_each_token_with_the_next() -> None:
    letters = train_characters(["abc"])  # a 4, b 5, c 6
    data = PairData(make_corpus(["ab", "c"], ["c", "ba"], name="letters"), letters, letters, batch_tokens=100)
    batch = data.collate([0, 1], 0)
    assert batch.inputs.tolist() == [[START, 6, PAD], [START, 5, 4]]
    assert batch.labels.tolist() == [[6, END, PAD], [5, 4, END]]


def test_E10_a_language_model_is_decoder_blocks_without_cross_attention() -> None:
    """The same as encoder blocks under a causal mask; and p(text) is the product of p(token | those before)."""
    model = TransformerLM(TransformerLMConfig(vocabulary=9, layers=2, dim=p, heads=H, hidden=12)).eval()
    assert all(one.cross_attention is None for one in model.decoder.blocks)
    text = torch.tensor([[2, 5, 6, 7]])
    x = model.input(text)
    for one in model.decoder.blocks:
        x = one(x, mask=torch.ones(4, 4, dtype=torch.bool).tril())
    torch.testing.assert_close(model(text), x @ model.input.embedding.weight.T)


@torch.no_grad()
def test_E10_text_is_generated_token_by_token() -> None:
    """Each drawn token is fed back; with the cache it costs one step and gives the same text as starting over."""
    model = TransformerLM(TransformerLMConfig(vocabulary=30, layers=2, dim=16, heads=H, hidden=12)).eval()
    anew = [START]
    for _ in range(8):
        anew.append(int(model(torch.tensor([anew]))[0, -1].argmax()))
    state, token, text = model.start(1, 16), torch.tensor([[START]]), [START]
    for _ in range(8):
        token = model.project(model.decode(token, state=state)).argmax(-1)
        text.append(int(token))
    assert text == anew


def test_E3_the_shipped_model_is_the_one_on_the_slides() -> None:
    """`lecture`: sinusoids added to the embedding, Add & Norm after each sublayer; it translates E9."""
    face = regard.load("lecture", device="cpu", dtype="float32")
    config = face.model.config
    assert (config.order, config.position, config.norm, config.score) == ("post", "sinusoidal", "layer", "scaled")
    assert face.model.encoder.norm is None  # only pre-norm stacks end with one more norm
    tokens = torch.tensor([[5, 6, 7]])
    added = face.model.source(tokens) - face.model.source.embedding(tokens)
    torch.testing.assert_close(added[0], regard.positions.sinusoidal(3, config.dim), atol=1e-5, rtol=0)
    assert face.translate("Jane visite l'Afrique en septembre").text == "Jane visits Africa in September"
