// The Transformers: encoder-decoder, language model, and encoders of sentences. regard/models; E3 to E8, E10, A3.
import { Matrix, linear } from "../arrays/matrix";
import { stackSettings, stacks, type ModelConfig, type StackSettings } from "../folder/config";
import type { Attention, KeyValueCache } from "./attention";
import { Linear, type Parameters } from "./parameters";
import { Stack, TokenInput, wholeText, type StackRecord } from "./stack";
import type { Decoding, HeadOff, Layers, TextModel } from "./text_model";

/** A hypothesis: the places of its tokens in the caches. */
type Places = Int32Array;

/** The encoder of a translator, a classifier or a sentence encoder. */
export class Encoder {
  constructor(
    readonly input: TokenInput,
    readonly stack: Stack,
    readonly settings: StackSettings,
  ) {}

  /** The vectors (n, p) of tokens, and what the layers computed. */
  run(tokens: number[], record?: StackRecord, end?: number): Matrix {
    const reading = wholeText(tokens.length, false, this.settings.window);
    const x = this.input.apply(tokens, reading.positions);
    return this.stack.run(x, reading, this.stack.newCaches(), null, record, end);
  }
}

export class Transformer implements TextModel {
  readonly settings: StackSettings;
  readonly encoder: Encoder | null;
  readonly input: TokenInput;
  readonly decoder: Stack;
  readonly vocabulary: number;
  readonly maxPositions: number | null;
  private readonly output: Linear | null;
  private readonly outputBias: Float32Array | null;

  constructor(config: ModelConfig, parameters: Parameters) {
    const translates = config.kind === "transformer";
    const layers = stacks(config);
    this.settings = stackSettings(config.model);
    this.encoder = translates ? makeEncoder(config, parameters, "source") : null;
    this.input = new TokenInput(parameters, translates ? "target" : "input", this.settings, "source");
    this.decoder = new Stack(parameters, "decoder", layers.decoder, this.settings);
    this.output = parameters.has("output.weight") ? parameters.linear("output") : null;
    this.outputBias = parameters.vector("output_bias");
    this.vocabulary = (this.output?.weight ?? this.input.table).rows;
    this.maxPositions = this.settings.position === "learned" ? config.model.max_length : null;
  }

  start(source: number[] | null): Decoding {
    const memory = this.memoryOf(source);
    const caches = this.decoder.newCaches();
    const begin: Places = new Int32Array(0);
    const step: Decoding["step"] = (pasts, tokens) => {
      const before = pasts as Places[];
      const next = caches[0].length;
      const places = before.map((past, i) => Int32Array.from([...past, next + i]));
      const positions = before.map((past) => past.length);
      const reach = this.settings.window ?? Infinity;
      const keys = places.map((each) => (each.length > reach ? each.subarray(each.length - reach) : each));
      const first = places.map((each, i) => each.length - keys[i].length);
      const hidden = this.decoder.run(this.input.apply(tokens, positions), { positions, keys, first }, caches, memory);
      return { pasts: places, logits: this.project(hidden) };
    };
    return { begin, step };
  }

  readWhole(source: number[] | null, read: number[]): { hidden: Matrix; layers: Layers } {
    const layers: Layers = new Map();
    const encoded: StackRecord = { self: [], cross: [] };
    const decoded: StackRecord = { self: [], cross: [] };
    const states = source && this.encoder ? this.encoder.run(source, encoded) : null;
    const reading = wholeText(read.length, true, this.settings.window);
    const x = this.input.apply(read, reading.positions);
    const memory = states && this.decoder.projectSource(states);
    const hidden = this.decoder.run(x, reading, this.decoder.newCaches(), memory, decoded);
    nameLayers(layers, "encoder", encoded, this.settings);
    nameLayers(layers, "decoder", decoded, this.settings);
    return { hidden, layers };
  }

  project(hidden: Matrix): Matrix {
    if (!this.output) return linear(hidden, this.input.table, this.outputBias);
    const logits = this.output.apply(hidden);
    return this.outputBias ? new Matrix(logits.rows, logits.cols, logits.data.map((x, i) => x + this.outputBias![i % logits.cols])) : logits;
  }

  switchOff(off: HeadOff[]): void {
    const layers: Record<string, (Attention | null)[]> = {
      enc_self: this.encoder?.stack.blocks.map(({ self }) => self) ?? [],
      dec_self: this.decoder.blocks.map(({ self }) => self),
      cross: this.decoder.blocks.map(({ cross }) => cross),
    };
    for (const [map, attentions] of Object.entries(layers))
      attentions.forEach((attention, layer) => {
        if (attention) attention.off = off.filter((o) => o.map === map && o.layer === layer).map(({ head }) => head);
      });
  }

  private memoryOf(source: number[] | null): KeyValueCache[] | null {
    return source && this.encoder ? this.decoder.projectSource(this.encoder.run(source)) : null;
  }
}

/** Encoders that write no text: of sentences, and of texts to classify. */
export class EncoderOnly {
  readonly encoder: Encoder;
  readonly maxPositions: number | null;

  constructor(
    readonly config: ModelConfig,
    readonly parameters: Parameters,
  ) {
    this.encoder = makeEncoder(config, parameters, "input");
    this.maxPositions = config.model.position === "learned" ? config.model.max_length : null;
  }

  readWhole(tokens: number[]): Layers {
    const record: StackRecord = { self: [], cross: [] };
    this.encoder.run(tokens, record);
    const layers: Layers = new Map();
    nameLayers(layers, "encoder", record, this.encoder.settings);
    return layers;
  }

  switchOff(off: HeadOff[]): void {
    this.encoder.stack.blocks.forEach((block, layer) => {
      block.self.off = off.filter((o) => o.map === "enc_self" && o.layer === layer).map(({ head }) => head);
    });
  }

  /** The vector of a sentence; regard/models/encoders/sentence_encoder.py. */
  sentenceVector(tokens: number[]): Float64Array {
    const states = this.encoder.run(tokens);
    const { pooling, normalize } = this.config.model;
    const weights = this.poolWeights(states, pooling);
    const vector = new Float64Array(states.cols).fill(pooling === "max" ? -Infinity : 0);
    for (let i = 0; i < states.rows; i++)
      states.row(i).forEach((value, c) => {
        vector[c] = pooling === "max" ? Math.max(vector[c], value) : vector[c] + weights[i] * value;
      });
    const length = Math.hypot(...vector);
    return normalize && length > 0 ? vector.map((value) => value / Math.max(length, 1e-12)) : vector;
  }

  private poolWeights(states: Matrix, pooling: string): number[] {
    const n = states.rows;
    if (pooling === "mean") return Array(n).fill(1 / n);
    if (pooling === "first") return Array.from({ length: n }, (_, i) => Number(i === 0));
    if (pooling === "max") return [];
    const theta = this.parameters.matrix("pool.theta");
    const scores = linear(states, theta, null).data.map((score) => score / Math.sqrt(states.cols));
    const highest = Math.max(...scores);
    const powers = Array.from(scores, (score) => Math.exp(score - highest));
    const total = powers.reduce((sum, value) => sum + value, 0);
    return powers.map((value) => value / total);
  }
}

function makeEncoder(config: ModelConfig, parameters: Parameters, input: string): Encoder {
  const settings = stackSettings(config.model);
  const stack = new Stack(parameters, "encoder", stacks(config).encoder, settings);
  return new Encoder(new TokenInput(parameters, input, settings), stack, settings);
}

function nameLayers(layers: Layers, stack: string, record: StackRecord, { heads, groups }: StackSettings): void {
  for (const part of ["self", "cross"] as const)
    record[part].forEach(({ weights, q, k, v }, number) => {
      const m = q.rows;
      layers.set(`${stack}.${number}.${part}`, { heads, m, n: weights.length / heads / m, weights, q, k, v, groups });
    });
}
