"""Those who translate in decode_real.py, from text to text: regard, CTranslate2 (same weights) and transformers.

All use regard's tokenizer. regard does more for each text, because its users get that: it carries numbers and rare
names over, copies unknown words, looks for degenerate output and returns scores, tokens and words.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch

import regard
from benchmarks.decode.decode_peers import _fill_layer, _fill_norm
from regard.api.translator import Translator
from regard.models.transformer import Transformer
from regard.positions.learned import Learned
from regard.positions.rotary import Rotary
from regard.positions.sinusoids import Sinusoidal
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START

FILE_BATCH = 32  # of CTranslate2, which sorts a file by length itself, and of transformers
TABLE_POSITIONS = 512  # of sinusoidal positions, which CTranslate2 reads from a table


class Contender(Protocol):
    """Translates texts with a beam; 1 is greedy search."""

    def translate(self, texts: Sequence[str], beam: int) -> list[str]:
        """Return the translations in order."""

    def turn(self, threads: int, *, is_file: bool) -> Any:
        """A context in which the contender is loaded, with so many threads."""


class Regard:
    """regard as users call it: Translator.translate with all defaults."""

    def __init__(self, model: str, form: str) -> None:
        self.translator: Any = regard.load(model, device="cpu", dtype="int8" if form == "int8" else "float32")
        if not isinstance(self.translator, Translator):
            raise SystemExit(f"{model} does not translate")

    @property
    def statistics(self) -> Any:
        """What the C search took so far; None if the model is decoded step by step."""
        search = getattr(self.translator.decoding_model, "c_search", None)
        return None if search is None else search.statistics

    def translate(self, texts: Sequence[str], beam: int) -> list[str]:
        return [result.text for result in self.translator.translate(list(texts), beam=beam)]

    def reads_all(self, text: str) -> bool:
        """Whether the model reads every token of a text: nothing is carried over to the translation."""
        tokenizer = self.translator.source_tokenizer
        return self.translator.translate(text, beam=1).source_ids == [*tokenizer.encode(text), END]

    @contextmanager
    def turn(self, threads: int, *, is_file: bool) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


class CTranslate2:
    """CTranslate2, which rounds to int8 as it loads; for a file it gets one translator per thread, its fastest way."""

    def __init__(self, ours: Translator, form: str, folder: Path) -> None:
        self.source, self.target = ours.source_tokenizer, ours.target_tokenizer
        self.names = [name_tokens(tokenizer.size) for tokenizer in (self.source, self.target)]
        self.numbers = {name: number for number, name in enumerate(self.names[1])}
        self.folder, self.type = folder, "int8" if form == "int8" else "float32"
        self.translator: Any = None
        self.is_file = False

    @contextmanager
    def turn(self, threads: int, *, is_file: bool) -> Iterator[None]:
        """Load it for its turn only: one that has worked slows torch down for as long as it lives."""
        import ctranslate2

        split = {"inter_threads": threads if is_file else 1, "intra_threads": 1 if is_file else threads}
        self.translator = ctranslate2.Translator(str(self.folder), device="cpu", compute_type=self.type, **split)
        self.is_file = is_file
        try:
            yield
        finally:
            self.translator = None

    def translate(self, texts: Sequence[str], beam: int) -> list[str]:
        sources = [[self.names[0][token] for token in [*self.source.encode(text), END]] for text in texts]
        results = self.translator.translate_batch(
            sources, beam_size=beam, length_penalty=1.0, max_batch_size=FILE_BATCH if self.is_file else 0
        )
        return [self.target.decode([self.numbers[name] for name in result.hypotheses[0]]) for result in results]


class Transformers:
    """A Marian model of the same sizes with random weights: transformers has none with rotary positions.

    It generates as many tokens for each batch as the longest of regard's translations has.
    """

    def __init__(self, ours: Translator, texts: Sequence[str]) -> None:
        from transformers import MarianConfig, MarianMTModel

        self.source, self.target = ours.source_tokenizer, ours.target_tokenizer
        self.lengths = dict(zip(texts, (len(result.ids) + 1 for result in ours.translate(list(texts))), strict=True))
        config: Any = ours.model.config
        sizes = {"layers": (config.layers, config.decoder_layers or config.layers)}
        sizes |= {"attention_heads": (config.heads, config.heads), "ffn_dim": (config.hidden, config.hidden)}
        torch.manual_seed(0)
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=self.target.size,
                d_model=config.dim,
                **{f"encoder_{name}": size for name, (size, _) in sizes.items()},
                **{f"decoder_{name}": size for name, (_, size) in sizes.items()},
                activation_function="relu",
                scale_embedding=True,
                max_position_embeddings=TABLE_POSITIONS,
                pad_token_id=PAD,
                eos_token_id=END,
                decoder_start_token_id=START,
                forced_eos_token_id=None,
            )
        ).eval()

    @contextmanager
    def turn(self, threads: int, *, is_file: bool) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def translate(self, texts: Sequence[str], beam: int) -> list[str]:
        batches = [texts[first : first + FILE_BATCH] for first in range(0, len(texts), FILE_BATCH)]
        return [text for batch in batches for text in self._translate_batch(batch, beam)]

    @torch.inference_mode()
    def _translate_batch(self, texts: Sequence[str], beam: int) -> list[str]:
        sources = [torch.tensor([*self.source.encode(text), END]) for text in texts]
        source = torch.nn.utils.rnn.pad_sequence(sources, batch_first=True, padding_value=PAD)
        length = max(self.lengths[text] for text in texts)
        tokens = self.model.generate(
            source,
            attention_mask=(source != PAD).long(),
            do_sample=False,
            num_beams=beam,
            min_new_tokens=length,
            max_new_tokens=length,
        )
        return [self.target.decode(text[1:]) for text in tokens.tolist()]


def name_tokens(size: int) -> list[str]:
    """CTranslate2 takes and gives tokens as text."""
    return [*SPECIAL_TOKENS, *(f"t{number}" for number in range(len(SPECIAL_TOKENS), size))]


def write_ctranslate2(model: Transformer, folder: Path, *, sizes: tuple[int, int]) -> None:
    """Write the weights of a Transformer as CTranslate2 reads them, in fp32; SystemExit where it has no such model."""
    from ctranslate2.specs import transformer_spec

    config = model.config
    if config.activation != "relu" or config.norm != "layer" or (config.kv_heads or config.heads) != config.heads:
        raise SystemExit("only models with ReLU, LayerNorm and equally many key-value heads are converted here")
    position = model.decoder.blocks[0].self_attention.position
    settings: dict[str, Any] = {"pre_norm": config.order == "pre"}
    if isinstance(position, Rotary):
        settings |= {"rotary_dim": position.rotated_dim, "rotary_interleave": position.layout == "interleaved"}
    encoder = transformer_spec.TransformerEncoderSpec(len(model.encoder.blocks), config.heads, **settings)
    decoder = transformer_spec.TransformerDecoderSpec(len(model.decoder.blocks), config.heads, **settings)
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    encoder.embeddings[0].weight = model.source.embedding.weight.detach()
    decoder.embeddings.weight, decoder.projection.weight = (
        weight.detach() for weight in (model.target.embedding.weight, model.output_table[0])
    )
    for part, stack, side in ((encoder, model.encoder, model.source), (decoder, model.decoder, model.target)):
        for layer, block in zip(part.layer, stack.blocks, strict=True):
            _fill_layer(layer, block)
        if stack.norm is not None:
            _fill_norm(part.layer_norm, stack.norm)
        if isinstance(side.position, Sinusoidal):
            part.position_encodings.encodings = side.position.rows(torch.arange(TABLE_POSITIONS), torch.float32)
        elif isinstance(side.position, Learned):
            part.position_encodings.encodings = side.position.table.detach()
    spec.register_source_vocabulary(name_tokens(sizes[0]))
    spec.register_target_vocabulary(name_tokens(sizes[1]))
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def converted(translator: Translator) -> tempfile.TemporaryDirectory[str]:
    """Return a folder with CTranslate2's form of a float32 translator."""
    folder = tempfile.TemporaryDirectory()
    sizes = translator.source_tokenizer.size, translator.target_tokenizer.size
    write_ctranslate2(translator.model, Path(folder.name), sizes=sizes)
    return folder
