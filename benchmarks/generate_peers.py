"""Language models for generate_cpu.py: regard's own with random weights, and the same weights in other libraries.

All generate a fixed number of tokens after prompts of one length. The rows of PAD, START and END in the table are zero,
so their logits are 0: with hundreds of random logits, they are never among the 40 most probable tokens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.models.config import TransformerLMConfig
from regard.models.language_model import TransformerLM
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START

Tokens = Sequence[int]
TOP_K, TEMPERATURE = 40, 0.8
BATCH_TOKENS = 2**20  # all streams in one batch
SHAPES = {
    "gpt2": TransformerLMConfig(
        vocabulary=50_257, layers=12, dim=768, heads=12, hidden=3072, activation="gelu-tanh", order="pre",
        position="learned", scale_embedding=False,
    ),
    "llama": TransformerLMConfig(
        vocabulary=32_000, layers=12, dim=768, heads=12, kv_heads=4, hidden=2048, activation="swiglu", norm="rms",
        order="pre", position="rotary", bias=False, tie_output=False, scale_embedding=False,
    ),
    "quick": TransformerLMConfig(
        vocabulary=320, layers=2, dim=64, heads=4, kv_heads=2, hidden=96, activation="swiglu", norm="rms",
        order="pre", position="rotary", bias=False, tie_output=False, scale_embedding=False,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One measurement: so many streams, each with a prompt and a continuation of so many tokens."""

    streams: int
    threads: int
    sampled: bool
    prompt: int = 32
    length: int = 32


class Contender(Protocol):
    """A library that continues prompts by exactly `cell.length` tokens."""

    def generate(self, prompts: Sequence[Tokens], cell: Cell) -> list[list[int]]: ...


def make_model(config: TransformerLMConfig, *, seed: int = 0) -> TransformerLM:
    """Return a language model with random weights, biases and gains included, that never generates a special token."""
    model = TransformerLM(config).eval()
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.normal_(std=weight.shape[1] ** -0.5, generator=noise)
            else:
                weight.normal_(mean=1.0 if name.endswith("norm.weight") else 0.0, std=0.1, generator=noise)
        model.output_table[0][[PAD, START, END]] = 0.0
    return model


def make_prompts(config: TransformerLMConfig, cell: Cell, *, seed: int = 1) -> list[list[int]]:
    """Return random prompts of one length, so that nobody pads."""
    noise = torch.Generator().manual_seed(seed)
    shape = cell.streams, cell.prompt
    return torch.randint(len(SPECIAL_TOKENS), config.vocabulary, shape, generator=noise).tolist()


class Regard:
    """regard with weights packed for a CPU, in float32 or int8."""

    def __init__(self, model: TransformerLM, form: str) -> None:
        self.model = pack_weights(deepcopy(model), form)  # type: ignore[arg-type]

    def generate(self, prompts: Sequence[Tokens], cell: Cell) -> list[list[int]]:
        search = Sample(temperature=TEMPERATURE, top_k=TOP_K) if cell.sampled else Greedy()
        results = generate_tokens(
            self.model, None, search=search, prefixes=prompts, max_tokens=cell.length, batch_tokens=BATCH_TOKENS
        )
        return [texts[0].tokens for texts in results]


class Transformers:
    """transformers: GPT-2 or Llama with our weights, in float32, with its cache."""

    def __init__(self, model: TransformerLM) -> None:
        self.model = PEER_MODELS[model.config.norm, model.config.position](model)

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Tokens], cell: Cell) -> list[list[int]]:
        inputs = torch.tensor(prompts)
        sampling = {"temperature": TEMPERATURE, "top_k": TOP_K} if cell.sampled else {}
        outputs = self.model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            do_sample=cell.sampled,
            max_new_tokens=cell.length,
            use_cache=True,
            eos_token_id=None,
            pad_token_id=PAD,
            **sampling,
        )
        return outputs[:, inputs.shape[1] :].tolist()


class LlamaCpp:
    """llama.cpp (package xllamacpp) with our weights in F32 or Q8_0, one slot of its server for each stream."""

    def __init__(self, model: TransformerLM, cell: Cell, storage: str) -> None:
        import xllamacpp

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            write_gguf(model, path, storage)
            params = xllamacpp.CommonParams()
            params.model.path = str(path)
            params.n_parallel = cell.streams
            params.n_ctx = cell.streams * 256 * -(-(cell.prompt + cell.length) // 256)  # slots are multiples of 256
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = cell.threads
            params.verbosity = -1
            self.server = xllamacpp.Server(params)

    def generate(self, prompts: Sequence[Tokens], cell: Cell) -> list[list[int]]:
        request = {
            "prompt": [*prompts],
            "n_predict": cell.length,
            "temperature": TEMPERATURE if cell.sampled else 0.0,
            "top_k": TOP_K if cell.sampled else 1,
            "samplers": ["top_k", "temperature"],
            "cache_prompt": False,
            "return_tokens": True,
            "ignore_eos": True,
        }
        return tokens_of(self.server.handle_completions(request))


def tokens_of(answer: Any) -> list[list[int]]:
    """Return the tokens of each choice. Their texts are their numbers, separated by spaces."""
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    return [[int(word[1:]) for word in choice["text"].split()] for choice in choices]


def make_gpt2(model: TransformerLM) -> Any:
    """Return the GPT-2 of transformers with our weights; its matrices are transposed."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = model.config
    peer = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocabulary,
            n_positions=config.max_length,
            n_embd=config.dim,
            n_layer=config.layers,
            n_head=config.heads,
            n_inner=config.hidden,
            activation_function="gelu_new",
            bos_token_id=START,
            eos_token_id=END,
        )  # fmt: skip
    ).eval()
    table = model.input.embedding.weight
    weights = {"transformer.wte.weight": table, "lm_head.weight": table}
    weights["transformer.wpe.weight"] = model.input.position.table
    for number, block in enumerate(model.decoder.blocks):
        modules = {
            "ln_1": block.self_norm, "ln_2": block.feed_norm, "attn.c_attn": block.self_attention.input,
            "attn.c_proj": block.self_attention.output, "mlp.c_fc": block.feed_forward.up,
            "mlp.c_proj": block.feed_forward.down,
        }  # fmt: skip
        for name, module in modules.items():
            weights[f"transformer.h.{number}.{name}.weight"] = module.weight.T if "c_" in name else module.weight
            weights[f"transformer.h.{number}.{name}.bias"] = module.bias
    weights["transformer.ln_f.weight"], weights["transformer.ln_f.bias"] = (
        model.decoder.norm.weight,
        model.decoder.norm.bias,
    )
    peer.load_state_dict(weights)
    return peer


def make_neox(model: TransformerLM) -> Any:
    """Return the GPT-NeoX of transformers with the weights of a rotary model with LayerNorm, such as shakespeare."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = model.config
    peer = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.dim,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.hidden,
            hidden_act="gelu",
            rotary_pct=1.0,
            use_parallel_residual=False,
            tie_word_embeddings=False,
            max_position_embeddings=config.max_length,
            layer_norm_eps=model.decoder.norm.eps,
            bos_token_id=START,
            eos_token_id=END,
        )  # fmt: skip
    ).eval()
    table = model.input.embedding.weight
    weights = {
        "gpt_neox.embed_in.weight": table * (config.dim**0.5 if config.scale_embedding else 1.0),
        "lm_head.weight": table,
        "gpt_neox.final_layer_norm.weight": model.decoder.norm.weight,
        "gpt_neox.final_layer_norm.bias": model.decoder.norm.bias,
    }
    for number, block in enumerate(model.decoder.blocks):
        layer, attention = f"gpt_neox.layers.{number}", block.self_attention
        for part in ("weight", "bias"):  # ours: all queries, all keys, all values; theirs: the three of each head
            stacked = getattr(attention.input, part).unflatten(0, (3, config.heads, -1))
            weights[f"{layer}.attention.query_key_value.{part}"] = stacked.transpose(0, 1).flatten(0, 2)
        modules = {
            "attention.dense": attention.output, "mlp.dense_h_to_4h": block.feed_forward.up,
            "mlp.dense_4h_to_h": block.feed_forward.down, "input_layernorm": block.self_norm,
            "post_attention_layernorm": block.feed_norm,
        }  # fmt: skip
        for name, module in modules.items():
            weights |= {f"{layer}.{name}.weight": module.weight, f"{layer}.{name}.bias": module.bias}
    peer.load_state_dict(weights)
    return peer


def make_llama(model: TransformerLM) -> Any:
    """Return the Llama of transformers with our weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = model.config
    peer = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.dim,
            intermediate_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            rms_norm_eps=model.decoder.norm.eps,
            tie_word_embeddings=False,
            bos_token_id=START,
            eos_token_id=END,
            pad_token_id=PAD,
        )  # fmt: skip
    ).eval()
    weights = {
        "model.embed_tokens.weight": model.input.embedding.weight,
        "model.norm.weight": model.decoder.norm.weight,
        "lm_head.weight": model.output.weight,
    }
    names = {
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "output": "self_attn.o_proj",
        "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "self_norm": "input_layernorm",
        "feed_norm": "post_attention_layernorm",
    }  # fmt: skip
    for number, block in enumerate(model.decoder.blocks):
        for name, weight in llama_weights(block).items():
            weights[f"model.layers.{number}.{names[name]}.weight"] = weight
    peer.load_state_dict(weights)
    return peer


PEER_MODELS = {("layer", "learned"): make_gpt2, ("layer", "rotary"): make_neox, ("rms", "rotary"): make_llama}


def llama_weights(block: Any) -> dict[str, Tensor]:
    """Return the matrices and gains of a block of the Llama shape, by their roles."""
    attention, feed = block.self_attention, block.feed_forward
    sizes = attention.input.sizes
    queries, keys = sizes.heads * sizes.d_k, sizes.kv_heads * sizes.d_k
    q, k, v = attention.input.weight.split([queries, keys, keys])
    gate, up = feed.up.weight.chunk(2)
    return {
        "q": q, "k": k, "v": v, "output": attention.output.weight, "gate": gate, "up": up, "down": feed.down.weight,
        "self_norm": block.self_norm.weight, "feed_norm": block.feed_norm.weight,
    }  # fmt: skip


def write_gguf(model: TransformerLM, path: Path, storage: str) -> None:
    """Write a model of the Llama shape as a GGUF file, with matrices in F32 or Q8_0."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_length)
    writer.add_embedding_length(config.dim)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_rope_dimension_count(config.dim // config.heads)
    writer.add_layer_norm_rms_eps(model.decoder.norm.eps)
    writer.add_vocab_size(config.vocabulary)
    words = [*SPECIAL_TOKENS, *(f"▁t{number}" for number in range(len(SPECIAL_TOKENS), config.vocabulary))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([0.0] * len(words))
    writer.add_token_types([3] * len(SPECIAL_TOKENS) + [1] * (len(words) - len(SPECIAL_TOKENS)))  # control, normal
    writer.add_bos_token_id(START)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(False)
    kind = gguf.GGMLQuantizationType[storage]

    def add(name: str, weight: Tensor) -> None:
        numbers = weight.detach().float().numpy()
        if numbers.ndim == 1 or storage == "F32":
            writer.add_tensor(name, numbers)
        else:
            writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)

    add("token_embd.weight", model.input.embedding.weight)
    add("output_norm.weight", model.decoder.norm.weight)
    add("output.weight", model.output.weight)
    names = {
        "q": "attn_q", "k": "attn_k", "v": "attn_v", "output": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
        "down": "ffn_down", "self_norm": "attn_norm", "feed_norm": "ffn_norm",
    }  # fmt: skip
    head_counts = {"q": config.heads, "k": config.kv_heads}
    for number, block in enumerate(model.decoder.blocks):
        for name, weight in llama_weights(block).items():
            rows = interleaved(weight, head_counts[name]) if name in head_counts else weight
            add(f"blk.{number}.{names[name]}.weight", rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of queries or keys: llama.cpp rotates neighbouring columns, regard those half a head apart."""
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape).contiguous()
