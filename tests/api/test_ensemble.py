"""Translators joined to one: it scores as the mean of them, and refuses other tokenizers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from regard.api.ensemble import join_translators
from regard.api.translator import Translator
from regard.errors import UsageError

Make = Callable[..., Translator]
TEXT = "Jane visite l'Afrique en septembre"


@pytest.mark.parametrize("mean", ["probabilities", "logs"])
def test_a_transformer_and_a_recurrent_net(translator_of: Make, mean: Any) -> None:
    both = [translator_of("transformer"), translator_of("rnn-attention")]
    joined = join_translators(both, mean=mean)
    found = joined.translate([TEXT, ""], max_tokens=8, guard=False, attention=True)
    assert found[0].ids and found[1].text == ""
    # Where it looked, the first one looked.
    first = both[0].attention_of(found[0].source_ids, found[0].ids)
    assert found[0].attention.cross is not None and first.cross is not None
    assert found[0].attention.cross.equal(first.cross)
    if mean == "probabilities":
        scored, one, other = (each.score(TEXT, "Jane visits Africa").logps for each in (joined, *both))
        want = [math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(one, other, strict=True)]
        assert scored == pytest.approx(want, abs=1e-5)


def test_one_alone_stays_what_it_is(translator_of: Make) -> None:
    alone = translator_of("transformer", alignment={"layer": "decoder.0.cross", "head": 1})
    joined = join_translators([alone])
    found, want = (each.translate(TEXT, max_tokens=8) for each in (joined, alone))
    assert found.ids == want.ids and found.score == pytest.approx(want.score, abs=1e-5)
    assert found.alignment().pairs == want.alignment().pairs


def test_mistakes_are_named(translator_of: Make, letters: Any) -> None:
    with pytest.raises(UsageError, match="an ensemble needs at least one translator"):
        join_translators([])
    with pytest.raises(UsageError, match="the source tokenizer of number 2 differs from that of the first"):
        join_translators([translator_of(), translator_of(tokenizer=letters)])
