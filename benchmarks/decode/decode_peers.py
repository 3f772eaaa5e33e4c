"""Those who decode in decode_cpu.py: regard, CTranslate2 and transformers, all with the weights of one model of ours.

The weights are drawn here and written into the others' own formats here, so that nothing stands between.

    V vocabulary   D width   B sources
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import StackedProjection
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.layers.block import Block
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.positions.sinusoids import sinusoidal
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START

Tokens = Sequence[int]

LOW = -30.0  # what is added to the logits of PAD, START and END
BATCH_TOKENS = 2**20  # a whole batch at once: none is to be cut


@dataclass(frozen=True)
class Setting:
    """The size of the model, and how long its sources and texts are."""

    name: str
    layers: int
    dim: int
    heads: int
    hidden: int
    vocabulary: int
    source: int = 21
    length: int = 24


class Contender(Protocol):
    """Writes exactly `setting.length` tokens for each source."""

    def generate(self, sources: Sequence[Tokens], beam: int, *, length_penalty: float = 1.0) -> list[list[int]]:
        """The best text for each source; beam 1 is greedy search."""

    def turn(self) -> AbstractContextManager[object]:
        """Loaded inside the block, and out of the others' way after it."""


def make_model(setting: Setting, *, seed: int = 0) -> Transformer:
    """Our Transformer with random weights, which never wants to write PAD, START or END.

    A quarter of the last norm's columns are constant, and there the rows of the three tokens point the other way. So
    all write as long as they may, and none has to spend time on barring END.

    All else is drawn so that a part that is left out or mixed up shows in the text, biases and gains too. With equal
    shares for all, a text would repeat one word: so cross-attention is sharp, a sublayer adds less than it gets, and
    the gains of the last norm bear any sign, which keeps a word's row from calling for the same word again.
    """
    model = Transformer(
        TransformerConfig(
            layers=setting.layers,
            dim=setting.dim,
            heads=setting.heads,
            hidden=setting.hidden,
            source_vocabulary=setting.vocabulary,
            target_vocabulary=setting.vocabulary,
            share_embeddings=True,
        )
    ).eval()
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.normal_(std=weight.shape[1] ** -0.5, generator=noise)
            else:
                weight.normal_(mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.1, generator=noise)
            if name.endswith(("output.weight", "down.weight")):
                weight *= 0.35
            if name.endswith("cross_attention.input.weight"):
                weight[: 2 * setting.dim] *= 4.0  # W_Q and W_K
        last = model.decoder.blocks[-1].feed_norm
        last.weight.normal_(generator=noise)
        constant = setting.dim // 4
        last.weight[:constant], last.bias[:constant] = 0.0, 0.2
        model.target.embedding.weight[[PAD, START, END], :constant] += LOW / (0.2 * constant)
    return model


def make_sources(setting: Setting, count: int, *, seed: int = 1) -> list[list[int]]:
    """Random sentences of one length, so that nobody pads."""
    noise = torch.Generator().manual_seed(seed)
    return torch.randint(len(SPECIAL_TOKENS), setting.vocabulary, (count, setting.source), generator=noise).tolist()


class Ours:
    """regard: its engine on any model that it decodes."""

    def __init__(self, model: nn.Module, setting: Setting) -> None:
        self.model, self.setting = model, setting

    def generate(self, sources: Sequence[Tokens], beam: int, *, length_penalty: float = 1.0) -> list[list[int]]:
        outputs = generate_tokens(
            self.model,
            sources,
            search=Greedy() if beam == 1 else Beam(beam, length_penalty=length_penalty),
            max_tokens=self.setting.length,
            batch_tokens=BATCH_TOKENS,
        )
        return [texts[0].tokens for texts in outputs]

    def turn(self) -> AbstractContextManager[object]:
        return nullcontext()


class CTranslate2:
    """CTranslate2 with its weights in fp32 or int8, which it rounds as it loads them."""

    def __init__(self, model: Transformer, setting: Setting, *, dtype: str, threads: int) -> None:
        self.setting, self.names = setting, token_names(setting.vocabulary)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.dtype, self.threads, self.translator = dtype, threads, None  # type: str, int, Any
        self.folder = tempfile.TemporaryDirectory()
        write_ctranslate2(model, setting, Path(self.folder.name))

    @contextmanager
    def turn(self) -> Iterator[Any]:
        """The translator, there only meanwhile: one that has worked slows torch down for as long as it lives."""
        import ctranslate2

        if self.translator is not None:
            yield self.translator
            return
        self.translator = ctranslate2.Translator(
            self.folder.name, device="cpu", compute_type=self.dtype, inter_threads=1, intra_threads=self.threads
        )
        try:
            yield self.translator
        finally:
            self.translator = None

    def generate(self, sources: Sequence[Tokens], beam: int, *, length_penalty: float = 1.0) -> list[list[int]]:
        with self.turn() as translator:
            outputs = translator.translate_batch(
                [[self.names[token] for token in source] for source in sources],
                beam_size=beam,
                length_penalty=length_penalty,
                max_decoding_length=self.setting.length,
                return_scores=False,
            )
        return [[self.numbers[name] for name in result.hypotheses[0]] for result in outputs]

    def logps(self, sources: Sequence[Tokens], targets: Sequence[Tokens]) -> Tensor:
        """The log-probability of each token of the targets, and of END behind them, (B, m + 1)."""
        named = ([[self.names[token] for token in text] for text in texts] for texts in (sources, targets))
        with self.turn() as translator:
            return torch.tensor([scored.log_probs for scored in translator.score_batch(*named)])


class Transformers:
    """transformers: its Marian model, in fp32."""

    def __init__(self, model: Transformer, setting: Setting) -> None:
        self.model, self.setting = make_marian(model, setting), setting

    @torch.inference_mode()
    def generate(self, sources: Sequence[Tokens], beam: int, *, length_penalty: float = 1.0) -> list[list[int]]:
        source = torch.tensor(sources, device=self.model.device)
        outputs = self.model.generate(
            source,
            attention_mask=torch.ones_like(source),
            do_sample=False,
            num_beams=beam,
            **({} if beam == 1 else {"length_penalty": length_penalty}),
            max_new_tokens=self.setting.length,
            use_cache=True,
        )
        return outputs[:, 1:].tolist()  # START is given back

    def turn(self) -> AbstractContextManager[object]:
        return nullcontext()

    @torch.inference_mode()
    def logits(self, sources: Sequence[Tokens], inputs: Tensor) -> Tensor:
        """What follows each of the inputs (B, m), as logits (B, m, V)."""
        return self.model(torch.tensor(sources, device=inputs.device), decoder_input_ids=inputs).logits


def token_names(vocabulary: int) -> list[str]:
    """CTranslate2 takes and gives tokens as text."""
    return [*SPECIAL_TOKENS, *(f"t{number}" for number in range(len(SPECIAL_TOKENS), vocabulary))]


def write_ctranslate2(model: Transformer, setting: Setting, folder: Path) -> None:
    """Write our weights as a model of CTranslate2's, in fp32."""
    from ctranslate2 import specs

    spec = specs.TransformerSpec.from_config(setting.layers, setting.heads, pre_norm=False)
    table, positions = model.target.embedding.weight, positions_of(setting)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = table.detach()
    for part, blocks in ((spec.encoder, model.encoder.blocks), (spec.decoder, model.decoder.blocks)):
        part.position_encodings.encodings = positions
        for layer, block in zip(part.layer, blocks, strict=True):
            _fill_layer(layer, block)
    for register in (spec.register_source_vocabulary, spec.register_target_vocabulary):
        register(token_names(setting.vocabulary))
    spec.validate()
    spec.optimize()  # the three tables are one
    spec.save(str(folder))


def _fill_layer(layer: Any, block: Block) -> None:
    _fill_attention(layer.self_attention, block.self_attention, block.self_norm, parts=(3,))
    if block.cross_attention is not None:
        _fill_attention(layer.attention, block.cross_attention, block.cross_norm, parts=(1, 2))
    _fill(layer.ffn.linear_0, block.feed_forward.up)
    _fill(layer.ffn.linear_1, block.feed_forward.down)
    _fill_norm(layer.ffn.layer_norm, block.feed_norm)


def _fill_attention(spec: Any, attention: MultiHeadAttention, norm: nn.Module, *, parts: tuple[int, ...]) -> None:
    """Its matrices: of q, k and v together, or of q and of k and v; then that of the output."""
    rows = [part * attention.dim for part in parts]
    weights, biases = attention.input.weight.split(rows), attention.input.bias.split(rows)
    for linear, weight, bias in zip(spec.linear, weights, biases, strict=False):
        linear.weight, linear.bias = weight.detach(), bias.detach()
    _fill(spec.linear[-1], attention.output)
    _fill_norm(spec.layer_norm, norm)


def _fill(spec: Any, linear: nn.Linear) -> None:
    spec.weight, spec.bias = linear.weight.detach(), linear.bias.detach()


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma, spec.beta = norm.weight.detach(), norm.bias.detach()


def make_marian(model: Transformer, setting: Setting) -> Any:
    """The Marian model of transformers with our weights."""
    from transformers import MarianConfig, MarianMTModel

    sides = ("encoder", "decoder")
    marian = MarianMTModel(
        MarianConfig(
            vocab_size=setting.vocabulary,
            d_model=setting.dim,
            **{f"{side}_layers": setting.layers for side in sides},
            **{f"{side}_attention_heads": setting.heads for side in sides},
            **{f"{side}_ffn_dim": setting.hidden for side in sides},
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=max(setting.source, setting.length) + 1,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
        )
    ).eval()
    weights = {
        "final_logits_bias": torch.zeros(1, setting.vocabulary),
        "lm_head.weight": model.target.embedding.weight,
        "model.shared.weight": model.target.embedding.weight,
    }
    for side in sides:
        weights[f"model.{side}.embed_tokens.weight"] = model.target.embedding.weight
        weights[f"model.{side}.embed_positions.weight"] = positions_of(setting)
        for number, block in enumerate(getattr(model, side).blocks):
            layer = _marian_layer(block)
            weights |= {f"model.{side}.layers.{number}.{name}": weight for name, weight in layer.items()}
    marian.load_state_dict(weights)
    return marian


def _marian_layer(block: Block) -> dict[str, Tensor]:
    """A block's weights under Marian's names."""
    modules: dict[str, nn.Module] = {
        "self_attn_layer_norm": block.self_norm,
        "fc1": block.feed_forward.up,
        "fc2": block.feed_forward.down,
        "final_layer_norm": block.feed_norm,
        "self_attn.out_proj": block.self_attention.output,
    }
    inputs: dict[str, StackedProjection] = {"self_attn": block.self_attention.input}
    if block.cross_attention is not None:
        inputs["encoder_attn"] = block.cross_attention.input
        modules |= {"encoder_attn.out_proj": block.cross_attention.output, "encoder_attn_layer_norm": block.cross_norm}
    weights = {}
    for name, module in modules.items():
        weights |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
    for name, stacked in inputs.items():
        for letter, weight, bias in zip("qkv", stacked.weight.chunk(3), stacked.bias.chunk(3), strict=True):
            weights |= {f"{name}.{letter}_proj.weight": weight, f"{name}.{letter}_proj.bias": bias}
    return weights


def positions_of(setting: Setting) -> Tensor:
    """The table of positions as ours has it, sines and cosines interleaved; both others take any table."""
    return sinusoidal(max(setting.source, setting.length) + 1, setting.dim)
