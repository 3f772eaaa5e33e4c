"""The weights of regard's language models in the formats of transformers (GPT-2, GPT-NeoX, Llama) and of llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from regard.models.language_model import TransformerLM
from regard.text.tokenizers.special_tokens import END, PAD, SPECIAL_TOKENS, START

CONTROL_TOKEN, NORMAL_TOKEN = 3, 1  # types of tokens in a GGUF file


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
        )
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
        )
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
        )
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
    writer.add_token_types([CONTROL_TOKEN if word in SPECIAL_TOKENS else NORMAL_TOKEN for word in words])
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
