"""`regard plot`: every picture in every format, options that fit or fail, and short messages."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from regard.cli import app

from ..repeats import by_default

NAMES = (
    "alignment",
    "positions",
    "variance",
    "products",
    "mask",
    "one-hot",
    "gradients",
    "architecture",
    "scaled-dot-product",
    "multi-head",
    "qkv-flow",
    "random-features",
)
# Pictures for which something is computed are compared in a small size.
SMALL = {"gradients": ("--length", "10", "--seeds", "2"), "random-features": ("--features", "16", "--seeds", "2")}
KINDS = ("alignment", "heads", "steps")
MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def regard(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@cache
def picture(*arguments: str) -> bytes:
    """What is drawn; once, for it is the same each time."""
    assert regard("plot", *arguments, "-o", "picture.svg").exit_code == 0
    return Path("picture.svg").read_bytes()


def alignment_file(data: object, name: str = "a.json") -> str:
    Path(name).write_text(data if isinstance(data, str) else json.dumps(data), "utf-8")
    return name


GOOD = {"source": ["le", "chat"], "target": ["the", "cat"], "weights": [[0.9, 0.1], [0.2, 0.8]]}


@pytest.mark.parametrize("name", ["mask", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES)])
def test_every_picture_is_written_and_its_path_printed(name: str) -> None:
    """`regard lectures` draws all of them in test_lectures.py."""
    result = regard("plot", name)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{name}.png\n", "")
    assert Path(f"{name}.png").read_bytes().startswith(MAGIC[".png"])
    assert [path.name for path in Path().iterdir()] == [f"{name}.png"]


@pytest.mark.parametrize("suffix", MAGIC)
def test_the_suffix_picks_the_format(suffix: str) -> None:
    result = regard("plot", "mask", "-o", f"m{suffix}")
    assert (result.exit_code, result.stdout) == (0, f"m{suffix}\n")
    assert Path(f"m{suffix}").read_bytes().startswith(MAGIC[suffix])


def test_help_names_every_picture() -> None:
    result = regard("plot", "--help")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in NAMES)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    by_default(
        {
            ("positions", "--dim", "8"),
            ("variance", "--distances", "9"),
            ("products", "--dim", "16"),
            ("mask", "--size", "5"),
            ("gradients", "--seeds", "3"),
            ("architecture", "--heads", "4"),
            ("qkv-flow", "--word", "1"),
            ("random-features", "--phi", "positive"),
            ("random-features", "--features", "32"),
        },
        [
            ("positions", "--dim", "8"),
            ("positions", "--length", "8"),
            ("variance", "--dim", "16"),
            ("variance", "--distances", "9"),
            ("products", "--dim", "16"),
            ("products", "--distances", "9"),
            ("mask", "--kind", "window"),
            ("mask", "--size", "5"),
            ("one-hot", "--word", "cat"),
            ("gradients", "--length", "12"),
            ("gradients", "--seeds", "3"),
            ("architecture", "--layers", "2"),
            ("architecture", "--dim", "64"),
            ("architecture", "--heads", "4"),
            ("multi-head", "--dim", "64"),
            ("multi-head", "--heads", "4"),
            ("qkv-flow", "--word", "1"),
            ("alignment", "--title", "Title"),
            ("random-features", "--phi", "positive"),
            ("random-features", "--features", "32"),
            ("random-features", "--draw", "independent"),
            ("random-features", "--seed", "3"),
            ("random-features", "--seeds", "3"),
        ],
    ),
)
def test_every_option_changes_the_picture(name: str, option: str, value: str) -> None:
    small = SMALL.get(name, ())
    assert picture(name, *small) != picture(name, *small, option, value)  # of two values, the last one counts


def test_mask_kinds_differ() -> None:
    files = [Path(f"{kind}.svg") for kind in ("causal", "padding", "window", "document")]
    for file in files:
        assert regard("plot", "mask", "--kind", file.stem, "-o", str(file)).exit_code == 0
    assert len({file.read_bytes() for file in files}) == 4


def test_an_alignment_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.look.pictures import matrices

    seen = {}
    draw = matrices.alignment_plot

    def spy(weights, source, target, **options):
        seen.update(weights=weights, source=source, target=target, **options)
        return draw(weights, source, target, **options)

    monkeypatch.setattr(matrices, "alignment_plot", spy)
    result = regard("plot", "alignment", alignment_file(GOOD), "--no-values", "-o", "a.png")
    assert (result.exit_code, result.stdout) == (0, "a.png\n")
    assert {key: seen[key] for key in GOOD} == GOOD
    assert seen["values"] is False and seen["made"] == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{not json", "a.json is not JSON: .*line 1 column 2"),
        ("[1, 2]", "a.json must contain an object with source, target and weights, but is not an object"),
        ({"source": ["a"]}, "must contain an object with source, target and weights, but has source"),
        ({**GOOD, "extra": 1}, "but has source, target, weights, extra"),
        ({**GOOD, "source": "le chat"}, "a.json: source must be a list of at least one word"),
        ({**GOOD, "target": []}, "a.json: target must be a list of at least one word"),
        ({**GOOD, "target": [1, 2]}, "a.json: target must be a list of at least one word"),
        ({**GOOD, "weights": [[1.0, 0.0]]}, r"a.json: weights has shape \(1, 2\), but 2 target and 2 source"),
        ({**GOOD, "weights": [[1.0], [0.5, 0.5]]}, "a.json: weights must be rows of numbers"),
        ({**GOOD, "weights": "x"}, "a.json: weights must be rows of numbers"),
        ({**GOOD, "weights": None}, "a.json: weights must be rows of numbers"),
        ({**GOOD, "weights": [[1.0, 2.0], [0, 1]]}, "a.json: weights must lie between 0 and 1"),
    ],
)
def test_a_wrong_alignment_file_is_input_data(data: object, message: str) -> None:
    result = regard("plot", "alignment", alignment_file(data))
    assert result.exit_code == 3
    assert re.search(f"^regard: .*{message}", result.stderr, re.DOTALL), result.stderr
    assert result.stdout == "" and "Traceback" not in result.stderr
    assert not Path("alignment.png").exists()


def test_files_that_cannot_be_read() -> None:
    result = regard("plot", "alignment", "none.json")
    assert (result.exit_code, result.stderr) == (3, "regard: cannot read none.json: No such file or directory\n")
    Path("latin.json").write_bytes(b'{"source": ["\xe9"]}')
    result = regard("plot", "alignment", "latin.json")
    assert result.exit_code == 3 and "latin.json is not UTF-8 text" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mask", "--word", "A"], "No such option: --word"),
        (["architecture", "--size", "3"], "No such option: --size"),
        (["mask", "file.json"], "unexpected extra argument"),
        (["mask", "--kind", "causl"], "'causl' is not one of"),
        (["mask", "--size", "0"], "Invalid value for '--size'"),
        (["nothing"], "No such command 'nothing'"),
        (["mask", "-o", "a.gif"], "the picture mask does not move; use .png, .svg or .pdf"),
        (["mask", "-o", "nowhere/a.png"], "cannot write nowhere/a.png: No such file or directory"),
        (["one-hot", "--word", "été"], "word must be made of the letters A to Z, not 'été'"),
        (["variance", "--dim", "7"], "dim must be even, not 7"),
        (["multi-head", "--heads", "7"], "dim must be a multiple of heads, but 512 is not one of 7"),
        (["qkv-flow", "--word", "6"], "Invalid value for '--word'"),
        (["random-features", "--features", "17"], "features must be even"),
        (["random-features", "--head", "1"], "need a text or a trace file: pass one"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = regard("plot", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", "").split())
    assert result.stdout == "" and "Traceback" not in result.stderr
    assert list(Path().iterdir()) == []


@pytest.fixture(scope="module")
def jane(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The trace of a beam search by the shipped model, as a file."""
    import regard as package
    from regard.look import trace_text

    path = tmp_path_factory.mktemp("traces") / "jane.json"
    face, text = package.load("fr-en"), "Jane visite l'Afrique en septembre"
    trace = trace_text(face, text, search=package.Beam(2), name="fr-en")
    return str(trace.save(path))


@pytest.mark.parametrize("kind", ["tree", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS)])
def test_a_trace_file_needs_no_name_of_a_picture(kind: str, jane: str) -> None:
    result = regard("plot", jane, "--kind", kind, "-o", "a.svg")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a.svg\n", "")
    assert regard("plot", "trace", jane, "--kind", kind, "-o", "b.svg").exit_code == 0
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()


def test_a_model_reads_a_text_and_draws_it(jane: str) -> None:
    text = ("--model", "fr-en", "Jane visite l'Afrique en septembre", "--beam", "2")
    assert regard("plot", *text, "--kind", "tree", "-o", "a.svg").exit_code == 0
    assert regard("plot", jane, "--kind", "tree", "-o", "b.svg").exit_code == 0
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()
    result = regard("plot", "-m", "fr-en", "Le chat dort.")
    assert (result.exit_code, result.stdout) == (0, "alignment.png\n")


@pytest.mark.parametrize(
    "options",
    ["--layer 0", "--layer 1 --head 2", "--map enc_self", "--level piece", "--kind heads"],
)
def test_every_option_of_a_trace_changes_the_picture(options: str, jane: str) -> None:
    assert picture(jane) != picture(jane, *options.split())


def test_a_text_without_a_model_is_for_the_shipped_one() -> None:
    assert regard("plot", "trace", "Le chat dort.", "-o", "shipped.svg").exit_code == 0
    assert regard("plot", "-m", "fr-en", "Le chat dort.", "-o", "named.svg").exit_code == 0
    assert Path("shipped.svg").read_bytes() == Path("named.svg").read_bytes()


def test_a_model_is_led_along_a_target() -> None:
    assert regard("plot", "-m", "fr-en", "Le chat dort.", "-o", "plain.svg").exit_code == 0
    assert regard("plot", "-m", "fr-en", "Le chat dort.", "--target", "The cats sleep.", "-o", "led.svg").exit_code == 0
    assert Path("plain.svg").read_bytes() != Path("led.svg").read_bytes()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("none.json",), 3, "none.json: no such file"),
        (("{jane}", "--beam", "2"), 2, "--target and --beam are for a text"),
        (("{jane}", "--layer", "9"), 2, ", got 9"),
        (("{jane}", "--map", "crosses"), 2, "unknown map 'crosses'; did you mean 'cross'"),
        (("-m", "nothing", "text"), 4, "no model 'nothing'"),
        (("-m", "fr-en"), 2, "Missing argument 'WHAT'"),
        (("positions", "-m", "fr-en"), 2, "fr-en has no learned positions"),
    ],
)
def test_traces_that_cannot_be_drawn(options: tuple[str, ...], code: int, message: str, jane: str) -> None:
    result = regard("plot", *(option.format(jane=jane) for option in options))
    assert result.exit_code == code
    assert message in " ".join(result.stderr.replace("│", "").split())
    assert "Traceback" not in result.stderr and list(Path().iterdir()) == []


def test_the_learned_positions_of_a_model(tmp_path: Path) -> None:
    from regard.models.config import TransformerLMConfig
    from regard.models.folder import save_model
    from regard.models.presets import make_model
    from regard.text.tokenizers.characters import train_characters

    tokenizer = train_characters(["abc"])
    config = TransformerLMConfig(
        layers=1, dim=8, heads=2, hidden=8, vocabulary=tokenizer.size, position="learned", max_length=20
    )
    save_model(make_model(config), Path("model"), files=dict([tokenizer.save()]))
    assert regard("plot", "positions", "--model", "model", "--length", "5", "-o", "a.svg").exit_code == 0
    assert regard("plot", "positions", "--length", "5", "--dim", "8", "-o", "b.svg").exit_code == 0
    assert Path("a.svg").read_bytes() != Path("b.svg").read_bytes()
