"""Many to one: a sentence in, one label out, with one learned query as pooling (A3, D2)."""

from __future__ import annotations

import torch

import regard


def test_A3_many_to_one_pools_with_one_learned_query() -> None:
    """The pooled vector is sum_k a_k h_k, with a = softmax(theta . h_k) over the tokens of the sentence."""
    torch.manual_seed(0)
    config = regard.ClassifierConfig(
        source_vocabulary=20, target_vocabulary=7, layers=1, dim=8, heads=2, hidden=16, dropout=0.0
    )
    model = regard.TextClassifier(config).eval()
    tokens = torch.randint(4, 20, (1, 6))
    logits, weights = model.classify(tokens)
    h = model.encode(tokens).states[0]  # (n, p)
    a = torch.softmax(h @ model.pool.theta[0], 0)
    torch.testing.assert_close(weights[0], a)
    torch.testing.assert_close(logits[0], model.output(a @ h))
    assert logits.shape == (1, 3)  # many tokens, one distribution over three labels


def test_A3_shipped_classifier_looks_at_the_word_that_decides() -> None:
    classifier = regard.load("demo-classifier", device="cpu")
    sentences = [
        "Does the cat sleep in the garden?",
        "The cat never sleeps in the garden.",
        "The cat sleeps in the garden.",
    ]
    question, negation, statement = classifier.classify(sentences)
    assert [question.label, negation.label, statement.label] == ["question", "negation", "statement"]
    assert dict(zip(question.tokens, question.weights, strict=True))["?"] > 0.9
    assert dict(zip(negation.tokens, negation.weights, strict=True))["▁never"] > 0.9
    assert max(statement.weights) < 0.5  # no word makes a statement
