// What searches and traces ask of a model, whatever its kind.
import type { Matrix } from "../arrays/matrix";

/** The weights of one attention layer, (H, m, n), and the vectors that they were computed from. */
export interface LayerWeights {
  heads: number;
  m: number;
  n: number;
  weights: Float32Array;
  q: Matrix; // (m, H · width)
  k: Matrix; // (n, G · width)
  v: Matrix;
  groups: number;
}

/** The weights of all attention layers by name, such as "decoder.0.cross". */
export type Layers = Map<string, LayerWeights>;

/** A head that is switched off, by its map. */
export interface HeadOff {
  map: string;
  layer: number;
  head: number;
}

/** A hypothesis as the decoder sees it: everything that it has read. It is never changed. */
export type Past = unknown;

/** One decoding of one source. */
export interface Decoding {
  readonly begin: Past;
  /** Feeds each hypothesis a token; gives the hypotheses with it, and the logits (R, V) of their next tokens. */
  step(pasts: Past[], tokens: number[]): { pasts: Past[]; logits: Matrix };
}

/** A model that writes text. */
export interface TextModel {
  readonly vocabulary: number;
  readonly maxPositions: number | null;
  /** Begins to decode; a language model has no source. */
  start(source: number[] | null): Decoding;
  /** Reads a whole text in one pass: the decoder's vectors (m, p), and the weights of all layers. */
  readWhole(source: number[] | null, read: number[]): { hidden: Matrix; layers: Layers };
  /** The logits (m, V) of the decoder's vectors. */
  project(hidden: Matrix): Matrix;
  /** Switches heads off, and all others on. */
  switchOff(off: HeadOff[]): void;
}
