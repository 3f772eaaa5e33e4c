"""One translator in many threads and for many calls: the same texts, and no memory that only grows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import regard
from regard.api.results import Translation
from regard.api.translator import Translator
from regard.errors import UsageError
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


def test_a_long_list_is_translated_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two threads, Python reads a chunk while C decodes another; texts, scores and their order stay the same."""
    translator = regard.load("lecture", device="cpu")
    texts = [f"{text} {TEXTS[i % 5]}".strip() for i, text in enumerate(TEXTS * 3)]
    monkeypatch.setattr("regard.api.translator.usable_threads", lambda: 1)
    alone = [(x.text, x.score) for x in translator.translate(texts, beam=2)]
    threads: set[str] = set()

    def watched(self: Translator, *arguments: Any, **options: Any) -> list[Translation]:
        threads.add(threading.current_thread().name)
        return translate_all(self, *arguments, **options)

    translate_all = Translator._translate_all
    monkeypatch.setattr(Translator, "_translate_all", watched)
    monkeypatch.setattr("regard.api.translator.usable_threads", lambda: 2)
    for module in ("translator", "translation.overlapped_chunks"):
        monkeypatch.setattr(f"regard.api.{module}.CHUNK_TEXTS", 4)
    assert [(x.text, x.score) for x in translator.translate(texts, beam=2)] == alone
    assert threads and threading.main_thread().name not in threads
    with pytest.raises(UsageError, match="max_tokens"):
        translator.translate(texts, max_tokens=0)
    with pytest.raises(UsageError, match="include works for one sentence"):  # raised in another thread
        translator.translate([*texts, " ".join(texts * 4)], include=["cat"])


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
