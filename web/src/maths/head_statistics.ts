// Statistics of attention heads, the badges derived from them, and attention rollout. The Python counterpart is
// regard/look/heads/statistics.py.
import type { Grid } from "./grid";

export type Badge = "previous" | "diagonal" | "first" | "broad";

export const BADGES: Record<Badge, string> = {
  previous: "on average, at least half of the weight is on the previous token",
  diagonal:
    "on average, at least half of the weight is on the token itself, or on the same relative position in the other text",
  first: "on average, at least half of the weight is on the first token",
  broad: "nearly uniform: at least 90% of the maximum entropy",
};

const MIN_SHARE = 0.5;
const MIN_BROADNESS = 0.9;

export interface HeadStatistics {
  entropy: number; // in nats, the mean over the rows
  broadness: number; // entropy divided by the maximum entropy
  previous: number; // weight on the previous token
  diagonal: number; // weight on the token itself
  first: number; // weight on the first token
}

class Mean {
  private total = 0;
  private count = 0;

  add(value: number): void {
    this.total += value;
    this.count += 1;
  }

  get value(): number {
    return this.total / Math.max(this.count, 1);
  }
}

/** The key that belongs to each query: the token itself, or between two texts the same relative position. */
export function diagonalKeys(grid: Grid, between: boolean): number[] {
  const { rows: m, cols: n } = grid;
  const along = (n - 1) / Math.max(m - 1, 1);
  return Array.from({ length: m }, (_, i) => (between ? roundEven(i * along) : i + n - m));
}

/** Rounds half to even, as numpy does. */
function roundEven(x: number): number {
  const low = Math.floor(x);
  if (x - low !== 0.5) return Math.round(x);
  return low % 2 === 0 ? low : low + 1;
}

/** Means over the rows of a head; fully masked rows do not count. */
export function headStatistics(grid: Grid, between: boolean): HeadStatistics {
  const { rows: m, cols: n, values, mask } = grid;
  const keys = diagonalKeys(grid, between);
  const [entropy, broadness, previous, diagonal, first] = Array.from({ length: 5 }, () => new Mean()) as [
    Mean,
    Mean,
    Mean,
    Mean,
    Mean,
  ];
  for (let i = 0; i < m; i++) {
    let choices = 0;
    let spread = 0;
    for (let j = 0; j < n; j++) {
      const weight = values[i * n + j];
      choices += mask === null || mask[i * n + j] ? 1 : 0;
      if (weight > 0) spread -= weight * Math.log(weight);
    }
    if (choices === 0) continue;
    const key = keys[i];
    entropy.add(spread);
    if (choices > 1) broadness.add(spread / Math.log(choices));
    if (key >= 1) previous.add(values[i * n + key - 1]);
    if (key >= 0) diagonal.add(values[i * n + key]);
    first.add(values[i * n]);
  }
  return {
    entropy: entropy.value,
    broadness: broadness.value,
    previous: previous.value,
    diagonal: diagonal.value,
    first: first.value,
  };
}

/** The badges of a head. */
export function badgesOf(statistics: HeadStatistics): Badge[] {
  const all = Object.keys(BADGES) as Badge[];
  return all.filter((name) =>
    name === "broad" ? statistics.broadness >= MIN_BROADNESS : statistics[name] >= MIN_SHARE,
  );
}

/**
 * Attention rollout: the share of each input token in each vector after a layer (Abnar and Zuidema 2020, equation 1):
 * A_l … A_1 with A = W / 2 + I / 2 and W the mean over the heads of a layer. Takes the mean of each layer.
 */
export function rollout(means: Grid[]): Grid {
  const n = means[0].rows;
  let mixed: Float64Array | null = null;
  for (const mean of means) {
    const layer = withResidual(mean);
    mixed = mixed === null ? layer : product(layer, mixed, n);
  }
  return { rows: n, cols: n, values: Float32Array.from(mixed!), mask: null };
}

function withResidual(mean: Grid): Float64Array {
  const n = mean.rows;
  const mixed = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    let sum = 0;
    for (let j = 0; j < n; j++) sum += mean.values[i * n + j];
    // A fully masked row keeps its token.
    for (let j = 0; j < n; j++) mixed[i * n + j] = sum > 0 ? (0.5 * mean.values[i * n + j]) / sum : 0;
    mixed[i * n + i] += sum > 0 ? 0.5 : 1;
  }
  return mixed;
}

function product(a: Float64Array, b: Float64Array, n: number): Float64Array {
  const out = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < n; k++) {
      const left = a[i * n + k];
      if (left === 0) continue;
      for (let j = 0; j < n; j++) out[i * n + j] += left * b[k * n + j];
    }
  }
  return out;
}
