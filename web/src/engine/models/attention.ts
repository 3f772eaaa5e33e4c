// Multi-head attention with a key-value cache. regard/attention/multihead.py; D8, D11, D12, D13.
//
// m queries   n keys   H heads   G heads of keys and values   d_k, d_v widths of a head
import { Matrix, dot, linear } from "../arrays/matrix";
import type { StackSettings } from "../folder/config";
import { Linear, type Parameters } from "./parameters";
import { Rotary, alibiSlopes } from "./positions";

/** Keys and values of tokens, one after the other. Hypotheses that share a beginning share its tokens. */
export class KeyValueCache {
  length = 0;
  keys: Float32Array;
  values: Float32Array;

  constructor(
    readonly keyCols: number, // G · d_k
    readonly valueCols: number, // G · d_v
    capacity = 64,
  ) {
    this.keys = new Float32Array(capacity * keyCols);
    this.values = new Float32Array(capacity * valueCols);
  }

  append(keys: Matrix, values: Matrix): void {
    const needed = this.length + keys.rows;
    if (needed * this.keyCols > this.keys.length) {
      this.keys = grown(this.keys, 2 * needed * this.keyCols);
      this.values = grown(this.values, 2 * needed * this.valueCols);
    }
    this.keys.set(keys.data, this.length * this.keyCols);
    this.values.set(values.data, this.length * this.valueCols);
    this.length = needed;
  }
}

function grown(numbers: Float32Array, length: number): Float32Array {
  const larger = new Float32Array(length);
  larger.set(numbers);
  return larger;
}

/** What one attention layer computed, for traces. */
export interface Recorded {
  weights: Float32Array; // (H, m, n)
  q: Matrix;
  k: Matrix;
  v: Matrix;
}

export class Attention {
  readonly output: Linear | null;
  readonly rotary: Rotary | null;
  readonly slopes: Float32Array | null;
  readonly qNorm: Float32Array | null;
  readonly kNorm: Float32Array | null;
  off: number[] = []; // heads that are switched off
  readonly scale: number;

  constructor(
    readonly name: string,
    readonly parameters: Parameters,
    readonly settings: StackSettings,
    inside: boolean, // whether positions act inside this layer
  ) {
    this.output = parameters.has(`${name}.output.weight`) ? parameters.linear(`${name}.output`) : null;
    this.rotary = inside && settings.position === "rotary" ? new Rotary(settings) : null;
    this.slopes = inside && settings.position === "alibi" ? alibiSlopes(settings.heads) : null;
    this.qNorm = parameters.vector(`${name}.q_norm.weight`);
    this.kNorm = parameters.vector(`${name}.k_norm.weight`);
    this.scale = settings.score === "dot" ? 1 : settings.keyWidth ** -0.5;
  }

  newCache(): KeyValueCache {
    const { groups, keyWidth, valueWidth } = this.settings;
    return new KeyValueCache(groups * keyWidth, groups * valueWidth);
  }

  /** The queries, keys or values of all heads, (m, heads · width), without rotation. */
  project(letter: "q" | "k" | "v", x: Matrix): Matrix {
    const { form, keyWidth } = this.settings;
    const y = form === "slice" ? this.projectSlices(letter, x) : this.projectStacked(letter, x);
    const norm = letter === "q" ? this.qNorm : letter === "k" ? this.kNorm : null;
    if (norm) normalizeHeads(y, norm, keyWidth);
    return y;
  }

  /** Which rows of the stacked matrix project the queries, keys or values. */
  rowsOf(letter: "q" | "k" | "v"): [number, number] {
    const { heads, groups, keyWidth, valueWidth } = this.settings;
    const ends = [heads * keyWidth, (heads + groups) * keyWidth, (heads + groups) * keyWidth + groups * valueWidth];
    const i = "qkv".indexOf(letter);
    return [i ? ends[i - 1] : 0, ends[i]];
  }

  private projectStacked(letter: "q" | "k" | "v", x: Matrix): Matrix {
    const weight = this.parameters.matrix(`${this.name}.input.weight`);
    return linear(x, weight, this.parameters.vector(`${this.name}.input.bias`), ...this.rowsOf(letter));
  }

  private projectSlices(letter: "q" | "k" | "v", x: Matrix): Matrix {
    const { shape, data } = this.parameters.tensor(`${this.name}.input.${letter}_weight`);
    const bias = this.parameters.vector(`${this.name}.input.${letter}_bias`);
    const [heads, slice, width] = shape;
    const y = new Matrix(x.rows, heads * width);
    for (let i = 0; i < x.rows; i++)
      for (let h = 0; h < heads; h++)
        for (let d = 0; d < width; d++) {
          let sum = bias ? bias[h * width + d] : 0;
          for (let c = 0; c < slice; c++) sum += x.row(i)[h * slice + c] * data[(h * slice + c) * width + d];
          y.row(i)[h * width + d] = sum;
        }
    return y;
  }

  /** Adds the tokens x (m, p) at these positions to a cache. */
  remember(cache: KeyValueCache, x: Matrix, positions: ArrayLike<number>): void {
    const keys = this.project("k", x);
    this.rotary?.rotate(keys, positions, this.settings.keyWidth);
    cache.append(keys, this.project("v", x));
  }

  /** The queries (m, H · d_k) of tokens at these positions, rotated. */
  queries(x: Matrix, positions: ArrayLike<number>): Matrix {
    const q = this.project("q", x);
    this.rotary?.rotate(q, positions, this.settings.keyWidth);
    return q;
  }

  /**
   * Attends from x (m, p): query i, at its position, attends to the tokens keys[i] of the cache, which are those from
   * the position first[i] on. Gives (m, p), and `record` what was computed.
   */
  attend(
    x: Matrix,
    positions: ArrayLike<number>,
    cache: KeyValueCache,
    keys: Int32Array[],
    first: ArrayLike<number>,
    record?: (recorded: Recorded) => void,
  ): Matrix {
    const { heads, groups, keyWidth, valueWidth } = this.settings;
    const q = this.queries(x, positions);
    const sums = new Matrix(x.rows, heads * valueWidth);
    const n = Math.max(...Array.from(keys, (each, i) => first[i] + each.length));
    const recorded = record ? new Float32Array(heads * x.rows * n) : null;
    for (let i = 0; i < x.rows; i++) {
      for (let h = 0; h < heads; h++) {
        const group = Math.floor((h * groups) / heads);
        const weights = this.weights(q, i, h, group, cache, keys[i], positions[i] - first[i]);
        recorded?.set(weights, (h * x.rows + i) * n + first[i]);
        if (this.off.includes(h)) continue;
        const at = i * sums.cols + h * valueWidth;
        for (let d = 0; d < valueWidth; d++) {
          let sum = 0;
          for (let j = 0; j < weights.length; j++)
            sum += weights[j] * cache.values[keys[i][j] * cache.valueCols + group * valueWidth + d];
          sums.data[at + d] = sum;
        }
      }
    }
    if (recorded) {
      const k = new Matrix(cache.length, groups * keyWidth, cache.keys.slice(0, cache.length * cache.keyCols));
      const v = new Matrix(cache.length, groups * valueWidth, cache.values.slice(0, cache.length * cache.valueCols));
      record!({ weights: recorded, q, k, v });
    }
    return this.output ? this.output.apply(sums) : sums;
  }

  /** The softmax of the scores of one query and head; `distance` is that to the first key. */
  private weights(
    q: Matrix, i: number, h: number, group: number, cache: KeyValueCache, keys: Int32Array, distance: number,
  ): Float64Array {
    const width = this.settings.keyWidth;
    const scores = new Float64Array(keys.length);
    let highest = -Infinity;
    for (let j = 0; j < keys.length; j++) {
      let score =
        dot(q.data, i * q.cols + h * width, cache.keys, keys[j] * cache.keyCols + group * width, width) * this.scale;
      if (this.slopes) score -= this.slopes[h] * Math.abs(distance - j);
      scores[j] = score;
      if (score > highest) highest = score;
    }
    let total = 0;
    for (let j = 0; j < scores.length; j++) total += scores[j] = Math.exp(scores[j] - highest);
    for (let j = 0; j < scores.length; j++) scores[j] /= total;
    return scores;
  }
}

function normalizeHeads(x: Matrix, weight: Float32Array, width: number): void {
  const EPS = 2 ** -23; // that of 32-bit numbers, as torch.nn.RMSNorm
  for (let start = 0; start < x.data.length; start += width) {
    let square = 0;
    for (let c = 0; c < width; c++) square += x.data[start + c] ** 2;
    const scale = 1 / Math.sqrt(square / width + EPS);
    for (let c = 0; c < width; c++) x.data[start + c] *= scale * weight[c];
  }
}
