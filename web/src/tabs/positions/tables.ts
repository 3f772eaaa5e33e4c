// Position tables and their inner products in float64; B2, B3, B4, B7.
import { normalNumbers } from "../../maths/random";

export type Kind = "sinusoidal" | "rotary" | "learned";
export type PositionLayout = "interleaved" | "halves";

export interface Positions {
  length: number; // n
  dim: number; // d
  table: Float64Array; // n x d
}

export const DISTANCES = 50; // distances 0 … 49 of the variance, B4

/** The angle per position of pair i: 1 / base^(2i/d). */
export function frequency(i: number, dim: number, base: number): number {
  return 1 / base ** ((2 * i) / dim);
}

/** The pair that a column belongs to, and whether it is the second column of the pair. */
export function pairOf(column: number, dim: number, layout: PositionLayout): { pair: number; second: boolean } {
  if (layout === "interleaved") return { pair: Math.floor(column / 2), second: column % 2 === 1 };
  const firsts = Math.ceil(dim / 2); // with an odd width, the last sine has no cosine
  return column < firsts ? { pair: column, second: false } : { pair: column - firsts, second: true };
}

/** Sinusoidal: (sin, cos) for each pair. Rotary: (cos, sin), the rotation of the vector (1, 0). */
export function positionTable(
  length: number,
  dim: number,
  kind: "sinusoidal" | "rotary",
  layout: PositionLayout,
  base: number,
): Positions {
  const table = new Float64Array(length * dim);
  for (let c = 0; c < dim; c++) {
    const { pair, second } = pairOf(c, dim, layout);
    const wave = (kind === "sinusoidal") !== second ? Math.sin : Math.cos;
    const theta = frequency(pair, dim, base);
    for (let t = 0; t < length; t++) table[t * dim + c] = wave(t * theta);
  }
  return { length, dim, table };
}

/** Normally distributed numbers: learned positions before training. */
export function randomTable(length: number, dim: number, seed: number): Positions {
  return { length, dim, table: Float64Array.from({ length: length * dim }, normalNumbers(seed)) };
}

/** The inner product of each pair of rows, n x n. */
export function innerProducts({ length, dim, table }: Positions): Float64Array {
  const products = new Float64Array(length * length);
  for (let s = 0; s < length; s++) {
    for (let t = s; t < length; t++) {
      let sum = 0;
      for (let c = 0; c < dim; c++) sum += table[s * dim + c] * table[t * dim + c];
      products[s * length + t] = products[t * length + s] = sum;
    }
  }
  return products;
}

export interface Diagonals {
  mean: Float64Array; // by the distance |t - t'|
  low: Float64Array;
  high: Float64Array;
  spread: number; // largest difference between two products of the same distance
}

/** Summarizes the inner products by distance. */
export function diagonals(products: Float64Array, length: number): Diagonals {
  const [mean, low, high] = [
    new Float64Array(length),
    new Float64Array(length).fill(Infinity),
    new Float64Array(length).fill(-Infinity),
  ];
  let spread = 0;
  for (let distance = 0; distance < length; distance++) {
    for (let t = 0; t + distance < length; t++) {
      const value = products[t * length + t + distance];
      mean[distance] += value / (length - distance);
      low[distance] = Math.min(low[distance], value);
      high[distance] = Math.max(high[distance], value);
    }
    spread = Math.max(spread, high[distance] - low[distance]);
  }
  return { mean, low, high, spread };
}

/** The variance of the inner product of the first k dimensions over the distances 0 … 49, for k = 2, 4, …, d; B4. */
export function waveVariance(dim: number, base: number): number[] {
  const sums = new Float64Array(DISTANCES);
  return Array.from({ length: Math.floor(dim / 2) }, (_, i) => {
    for (let t = 0; t < DISTANCES; t++) sums[t] += Math.cos(t * frequency(i, dim, base));
    return variance(sums);
  });
}

/** The same for any table: the variance of the mean product of each distance. */
export function tableVariance({ length, dim, table }: Positions): number[] {
  const sums = new Float64Array(Math.min(DISTANCES, length));
  const variances: number[] = [];
  for (let c = 0; c < dim; c++) {
    for (let distance = 0; distance < sums.length; distance++) {
      let sum = 0;
      for (let t = 0; t + distance < length; t++) sum += table[t * dim + c] * table[(t + distance) * dim + c];
      sums[distance] += sum / (length - distance);
    }
    if (c % 2 === 1) variances.push(variance(sums));
  }
  return variances;
}

function variance(values: Float64Array): number {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  return values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
}
