"""`regard generate`: what the library streams, on stdout."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens, NoRepeat, RepetitionPenalty
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.speculative import Speculative
from regard.tasks.loading import load

Run = Callable[..., Result]


def test_the_prompt_and_what_follows(command: Run, models: dict[str, str]) -> None:
    result = command("generate", "-m", models["writer"], "le chat", "--max-tokens", "12", "--seed", "3")
    assert result.exit_code == 0, result.stderr
    wanted = load(models["writer"]).write("le chat", search=Sample(seed=3), max_tokens=12)
    assert result.stdout == f"le chat{wanted}\n" and wanted


def test_the_prompt_may_be_piped(command: Run, models: dict[str, str]) -> None:
    options = ("-m", models["writer"], "--greedy", "--max-tokens", "5")
    assert command("generate", *options, stdin="le chat\n").stdout == command("generate", *options, "le chat").stdout


@pytest.mark.parametrize(
    ("options", "search"),
    [
        (["--greedy"], Greedy()),
        (["--seed", "0"], Sample()),
        (
            ["--temperature", "1.5", "--top-k", "20", "--top-p", "0.95", "--min-p", "0.001", "--seed", "5"],
            Sample(temperature=1.5, top_k=20, top_p=0.95, min_p=0.001, seed=5),
        ),
        (["--greedy", "--no-repeat", "2"], Greedy(rules=(NoRepeat(2),))),
        (["--repetition-penalty", "1.3", "--seed", "0"], Sample(rules=(RepetitionPenalty(1.3),))),
        (["--min-tokens", "9", "--seed", "0"], Sample(rules=(MinTokens(9),))),
    ],
)
def test_the_options_are_the_search(command: Run, models: dict[str, str], options: list[str], search: object) -> None:
    result = command("generate", "-m", models["writer"], "Jane", "--max-tokens", "9", "--json", *options)
    wanted = load(models["writer"]).write("Jane", search=search, max_tokens=9)
    seed = None if isinstance(search, Greedy) else search.seed
    assert json.loads(result.stdout) == {"prompt": "Jane", "text": wanted, "seed": seed}


def test_several_texts_have_seeds_one_after_the_other(command: Run, models: dict[str, str]) -> None:
    options = ("-m", models["writer"], "Jane", "--max-tokens", "6", "-n", "3", "--seed", "4")
    entries = [json.loads(line) for line in command("generate", *options, "--json").stdout.splitlines()]
    assert [entry["seed"] for entry in entries] == [4, 5, 6] and len({entry["text"] for entry in entries}) == 3
    shown = command("generate", *options).stdout
    assert shown == "\n".join(f"Jane{entry['text']}\n" for entry in entries)


def test_a_draft_helps(command: Run, models: dict[str, str]) -> None:
    options = ("generate", "-m", models["writer"], "Jane", "--max-tokens", "9", "--json")
    draft = ("--draft", models["writer"])
    assert command(*options, "--greedy", *draft).stdout == command(*options, "--greedy").stdout
    entries = [json.loads(line) for line in command(*options, *draft, "--seed", "2", "-n", "2").stdout.splitlines()]
    writer = load(models["writer"])
    for entry, seed in zip(entries, (2, 3), strict=True):
        search = Speculative(writer, Sample(seed=seed))
        assert entry == {"prompt": "Jane", "text": writer.write("Jane", search=search, max_tokens=9), "seed": seed}


def test_stop(command: Run, models: dict[str, str]) -> None:
    options = ("-m", models["writer"], "Jane", "--max-tokens", "9", "--greedy", "--json")
    whole = json.loads(command("generate", *options).stdout)["text"]
    cut = json.loads(command("generate", *options, "--stop", whole[2:4]).stdout)["text"]
    assert cut == whole[: whole.index(whole[2:4])]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--greedy", "--seed", "1"], "--seed is an option of sampling, and --greedy does not sample"),
        (["--greedy", "--top-k", "1"], "--top-k is an option of sampling"),
        (["--greedy", "-n", "2"], "--greedy always gives the same text"),
        (["--draft", "fr-en"], "use `regard translate -m fr-en`"),
        (["--temperature", "0"], "use --greedy instead"),
        (["--stop", ""], "stop must not be an empty text"),
        (["--min-tokens", "201"], "--min-tokens 201 is more than --max-tokens 200"),
        (["--repetition-penalty", "0"], "a repetition penalty must be a number from 1"),
    ],
)
def test_wrong_options(command: Run, models: dict[str, str], options: list[str], message: str) -> None:
    result = command("generate", "-m", models["writer"], "x", *options)
    assert (result.exit_code, result.stdout) == (2, "") and message in result.stderr


def test_a_prompt_that_is_too_long_is_told(command: Run, models: dict[str, str]) -> None:
    result = command("generate", "-m", models["writer"], "le chat noir " * 30, "--max-tokens", "4")
    assert result.exit_code == 0 and "the model sees 32: only the last 16 are read" in result.stderr


def test_a_prompt_in_the_wrong_encoding(command: Run, models: dict[str, str]) -> None:
    result = command("generate", "-m", models["writer"], stdin=b"\xe9t\xe9")
    assert result.exit_code == 3 and "the prompt on stdin is not UTF-8" in result.stderr
    result = command("generate", "-m", models["writer"], "\udce9t\udce9")  # how Python hands on such arguments
    assert result.exit_code == 2 and "the prompt is not UTF-8" in result.stderr


def test_a_translator_does_not_generate(command: Run, models: dict[str, str]) -> None:
    result = command("generate", "-m", models["translator"], "le chat")
    assert result.exit_code == 2
    assert f"kind 'transformer', which translates: use `regard translate -m {models['translator']}`" in result.stderr


def test_without_a_seed_texts_differ_and_can_be_repeated(command: Run, models: dict[str, str]) -> None:
    options = ("generate", "-m", models["writer"], "Jane", "--max-tokens", "12")
    results = [command(*options) for _ in range(3)]
    assert len({result.stdout for result in results}) > 1
    seed = re.fullmatch(r"regard: seed (\d+); --seed \1 generates the same text again\n", results[0].stderr)
    assert seed is not None
    again = command(*options, "--seed", seed[1])
    assert again.stdout == results[0].stdout and again.stderr == ""
    assert command(*options, "--greedy").stderr == ""


def test_a_temperature_of_0_names_greedy_search(command: Run, models: dict[str, str]) -> None:
    result = command("generate", "-m", models["writer"], "Jane", "--temperature", "0")
    assert result.exit_code == 2 and "use --greedy instead" in result.stderr
    result = command("translate", "-m", models["translator"], "-t", "Jane", "--sample", "--temperature", "0")
    assert result.exit_code == 2 and "use --beam 1 without --sample" in result.stderr


def test_unknown_letters_are_named_once(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    """The models of this test have seen a few French and English sentences."""
    message = "regard: the model does not know these letters: "
    result = command("generate", "-m", models["writer"], "Привет, Jane 3", "--max-tokens", "2", "--seed", "1")
    assert result.stderr == f"{message}П, р, и, в, е, т\n"
    (tmp_path / "text").write_text("le chat\nLE CHAT\nabcdefghijklmnopqrstuvwxyz Привет\nЯ\n", encoding="utf-8")
    result = command("translate", "-m", models["translator"], tmp_path / "text", "--max-tokens", "2")
    assert result.stderr.count(message) == 1 and " and 4 more\n" in result.stderr and len(result.stderr) < 200
