"""The step in C against the modules that it stands for; without a compiler the modules go on alone."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention.linear.cache import FeatureCache
from regard.decoding.cpu import c_decoder, c_matrix, packed_weight
from regard.decoding.cpu.c_decoder import make_c_decoder
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.engine import generate_tokens
from regard.decoding.model_step import encode, prefill
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.errors import ModelError
from regard.kernels.native import compiler as c_code
from regard.layers.ssru import SSRUCache
from regard.models.config import RecurrentTranslatorConfig, TransformerConfig, TransformerLMConfig
from regard.models.decoding_state import TransformerState
from regard.models.presets import make_model

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="COMPILER: there is none for C")

BASE: dict[str, Any] = {"layers": 2, "dim": 40, "heads": 4, "hidden": 54}
KINDS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"order": "pre", "position": "learned"},
    "rotary": {"order": "pre", "position": "rotary", "activation": "gelu"},
    "modern": {
        "order": "pre",
        "position": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "kv_heads": 2,
        "bias": False,
    },
    "gpt": {"order": "pre", "position": "learned", "activation": "gelu-tanh"},
    "wide": {"dim": 144, "heads": 2},  # heads that are wider than a tile
    "untied": {"tie_output": False, "share_embeddings": False, "position": "none"},
    "ssru": {"decoder_self": "ssru", "output_bias": True},
    "marian": {"activation": "silu", "output_bias": True, "norm_eps": 1e-4, "position_layout": "halves"},
}


RANDOM: dict[str, Any] = {"attention": "random-features", "features": 14}
FEATURES: dict[str, dict[str, Any]] = {
    "features": {"exact_heads": ("encoder", "decoder.*.cross")},
    "features gated": {
        "order": "pre",
        "position": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "kv_heads": 2,
        "bias": False,
        "feature_gate": True,
        "feature_map": "optimal",
        "exact_heads": ("encoder", "decoder.*.cross"),
    },
    "features elu": {
        "feature_map": "elu",
        "features": None,
        "feature_norm": False,
        "feature_scale": False,
        "exact_heads": ("encoder", "decoder.*.cross"),
    },
}
KINDS |= {kind: {**RANDOM, **settings} for kind, settings in FEATURES.items()}


# An SSRU has no cross-attention to describe in a language model, which C leaves to the modules.
CASES = [(kind, translates) for kind in KINDS for translates in (True, False) if translates or kind != "ssru"]


def make(kind: str, form: Any, *, translates: bool = True) -> Any:
    """The widths are no multiples of a tile's."""
    torch.manual_seed(2)
    config: Any
    if translates:
        settings = {"share_embeddings": True, **KINDS[kind]}
        config = TransformerConfig(**{**BASE, **settings}, source_vocabulary=50, target_vocabulary=50)
    else:
        settings = {key: value for key, value in KINDS[kind].items() if key not in ("share_embeddings", "exact_heads")}
        config = TransformerLMConfig(**{**BASE, **settings}, vocabulary=50)
    model = make_model(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:  # biases and norms as training leaves them
            torch.nn.init.normal_(parameter, mean=float("norm" in name and "weight" in name), std=0.3)
    return model if form is None else pack_weights(model, form)


def texts(count: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(count)
    return [torch.randint(4, 50, (3 + i % 5,), generator=draw).tolist() for i in range(count)]


def states(model: Any, rows: int, *, translates: bool) -> list[Any]:
    """Two alike, after a prefix of two tokens; sources of several lengths, so with padding."""
    prefix = torch.tensor([[2, 5 + i % 40] for i in range(rows)])
    return [prefill(model, prefix, encode(model, texts(rows)) if translates else None, capacity=9)[1] for _ in range(2)]


def kept(cache: Any) -> list[Tensor]:
    """The keys and values, or the sums."""
    if isinstance(cache, FeatureCache):
        return [cache.state.S, cache.state.z, cache.state.log_scale, cache.state.log_decay]
    if isinstance(cache, SSRUCache):
        return [cache.state]
    return [cache.k[:, :, : cache.length], cache.v[:, :, : cache.length]]


@pytest.mark.parametrize(("kind", "translates"), CASES)
@torch.inference_mode()
def test_a_step_is_that_of_the_modules(kind: str, translates: bool) -> None:
    """Scores, and the keys and values that it leaves, over several steps and row counts."""
    plain, model = (make(kind, form, translates=translates) for form in (None, "packed"))
    found = make_c_decoder(model)
    assert found is not None
    for rows in (1, 3, 4, 5, 17, 32, 128):
        ours, theirs = (states(one, rows, translates=translates)[0] for one in (model, plain))
        for step in range(4 if rows < 32 else 1):
            tokens = torch.arange(rows)[:, None] % 45 + step
            got = found.step(ours, tokens)
            want = plain.project(plain.decode(tokens, state=theirs)[:, -1])
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        for own, other in zip(ours.caches, theirs.caches, strict=True):
            assert own.positions(1).unique().tolist() == other.positions(1).unique().tolist() == [6 if rows < 32 else 3]
            for got, want in zip(kept(own), kept(other), strict=True):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_whole_numbers_are_rounded_as_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("paper", "int8")
    ours, theirs = states(model, 3, translates=True)
    tokens = torch.tensor([[7], [8], [9]])
    got = model.c_decoder.step(ours, tokens)
    monkeypatch.setattr(packed_weight, "compiled", lambda: None)
    want = model.project(model.decode(tokens, state=theirs)[:, -1])
    assert float((got - want).norm() / want.norm()) < 0.02  # a number between two may go the other way


@pytest.mark.parametrize("form", ["packed", "int8"])
@torch.inference_mode()
def test_rows_know_nothing_of_each_other_bit_by_bit(form: Any) -> None:
    model = make("rotary", form, translates=False)
    tokens = torch.arange(4, 17)[:, None]
    together, _ = states(model, 13, translates=False)
    got = model.c_decoder.step(together, tokens)
    for i in (0, 5, 12):
        alone = prefill(model, torch.tensor([[2, 5 + i]]), None, capacity=9)[1]
        for own, other in zip(alone.caches, states(model, 13, translates=False)[0].caches, strict=True):
            own.k[:], own.v[:] = other.k[i], other.v[i]
        assert torch.equal(model.c_decoder.step(alone, tokens[i, None])[0], got[i])


@pytest.mark.parametrize("shared_bytes", [0, 2**40], ids=["operations", "rows"])
@pytest.mark.parametrize("kind", ["paper", "modern", "ssru", "features gated"])
@torch.inference_mode()
def test_threads_that_share_operations_or_rows(
    kind: str, shared_bytes: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Both give the bits of one thread: scores, and the keys and values of all rows."""
    monkeypatch.setattr(c_decoder, "SHARED_BYTES", shared_bytes)
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    model = make(kind, "packed")
    for rows in (1, 2, 5):
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(1)
            state = states(model, rows, translates=True)[0]
            torch.set_num_threads(threads)
            scores = [model.c_decoder.step(state, torch.arange(rows)[:, None] + step) for step in range(3)]
            results.append([*scores, *(tensor for cache in state.caches for tensor in kept(cache))])
        assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("kind", ["paper", "modern", "features gated"])
@torch.inference_mode()
def test_rows_of_different_ages(kind: str) -> None:
    """Two batches, the one further than the other, go on as one; each row gets the bits that it gets in its own."""
    model = make(kind, "packed")
    older, younger = states(model, 5, translates=True)[0], states(model, 3, translates=True)[0]
    for token in (6, 7, 8):
        model.c_decoder.step(older, torch.full((5, 1), token))
    joined = TransformerState.join([older, younger])
    assert model.c_decoder.why_not(joined, torch.zeros(8, 1, dtype=torch.long)) is None
    for token in (9, 10):
        together = model.c_decoder.step(joined, torch.full((8, 1), token))
        parts = [model.c_decoder.step(one, torch.full((len(one), 1), token)) for one in (older, younger)]
        assert torch.equal(together, torch.cat(parts))
    assert joined.caches[0].lengths.tolist() == [7] * 5 + [4] * 3
    joined.keep(torch.tensor([1, 6]), torch.tensor([1, 6]))
    assert torch.equal(
        model.c_decoder.step(joined, torch.tensor([[5], [5]]))[0], model.c_decoder.step(older, torch.full((5, 1), 5))[1]
    )


@torch.inference_mode()
def test_rows_change_places_without_a_copy() -> None:
    """As hypotheses of a beam do, again and again, some twice and some no more; the modules can go on from there."""
    plain, model = make("modern", None), make("modern", "packed")
    ours, theirs = (states(one, 6, translates=True)[0] for one in (model, plain))
    for rows in ([2, 2, 0, 4, 5, 3], [1, 0, 5, 4, 4, 2], [0, 3, 2, 5]):
        tokens = torch.arange(7, 7 + len(ours))[:, None]
        got = model.c_decoder.step(ours, tokens)
        torch.testing.assert_close(got, plain.project(plain.decode(tokens, state=theirs)[:, -1]), rtol=1e-4, atol=1e-4)
        before = [cache.k.clone() for cache in ours.caches]
        for state in (ours, theirs):
            state.keep(torch.tensor(rows), torch.tensor([0, 1, 2, 3]) if len(rows) == 4 else None)
        assert all(torch.equal(cache.k, k) for cache, k in zip(ours.caches, before, strict=True))
    assert len(ours) == len(theirs) == 4
    tokens = torch.arange(9, 13)[:, None]
    want = plain.project(plain.decode(tokens, state=theirs)[:, -1])
    torch.testing.assert_close(model.project(model.decode(tokens, state=ours)[:, -1]), want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        model.c_decoder.step(ours, tokens),
        plain.project(plain.decode(tokens, state=theirs)[:, -1]),
        rtol=1e-4,
        atol=1e-4,
    )


def found_by(model: Any, search: Any, sources: list[list[int]]) -> list[list[int]]:
    return [best[0].tokens for best in generate_tokens(model, sources, search=search, max_tokens=7)]


@pytest.mark.parametrize("kind", ["paper", "features", "features gated"])
@pytest.mark.parametrize("form", ["packed", "int8"])
def test_the_engine_uses_it_and_texts_are_the_same(form: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(kind, form)
    model.c_search = None  # which would take over
    taken: list[int] = []
    step = model.c_decoder.step
    monkeypatch.setattr(model.c_decoder, "step", lambda state, tokens: taken.append(len(tokens)) or step(state, tokens))
    for search in (Greedy(), Beam(3)):
        got = found_by(model, search, texts(4))
        assert max(taken) == search.rows(1) * 4
        model.c_decoder, kept = None, model.c_decoder
        if form == "packed":
            assert found_by(model, search, texts(4)) == got
        model.c_decoder = kept
        assert [found_by(model, search, [text])[0] for text in texts(4)] == got


@pytest.mark.parametrize("kind", ["paper", "features"])
def test_who_watches_the_modules_sees_them_run(kind: str) -> None:
    model = make(kind, "int8")
    with regard.record(model) as recording:
        found_by(model, Greedy(), texts(1))
    assert len(recording.steps("decoder.0.self")) > 1


def test_what_is_not_written_in_c() -> None:
    only_one = {**RANDOM, "exact_heads": ("encoder", "decoder.*.cross", "decoder.1")}
    half = {**RANDOM, "exact_heads": ("encoder", "decoder.*.cross", "decoder.*.self:0,1")}
    for settings in ({"position": "alibi"}, {"qk_norm": True}, {"form": "slice"}, RANDOM, only_one, half):
        config = TransformerConfig(**BASE, **settings, source_vocabulary=9, target_vocabulary=9)  # type: ignore[arg-type]
        assert pack_weights(make_model(config), "int8").c_decoder is None
    config = RecurrentTranslatorConfig(embedding=8, hidden=8, source_vocabulary=9, target_vocabulary=9)
    assert pack_weights(make_model(config), "int8").c_decoder is None
    assert make_c_decoder(make_model(TransformerConfig(**BASE, source_vocabulary=9, target_vocabulary=9))) is None


@torch.inference_mode()
def test_another_draw_is_refused() -> None:
    model = make("features", "packed", translates=False)
    state, _ = states(model, 1, translates=False)
    model.decoder.blocks[1].self_attention.features.draw = (7, 7)
    with pytest.raises(ValueError, match="W is now draw 7 of seed 7"):
        model.c_decoder.step(state, torch.tensor([[5]]))


@pytest.fixture
def nothing_compiled() -> Any:
    c_matrix.compiled.cache_clear()
    yield
    c_matrix.compiled.cache_clear()


def test_without_a_compiler(nothing_compiled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None)
    model = make("paper", "packed")
    assert model.c_decoder is None and len(found_by(model, Greedy(), texts(2))) == 2


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.filterwarnings("ignore:.*cannot compile native:RuntimeWarning")
@pytest.mark.parametrize("trouble", ["broken", "no room", "no home", "switched off"])
def test_troubles(trouble: str, nothing_compiled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    if trouble == "broken":
        source = tmp_path / "native.c"
        source.write_text("int decode_step(")
        monkeypatch.setattr(c_matrix, "SOURCE", source)
    elif trouble == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", no_home)
    elif trouble == "no room":
        place.write_text("a file where the folder should be")
    else:
        monkeypatch.setenv("REGARD_NATIVE", "0")
    assert c_matrix.compiled() is None


def test_it_is_compiled_once(nothing_compiled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert c_matrix.compiled() is not None
    (made,) = (tmp_path / "regard").iterdir()
    c_matrix.compiled.cache_clear()
    monkeypatch.setattr(c_code, "compile_to", None)  # it would fail
    assert c_matrix.compiled() is not None and list((tmp_path / "regard").iterdir()) == [made]


@pytest.mark.parametrize("kind", ["paper", "pre-norm"])
@pytest.mark.parametrize("form", ["packed", "int8"])
def test_weights_that_overflow_are_refused(form: Any, kind: str) -> None:
    model = make(kind, None)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith("decoder") and weight.dim() == 2:
                weight.mul_(1e38 / weight.abs().max())
    model = pack_weights(model, form)
    with pytest.raises(ModelError, match="NaN or infinity"):
        found_by(model, Greedy(), texts(2))


def test_small_numbers_of_others_stay_as_they_are() -> None:
    """A compiler that is told to be fast and loose would have them rounded to zero in the whole process."""
    assert c_matrix.compiled() is not None
    assert float(torch.tensor(1e-40) * 1.0) > 0


def test_threads_do_not_meet() -> None:
    """Two at once, each with states of its own, write what each writes alone."""
    model = make("paper", "int8")
    alone = [found_by(model, Beam(3), [text]) for text in texts(6)]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(5):
            assert [*pool.map(lambda text: found_by(model, Beam(3), [text]), texts(6))] == alone


def test_other_numbers_are_left_to_the_modules() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        config = TransformerConfig(**BASE, source_vocabulary=50, target_vocabulary=50)
        model = pack_weights(make_model(config).to(dtype).eval(), "int8")
        assert model.c_decoder is None and len(found_by(model, Greedy(), texts(2))) == 2


def test_padding_is_not_looked_at() -> None:
    """A source gives the same beside a longer one."""
    model = make("paper", "packed")
    with torch.inference_mode():
        scores: list[Tensor] = []
        for sources in ([[5, 6, 7]], [[5, 6, 7], [9] * 8]):
            state = prefill(model, torch.full((len(sources), 1), 2), encode(model, sources), capacity=4)[1]
            scores.append(model.c_decoder.step(state, torch.full((len(sources), 1), 8))[0])
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-5, atol=1e-5)
