"""Decoding with fixed shapes by Triton's kernels, run by its interpreter on a CPU; on a GPU the kernels as CUDA graphs.

The interpreter is chosen when a kernel is defined, so a process of its own runs this file as a script.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from regard.decoding.engine import generate_tokens, stream_tokens
from regard.decoding.gpu import captured_search
from regard.decoding.gpu.captured_search import search_captured
from regard.decoding.gpu.captured_step import step_captured
from regard.decoding.model_step import encode, prefill
from regard.decoding.requests import make_requests
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Hypothesis, Search
from regard.models.config import TransformerConfig, TransformerLMConfig
from regard.models.language_model import TransformerLM
from regard.models.transformer import Transformer

KINDS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "rotary": {"order": "pre", "norm": "rms", "position": "rotary", "activation": "swiglu", "kv_heads": 1},
    "learned": {"order": "pre", "position": "learned", "max_length": 9, "activation": "gelu", "bias": False},
}
LAUNCHED = {
    *("_embed", "_linear_one_row", "_linear_all_rows", "_add_norm", "_attend"),
    *("_choose_greedy", "_rank_chunk", "_choose_beam"),
}
SOURCES = [[5, 6, 7, 4], [8, 9, 12, 4], [10, 11, 9, 4, 5]]  # similar enough to be written together


def make_model(kind: str, *, translates: bool = True, dim: int = 8, vocabulary: int = 13, layers: int = 1) -> nn.Module:
    """A model whose scores are far enough apart that rounding does not choose."""
    settings: dict[str, Any] = {"layers": layers, "dim": dim, "heads": 2, "hidden": 2 * dim + 2, **KINDS[kind]}
    if "max_length" in settings and dim > 8:
        settings["max_length"] = 40
    torch.manual_seed(1)
    model = (
        Transformer(TransformerConfig(source_vocabulary=vocabulary, target_vocabulary=vocabulary, **settings))
        if translates
        else TransformerLM(TransformerLMConfig(vocabulary=vocabulary, **settings))
    )
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.normal_(std=1.5 * weight.shape[1] ** -0.5)
            else:
                weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def assert_same(found: Sequence[Hypothesis], wanted: Sequence[Hypothesis]) -> None:
    assert [text.tokens for text in found] == [text.tokens for text in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.finished == other.finished
        assert one.logps == pytest.approx(other.logps, abs=1e-4)
        assert one.ranking == pytest.approx(other.ranking, abs=1e-4)


def check(
    kind: str,
    search: Search,
    *,
    alternatives: int = 1,
    translates: bool = True,
    begun: bool = False,
    count: int = 3,
    places: int = 4,
) -> int:
    """As the modules write it, also where texts end early, a batch is not full, places are fewer; how many ended."""
    model = make_model(kind, translates=translates)
    sources = SOURCES[:count] if translates else None
    prefixes = count * [[5, 6] if begun else []]
    options: dict[str, Any] = {"search": search, "alternatives": alternatives, "allow_unknown": False}
    wanted = generate_tokens(model, sources, prefixes=prefixes, max_tokens=[5, 4, 5][:count], **options)
    requests = make_requests(sources, prefixes, [5, 4, 5][:count])
    found = search_captured(model, requests, **options, batch_tokens=places * search.rows(alternatives) * 20)
    assert {*found} == {*range(count)}
    for number, texts in enumerate(wanted):
        assert_same(found[number], texts)
    return sum(text.finished for texts in wanted for text in texts)


@torch.inference_mode()
def check_steps(kind: str, *, translates: bool) -> None:
    """Two texts, each alone in its state, that take turns; then one goes on by the modules."""
    model = make_model(kind, translates=translates)
    prefixes = [torch.tensor([[5, 6, 7]]), torch.tensor([[2]])]
    encoded = [encode(model, [source]) if translates else None for source in SOURCES[:2]]
    twice = [
        [prefill(model, prefix, one, capacity=8)[1] for prefix, one in zip(prefixes, encoded, strict=True)]
        for _ in range(2)
    ]
    for number, token in ((0, 8), (1, 4), (1, 9), (0, 10), (1, 5)):
        tokens = torch.tensor([[token]])
        found = step_captured(model, twice[0][number], tokens)
        wanted = model.project(model.decode(tokens, state=twice[1][number])[:, -1])
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    for number in (0, 1):
        found, wanted = (model.decode(torch.tensor([[7, 8]]), state=states[number]) for states in twice)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    two = torch.tensor([[4], [5]])
    assert step_captured(model, twice[0][0].select(torch.tensor([0, 0])), two) is None  # rows that stand together


def check_short_scores(dtype: torch.dtype) -> None:
    """Scores of 16 bits have keys of their own; a beam chooses as by the same numbers in fp32, also among equals."""
    from regard.decoding.gpu.searches import GpuBeam, bar_tokens

    torch.manual_seed(0)
    scores = torch.randn(6, 5000).to(dtype)
    scores[:, 4990] = scores[:, 7] = scores.amax(1)
    scores[:, 8], scores[:, 9] = 0.0, -0.0
    found = []
    for given in (scores, scores.float()):
        beam = GpuBeam(Beam(3), inputs=2, capacity=4, alternatives=1, device="cpu")
        beam.buffers.scores[:, 1:] = -1.0
        beam.buffers.limits.fill_(4)
        for _ in range(2):
            beam.choose(given, bar_tokens(5000, False, "cpu"))
        found.append(beam.buffers)
    assert {7, 4990} < {*found[0].texts.flatten().tolist()}
    assert all(map(torch.equal, *found))


def check_all(*, whole: bool) -> None:
    """Each kernel with each search, and each kind of model; if `whole`, more of their combinations."""
    from regard.decoding.gpu import cuda_graphs, decoder, support
    from regard.kernels.decode_gpu import linear_triton, step_triton

    cuda_graphs.ROUND_UP_TO = {"source": 4, "capacity": 6}
    linear_triton.COLUMNS_PER_PROGRAM = {2**31: 16}  # fewer programs, each of which takes the interpreter its time
    support.DEVICES, os.environ["REGARD_GRAPHS"] = ("cpu",), "1"
    if whole:
        check_steps("post-norm", translates=True)
    check_steps("rotary", translates=False)
    support.DEVICES = ("cuda",)
    ended = sum(check(kind, Greedy(), count=1) for kind in (KINDS if whole else ["rotary"]))  # one row has its kernel
    ended += check("post-norm", Greedy())
    linear_triton.MAX_SEPARATE_OUTPUTS = 0  # rows together, by tensor cores
    ended += check("rotary", Beam(3, length_penalty=0.3), alternatives=2, begun=True)
    ended += check("learned", Beam(2), alternatives=2, translates=False)
    for dtype in (torch.bfloat16, torch.float16):
        check_short_scores(dtype)
    decoder.MAX_FUSED_ROWS = step_triton.MIN_BUSY_PROGRAMS = 0  # the code for many rows
    if whole:
        ended += check("rotary", Greedy(), translates=False, begun=True)
    ended += check("post-norm", Beam(2), alternatives=2)
    check("learned", Beam(2), places=2, begun=True)  # others enter
    if whole:
        ended += check("learned", Greedy())
        check("post-norm", Greedy(), places=2)
    assert ended > 3


@pytest.mark.parametrize("extent", ["part", pytest.param("whole", marks=pytest.mark.slow)])
def test_the_kernels_write_what_the_modules_write(extent: str, interpret: Callable[..., None]) -> None:
    interpret(__file__, "the same texts", extent)


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_GRAPHS", "1")


@pytest.mark.slow
@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
def test_the_kernels_compile_for_a_gpu(compiled_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes much that the compiler does not."""
    from triton import JITFunction

    from regard.decoding.gpu.captured_search import CapturedSearch, GraphKey
    from regard.kernels.decode_gpu import beam_triton, greedy_triton, linear_triton, norm_triton, step_triton
    from regard.kernels.decode_gpu.dependent_launch_triton import MAX_EARLY_ROWS

    made = {}
    for module in (linear_triton, norm_triton, step_triton, greedy_triton, beam_triton):
        for name, one in vars(module).items():
            if isinstance(one, JITFunction) and name in LAUNCHED:
                made[name] = compiled_kernel(one)
                monkeypatch.setattr(module, name, made[name])
        if module is not norm_triton:
            monkeypatch.setattr(module, "launch_options", lambda x: {"EARLY": len(x) <= MAX_EARLY_ROWS})
    assert {*made} == LAUNCHED
    for kind in KINDS:
        model = make_model(kind, dim=64, vocabulary=5000).to(torch.bfloat16)
        for search, inputs in ((Greedy(), 1), (Beam(3), 2), (Beam(2), 16)):
            with torch.inference_mode():
                CapturedSearch(model, GraphKey(search, 1, inputs, capacity=64, source_length=16)).turn()
    assert all(one.count for one in made.values())


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="CUDA: Triton comes for Linux on x86_64"
)
def test_steps_are_recorded_unless_that_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the CPU in the place of a GPU: whether to record is asked, and nothing is recorded."""
    monkeypatch.setattr("regard.decoding.gpu.support.DEVICES", ("cpu",))
    monkeypatch.delenv("REGARD_GRAPHS")
    assert captured_search.why_not(make_model("post-norm"), Greedy()) is None
    monkeypatch.setenv("REGARD_GRAPHS", "0")
    assert captured_search.why_not(make_model("post-norm"), Greedy()) is not None


def test_a_cpu_records_nothing() -> None:
    assert captured_search.why_not(make_model("post-norm"), Greedy()) is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("translates", [True, False])
def test_graphs_write_what_the_modules_write(kind: str, translates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(kind, translates=translates, dim=64, vocabulary=5000, layers=3).to("cuda")
    noise = torch.Generator().manual_seed(2)
    sources = [torch.randint(4, 5000, (n,), generator=noise).tolist() for n in (3, 30, 17, *range(1, 20))]
    prefixes = None if translates else [source[:2] for source in sources]
    for search in (Greedy(), Beam(4), Beam(5, length_penalty=0.5)):
        for count in (1, 2, 22):
            options: dict[str, Any] = {"search": search, "max_tokens": 20, "batch_tokens": 100_000}
            options |= {"prefixes": None if prefixes is None else prefixes[:count]}
            given = sources[:count] if translates else None
            assert captured_search.why_not(model, search) is None
            found = generate_tokens(model, given, **options)
            with monkeypatch.context() as context:
                context.setenv("REGARD_GRAPHS", "0")
                wanted = generate_tokens(model, given, **options)
            for one, other in zip(found, wanted, strict=True):
                assert_same(one, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_graphs_stream_what_the_modules_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two streams that take turns, with a draw on the host."""
    model = make_model("rotary", translates=False, dim=64, vocabulary=500, layers=2).to("cuda")
    search = Sample(temperature=0.8, top_k=20, seed=3)
    texts = []
    for graphs in ("1", "0"):
        monkeypatch.setenv("REGARD_GRAPHS", graphs)
        streams = [stream_tokens(model, prefix, search=search, max_tokens=30) for prefix in ([5, 6], [7] * 9)]
        texts.append([*zip(*streams, strict=False)])
    assert texts[0] == texts[1] and len(texts[0]) > 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_graphs_follow_the_weights() -> None:
    """Those changed in place are read by what was recorded; others are recorded anew."""
    model = make_model("post-norm", dim=32, vocabulary=50).to("cuda")
    for change in (lambda: None, lambda: model.target.embedding.weight.data.mul_(-1.0), lambda: model.double().float()):
        change()
        other = make_model("post-norm", dim=32, vocabulary=50)
        other.load_state_dict(model.state_dict())
        found, wanted = (generate_tokens(one, SOURCES, max_tokens=9) for one in (model, other))
        for one, text in zip(found, wanted, strict=True):
            assert_same(one, text)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
def test_what_cannot_be_recorded_is_left_to_the_modules() -> None:
    model = make_model("post-norm").to("cuda")
    assert captured_search.why_not(model, Sample()) is not None
    assert captured_search.why_not(model, Greedy(rules=(MinTokens(2),))) is not None
    with torch.autocast("cuda"):
        assert captured_search.why_not(model, Greedy()) is not None
    assert captured_search.why_not(model, Greedy()) is None
    model.register_forward_hook(lambda *_: None)
    assert captured_search.why_not(model, Greedy()) is not None


if __name__ == "__main__":
    check_all(whole="part" not in sys.argv)
    print("the same texts")
