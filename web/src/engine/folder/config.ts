// config.json of a model folder, with the defaults of settings that it leaves out.
import type { Json } from "../../state/trace";

/** The settings of Transformer blocks; regard/models/config/stack.py. */
export interface StackSettings {
  dim: number;
  heads: number;
  groups: number; // heads of keys and values
  keyWidth: number;
  valueWidth: number;
  activation: string;
  norm: string;
  eps: number;
  order: string;
  position: string;
  position_start: number;
  frequency_start: number;
  position_base: number;
  position_layout: string;
  rope_base: number;
  rope_layout: string;
  rope_fraction: number;
  rope_factor: number; // divides the frequencies
  score: string;
  form: string;
  scale_embedding: boolean;
  window: number | null;
}

export interface ModelConfig {
  kind: string;
  /** The settings of the network as in config.json. */
  model: Json;
  /** The rest of config.json. */
  info: Json;
}

export function readConfig(content: Json): ModelConfig {
  return { kind: content.kind, model: content.model, info: content };
}

export function stackSettings(model: Json): StackSettings {
  const heads: number = model.heads;
  return {
    dim: model.dim,
    heads,
    groups: model.kv_heads ?? heads,
    keyWidth: model.d_k ?? model.dim / heads,
    valueWidth: model.d_v ?? model.dim / heads,
    activation: model.activation,
    norm: model.norm,
    eps: model.norm_eps ?? (model.norm === "rms" ? 1e-6 : 1e-5),
    order: model.order,
    position: model.position,
    position_start: model.position_start ?? 0,
    frequency_start: model.frequency_start ?? 0,
    position_base: model.position_base ?? 10000,
    position_layout: model.position_layout ?? "interleaved",
    rope_base: model.rope_base ?? 10000,
    rope_layout: model.rope_layout ?? "halves",
    rope_fraction: model.rope_fraction ?? 1,
    rope_factor: model.rope_scaling === "linear" ? model.rope_factor : 1,
    score: model.score ?? "scaled",
    form: model.form ?? "projected",
    scale_embedding: model.scale_embedding ?? true,
    window: model.window ?? null,
  };
}

/** The number of layers of each stack of blocks or recurrent layers. */
export function stacks({ kind, model }: ModelConfig): Record<string, number> {
  if (kind === "transformer") return { encoder: model.layers, decoder: model.decoder_layers ?? model.layers };
  if (kind === "encoder" || kind === "classifier") return { encoder: model.layers };
  if (kind.startsWith("rnn-") && kind !== "rnn-lm") return { encoder: model.layers, decoder: model.layers };
  return { decoder: model.layers };
}
