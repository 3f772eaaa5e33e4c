// Attention on small matrices in float64, with all intermediate results; D1, D5, D9, D10.

export type Rows = number[][];
export type Score = "dot" | "scaled" | "general" | "additive";

export interface LabInput {
  q: Rows; // m x d_q
  k: Rows; // n x d_k
  v: Rows; // n x d_v
  score: Score;
  w: Rows; // general: W, d_q x d_k; additive: w, 1 x h
  wq: Rows; // additive: W_q, h x d_q
  wk: Rows; // additive: W_k, h x d_k
  mask: boolean[][] | null; // m x n, true: not masked
  temperature: number;
}

export interface LabResult {
  raw: Rows; // scores before scaling
  scaled: Rows;
  masked: (number | null)[][]; // null: masked
  weights: Rows;
  out: Rows;
}

export function dot(a: number[], b: number[]): number {
  return a.reduce((sum, value, i) => sum + value * b[i], 0);
}

export function product(a: Rows, b: Rows): Rows {
  return a.map((row) => b[0].map((_, j) => row.reduce((sum, value, i) => sum + value * b[i][j], 0)));
}

/** The factor of the scores: 1/sqrt(d_k) for the scaled dot product, D9. */
export function scaleOf(input: LabInput): number {
  return input.score === "scaled" ? 1 / Math.sqrt(input.k[0].length) : 1;
}

export function scoreOf(input: LabInput, q: number[], k: number[]): number {
  if (input.score === "general") return dot(product([q], input.w)[0], k);
  if (input.score === "additive") return dot(input.w[0], hidden(input, q, k));
  return dot(q, k);
}

/** tanh(W_q q + W_k k) of the additive score. */
export function hidden(input: LabInput, q: number[], k: number[]): number[] {
  return input.wq.map((row, i) => Math.tanh(dot(row, q) + dot(input.wk[i], k)));
}

/** Softmax over the unmasked scores; all zeros if every score is masked. */
export function softmax(scores: (number | null)[], temperature: number): number[] {
  const most = Math.max(...scores.map((score) => score ?? -Infinity));
  if (most === -Infinity) return scores.map(() => 0);
  const powers = scores.map((score) => (score === null ? 0 : Math.exp((score - most) / temperature)));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

/** Why the shapes of the matrices do not match; empty if they do. */
export function shapeProblem(input: LabInput): string {
  const { q, k, v } = input;
  const width = (rows: Rows) => rows[0].length;
  if (k.length !== v.length) return `K has ${k.length} rows and V has ${v.length}: every key needs a value.`;
  const products = input.score === "dot" || input.score === "scaled";
  if (products && width(q) !== width(k))
    return `The rows of Q have ${width(q)} numbers and the rows of K have ${width(k)}: a dot product needs equal widths.`;
  return "";
}

export function compute(input: LabInput): LabResult {
  const scale = scaleOf(input);
  const raw = input.q.map((q) => input.k.map((k) => scoreOf(input, q, k)));
  const scaled = raw.map((row) => row.map((score) => score * scale));
  const masked = scaled.map((row, i) => row.map((score, j) => (input.mask && !input.mask[i][j] ? null : score)));
  const weights = masked.map((row) => softmax(row, input.temperature));
  return { raw, scaled, masked, weights, out: product(weights, input.v) };
}
