"""One translator in many threads and for many calls: the same texts, and no memory that only grows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from regard.api.translator import Translator
from regard.machine import memory_in_use

TEXTS = [
    "Jane visite l'Afrique en septembre.",
    "le chat noir dort dans la maison",
    "la petite fille mange une pomme rouge",
    "",
    "il ne mange pas la pomme",
]
CPU = torch.device("cpu")


def translate(translator: Translator, text: str) -> tuple[str, float]:
    translation = translator.translate(text, max_tokens=8)
    return translation.text, translation.score


def test_ten_threads_share_a_translator(translator_of: Callable[..., Translator]) -> None:
    translator = translator_of("transformer")
    alone = [translate(translator, text) for text in TEXTS]
    with ThreadPoolExecutor(10) as pool:
        together = list(pool.map(lambda text: translate(translator, text), TEXTS * 8))
    assert together == alone * 8


@pytest.mark.parametrize("calls", [150, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_memory_does_not_grow_from_call_to_call(calls: int, translator_of: Callable[..., Translator]) -> None:
    translator = translator_of("transformer")

    def growth(count: int) -> int:
        before = memory_in_use(CPU)
        for call in range(count):
            translate(translator, TEXTS[call % len(TEXTS)])
        return memory_in_use(CPU) - before

    growth(50)  # what is made once
    assert growth(calls) < 4 * 2**20
