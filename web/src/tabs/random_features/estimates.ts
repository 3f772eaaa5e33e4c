// Attention with random features and exact attention in float64; F1, F2, F3.
//
// x = q √scale and y = k √scale, so that x·y is the score; with normalization both have length 1. u = W x for M random rows w.
import { normalNumbers } from "../../maths/random";

export const MAPS = ["trig", "positive", "hyperbolic", "optimal", "elu"] as const;
export type FeatureMap = (typeof MAPS)[number] | "plain";
export type Draw = "orthogonal" | "independent";
export type Vectors = readonly Float64Array[];

/** Queries (m) and keys (n) of one head, whose score is scale q·k. */
export interface Head {
  q: Vectors;
  k: Vectors;
  scale: number;
  causal: boolean;
}

interface Features {
  numbers: Vectors; // phi = numbers e^level, row by row
  level: Float64Array;
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** Rows from N(0, 1), orthogonal in blocks of `dim` or independent. A smaller count gives the first of the same rows. */
export function drawRows(count: number, dim: number, draw: Draw, seed: number): Vectors {
  const normal = normalNumbers(seed);
  const row = () => Float64Array.from({ length: dim }, normal);
  if (draw === "independent") return Array.from({ length: count }, row);
  const rows: Float64Array[] = [];
  while (rows.length < count) {
    // Gram-Schmidt on normal rows gives a uniformly distributed rotation; each row then gets a random length.
    const block: Float64Array[] = [];
    for (let i = 0; i < dim; i++) {
      const next = row();
      for (let pass = 0; pass < 2; pass++)
        for (const before of block) {
          const share = dot(next, before);
          for (let c = 0; c < dim; c++) next[c] -= share * before[c];
        }
      const length = Math.sqrt(dot(next, next));
      block.push(next.map((value) => value / length));
    }
    const lengths = block.map(row).map((vector) => Math.sqrt(dot(vector, vector)));
    rows.push(...block.map((unit, i) => unit.map((value) => value * lengths[i])));
  }
  return rows.slice(0, count);
}

/** The number of rows of W that a map needs for this number of features. */
export function rowsFor(map: FeatureMap, features: number): number {
  if (map === "elu") return 0;
  return map === "positive" || map === "optimal" ? features : features / 2;
}

/** Scales queries or keys such that x·y is the score. */
function prepare(vectors: Vectors, scale: number, normalize: boolean): Vectors {
  return vectors.map((vector) => {
    const factor = normalize ? 1 / Math.max(Math.sqrt(dot(vector, vector)), 1e-6) : Math.sqrt(scale);
    return vector.map((value) => value * factor);
  });
}

/** Softmax weights m x n of a score; with a causal mask the last query sees every key. */
function softmaxRows(x: Vectors, y: Vectors, causal: boolean, score: (a: Float64Array, b: Float64Array) => number) {
  const [m, n] = [x.length, y.length];
  const weights = new Float64Array(m * n);
  for (let i = 0; i < m; i++) {
    const seen = causal ? Math.max(0, i + 1 + n - m) : n;
    let most = -Infinity;
    for (let j = 0; j < seen; j++) most = Math.max(most, (weights[i * n + j] = score(x[i], y[j])));
    let sum = 0;
    for (let j = 0; j < seen; j++) sum += weights[i * n + j] = Math.exp(weights[i * n + j] - most);
    for (let j = 0; j < seen; j++) weights[i * n + j] /= sum;
  }
  return weights;
}

/** Softmax attention, F1. */
export function exactWeights(head: Head, normalize: boolean): Float64Array {
  const [x, y] = [head.q, head.k].map((vectors) => prepare(vectors, head.scale, normalize));
  return softmaxRows(x, y, head.causal, dot);
}

/** The limit of the lecture's formula for infinitely many features: softmax(−|x−y|²/2), F3. */
export function limitWeights(head: Head, normalize: boolean): Float64Array {
  const [x, y] = [head.q, head.k].map((vectors) => prepare(vectors, head.scale, normalize));
  return softmaxRows(x, y, head.causal, (a, b) => -(dot(a, a) + dot(b, b) - 2 * dot(a, b)) / 2);
}

/** D⁻¹ φ(Q) φ(K)ᵀ, F3; the weights of trigonometric features may be negative. */
export function estimateWeights(head: Head, map: FeatureMap, W: Vectors, normalize: boolean): Float64Array {
  const unscaled = [head.q, head.k] as const;
  const [x, y] = map === "elu" ? unscaled : unscaled.map((vectors) => prepare(vectors, head.scale, normalize));
  const a = map === "optimal" ? bestA(x, y) : 0;
  const [q, k] = [featuresOf(x, map, W, a), featuresOf(y, map, W, a)];
  const [m, n] = [x.length, y.length];
  // The level of a query cancels in its row, and so does the common part of the keys' levels.
  const top = k.level.reduce((most, level) => Math.max(most, level), -Infinity);
  const weight = k.level.map((level) => Math.exp(level - top));
  const weights = new Float64Array(m * n);
  for (let i = 0; i < m; i++) {
    const seen = head.causal ? Math.max(0, i + 1 + n - m) : n;
    let sum = 0;
    for (let j = 0; j < seen; j++) sum += weights[i * n + j] = weight[j] * dot(q.numbers[i], k.numbers[j]);
    const guarded = Math.abs(sum) < 1e-300 ? 1e-300 : sum;
    for (let j = 0; j < seen; j++) weights[i * n + j] /= guarded;
  }
  return weights;
}

/** A of the optimal map for the mean s of |x+y|²; Likhosherstov et al. 2022, theorem 3. */
function bestA(x: Vectors, y: Vectors): number {
  let s = 0;
  for (const a of x) for (const b of y) s += (dot(a, a) + dot(b, b) + 2 * dot(a, b)) / (x.length * y.length);
  const d = x[0].length;
  const r = (Math.sqrt((2 * s + d) ** 2 + 8 * d * s) - 2 * s - d) / (4 * s);
  return (1 - 1 / r) / 8;
}

function featuresOf(x: Vectors, map: FeatureMap, W: Vectors, a: number): Features {
  const M = W.length;
  const level = new Float64Array(x.length);
  const numbers = x.map((vector, i) => {
    if (map === "elu") return vector.map((value) => (value > 0 ? value + 1 : Math.exp(value)));
    const u = Float64Array.from(W, (w) => dot(w, vector));
    const half = dot(vector, vector) / 2;
    if (map === "plain" || map === "trig") {
      level[i] = map === "trig" ? half : 0;
      return joined(u, Math.sin, Math.cos, M ** -0.5);
    }
    if (map === "optimal") u.forEach((value, r) => (u[r] = a * dot(W[r], W[r]) + Math.sqrt(1 - 4 * a) * value));
    const most = u.reduce((top, value) => Math.max(top, map === "hyperbolic" ? Math.abs(value) : value), -Infinity);
    level[i] = most - half;
    if (map === "hyperbolic")
      return joined(
        u,
        (value) => Math.exp(value - most),
        (value) => Math.exp(-value - most),
        (2 * M) ** -0.5,
      );
    const factor = M ** -0.5 * (1 - 4 * a) ** (vector.length / 4);
    return u.map((value) => factor * Math.exp(value - most));
  });
  return { numbers, level };
}

function joined(u: Float64Array, first: (x: number) => number, second: (x: number) => number, factor: number) {
  const features = new Float64Array(2 * u.length);
  u.forEach((value, r) => {
    features[r] = factor * first(value);
    features[u.length + r] = factor * second(value);
  });
  return features;
}

/** |estimate − exact| / |exact|, over the whole matrix. */
export function relativeError(estimate: Float64Array, exact: Float64Array): number {
  let [off, size] = [0, 0];
  for (let i = 0; i < exact.length; i++) {
    off += (estimate[i] - exact[i]) ** 2;
    size += exact[i] ** 2;
  }
  return Math.sqrt(off / size);
}

export interface ErrorCurve {
  middle: number[]; // the median over the draws, for each number of features
  low: number[];
  high: number[];
}

/** The error by number of features over several draws; `rows` returns the first rows of a draw. */
export function errorCurve(
  head: Head,
  map: FeatureMap,
  counts: readonly number[],
  draws: number,
  normalize: boolean,
  rows: (draw: number, count: number) => Vectors,
): ErrorCurve {
  const exact = exactWeights(head, normalize);
  const all = Array.from({ length: draws }, (_, i) =>
    counts.map((F) => relativeError(estimateWeights(head, map, rows(i, rowsFor(map, F)), normalize), exact)),
  );
  const sorted = counts.map((_, c) => all.map((errors) => errors[c]).sort((a, b) => a - b));
  return {
    middle: sorted.map((errors) => errors[Math.floor((errors.length - 1) / 2)]),
    low: sorted.map((errors) => errors[0]),
    high: sorted.map((errors) => errors[errors.length - 1]),
  };
}

/** Multiplications of exact attention of one head over L tokens, with values as wide as keys. */
export function exactOperations(L: number, d: number): number {
  return L * L * 2 * d;
}

/** Multiplications with features: W x of queries and keys, the sums over the keys, and their use by the queries. */
export function featureOperations(L: number, d: number, M: number, F: number): number {
  return 2 * L * M * d + 2 * L * F * (d + 1);
}
