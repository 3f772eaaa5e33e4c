"""`regard.load` decodes with packed weights on a CPU, as the command line does, and its model stays a plain module."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import regard
from regard.api.ensemble import join_translators
from regard.api.translator import Translator
from regard.cli import app
from regard.decoding.cpu.c_matrix import compiled
from regard.decoding.cpu.packed_weight import PackedWeight
from regard.models.folder import load_model, save_model

TEXTS = ["Je ne sais pas.", "Où est la gare ?", "Le chat dort."]
pytestmark = pytest.mark.skipif(compiled() is None, reason="COMPILER: there is none for C")


@pytest.fixture
def translator() -> Translator:
    face = regard.load("fr-en", device="cpu")
    assert isinstance(face, Translator)
    return face


def is_packed(model: Any) -> bool:
    return isinstance(model.decoder.blocks[0].feed_forward.up.weight, PackedWeight)


def texts_and_scores(translator: Translator) -> list[tuple[str, float]]:
    return [(found.text, found.score) for found in translator.translate(TEXTS, beam=2)]


def test_python_and_the_shell_use_the_same_engine(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints scores with four digits; those behind it are equal to the last bit."""
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    wanted, translate, seen = texts_and_scores(translator), Translator.translate, []

    def watched(self: Translator, *texts: Any, **options: Any) -> Any:
        results: Any = translate(self, *texts, **options)
        seen.extend((found.text, found.score) for found in results)
        return results

    monkeypatch.setattr(Translator, "translate", watched)
    shell = CliRunner().invoke(app, ["translate", "-m", "fr-en", "--device", "cpu", "--json", "--beam", "2", str(file)])
    assert [json.loads(line)["text"] for line in shell.stdout.splitlines()] == [text for text, _ in wanted]
    assert sorted(seen) == sorted(wanted)  # the command begins with the longest
    assert is_packed(translator.decoding_model) and not is_packed(translator.model)


def test_the_copy_takes_memory_for_packed_matrices_only(translator: Translator) -> None:
    ours, theirs = translator.model.state_dict(), dict(translator.decoding_model.named_parameters())
    for name, weight in theirs.items():
        numbers = weight.numbers if isinstance(weight, PackedWeight) else weight
        assert numbers.data_ptr() == ours[name].data_ptr()
    assert translator.decoding_model is translator.decoding_model  # made once


def test_the_model_can_be_recorded(translator: Translator) -> None:
    with regard.record(translator.model) as recording:
        found = translator.translate(TEXTS[0])
    assert recording and found.text == translator.translate(TEXTS[0]).text
    assert is_packed(translator.decoding_model)  # again, once nobody watches


def test_hooks_take_effect(translator: Translator) -> None:
    plain = translator.translate(TEXTS[0], beam=1)

    def silence(module: torch.nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return torch.zeros_like(output)

    handle = translator.model.decoder.blocks[0].feed_forward.register_forward_hook(silence)
    assert translator.translate(TEXTS[0], beam=1).score != plain.score
    handle.remove()
    assert translator.translate(TEXTS[0], beam=1).score == plain.score


def test_the_model_can_be_saved(translator: Translator, tmp_path: Path) -> None:
    translator.translate(TEXTS[0])
    save_model(translator.model, tmp_path / "saved")
    saved = load_model(tmp_path / "saved").state_dict()
    assert all(torch.equal(weight, saved[name]) for name, weight in translator.model.state_dict().items())
    assert torch.equal(*(copy.deepcopy(model).output_table[0] for model in (translator.model, translator.model)))


def test_the_model_can_be_trained_on(translator: Translator) -> None:
    """The packed weights follow those of the model."""
    before = texts_and_scores(translator)
    model = translator.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    source, target = torch.tensor([[9, 8, 7, 2]]), torch.tensor([[1, 9, 8, 7]])
    model(source, target).logsumexp(-1).sum().backward()
    optimizer.step()
    after = texts_and_scores(translator)
    plain = Translator(model, translator.source_tokenizer, translator.target_tokenizer, info=translator.info)
    wanted = texts_and_scores(plain)
    assert before != after and is_packed(translator.decoding_model)
    assert [text for text, _ in after] == [text for text, _ in wanted]
    assert [score for _, score in after] == pytest.approx([score for _, score in wanted], abs=1e-4)


def test_the_model_can_be_moved(translator: Translator) -> None:
    translator.translate(TEXTS[0])
    translator.model.to(torch.float64)
    assert translator.decoding_model is translator.model
    assert translator.translate(TEXTS[0]).text == "I don't know."
    translator.model.to(torch.float32)
    assert is_packed(translator.decoding_model)
    translator.model.to("meta")
    assert translator.decoding_model is translator.model


def test_other_weights_are_taken_over(translator: Translator) -> None:
    first = translator.decoding_model
    translator.model.load_state_dict({name: weight * 0.9 for name, weight in translator.model.state_dict().items()})
    second = translator.decoding_model
    assert second is not first
    block = translator.model.decoder.blocks[0]
    block.feed_forward = copy.deepcopy(block.feed_forward)
    assert translator.decoding_model is not second


def test_an_ensemble_is_packed(translator: Translator) -> None:
    both = join_translators([translator, translator])
    assert all(map(is_packed, both.decoding_model.models)) and not any(map(is_packed, both.model.models))
    assert [text for text, _ in texts_and_scores(both)] == [text for text, _ in texts_and_scores(translator)]


def test_what_was_not_loaded_is_not_packed(translator: Translator) -> None:
    plain = Translator(translator.model, translator.source_tokenizer, translator.target_tokenizer)
    assert plain.decoding_model is plain.model


def test_a_writer_decodes_with_packed_weights() -> None:
    writer: Any = regard.load("shakespeare", device="cpu")
    assert is_packed(writer.decoding_model) and not is_packed(writer.model)
    options = ["-m", "shakespeare", "--device", "cpu", "--max-tokens", "30", "--seed", "0"]
    shell = CliRunner().invoke(app, ["generate", "ROMEO:", *options])
    assert shell.stdout == f"ROMEO:{writer.write('ROMEO:', max_tokens=30)}\n"
