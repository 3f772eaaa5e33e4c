// Matrices of 32-bit numbers, row by row. Sums are taken in 64 bits, as JavaScript computes.

export class Matrix {
  constructor(
    readonly rows: number,
    readonly cols: number,
    readonly data: Float32Array = new Float32Array(rows * cols),
  ) {}

  row(i: number): Float32Array {
    return this.data.subarray(i * this.cols, (i + 1) * this.cols);
  }

  /** Rows from `start` up to `end`, which share the numbers of this matrix. */
  slice(start: number, end: number): Matrix {
    return new Matrix(end - start, this.cols, this.data.subarray(start * this.cols, end * this.cols));
  }
}

/** A parameter of a model. */
export interface Tensor {
  shape: number[];
  data: Float32Array;
}

export function fromRows(rows: ArrayLike<number>[], cols: number): Matrix {
  const joined = new Matrix(rows.length, cols);
  rows.forEach((row, i) => joined.data.set(row, i * cols));
  return joined;
}

/** Columns from `start` up to `end`, copied. */
export function columns(x: Matrix, start: number, end: number): Matrix {
  return fromRows(
    Array.from({ length: x.rows }, (_, i) => x.row(i).subarray(start, end)),
    end - start,
  );
}

export function add(x: Matrix, y: Matrix): Matrix {
  return new Matrix(
    x.rows,
    x.cols,
    x.data.map((value, i) => value + y.data[i]),
  );
}

/** A parameter with two dimensions as a matrix. */
export function asMatrix({ shape, data }: Tensor): Matrix {
  return new Matrix(shape[0], shape[1], data);
}

/** x (m, p) times the rows of W (q, p) from `start` up to `end`, plus the bias: (m, end - start). */
export function linear(x: Matrix, weight: Matrix, bias: Float32Array | null, start = 0, end = weight.rows): Matrix {
  const out = new Matrix(x.rows, end - start);
  const width = x.cols;
  for (let o = start; o < end; o++) {
    const at = o * weight.cols;
    const shift = bias ? bias[o] : 0;
    for (let i = 0; i < x.rows; i++) {
      out.data[i * out.cols + o - start] = dot(weight.data, at, x.data, i * width, width) + shift;
    }
  }
  return out;
}

/** The inner product of `count` numbers of a, from `i` on, and of b, from `j` on. Four sums run side by side. */
export function dot(a: Float32Array, i: number, b: Float32Array, j: number, count: number): number {
  let s0 = 0;
  let s1 = 0;
  let s2 = 0;
  let s3 = 0;
  let c = 0;
  for (; c + 3 < count; c += 4) {
    s0 += a[i + c] * b[j + c];
    s1 += a[i + c + 1] * b[j + c + 1];
    s2 += a[i + c + 2] * b[j + c + 2];
    s3 += a[i + c + 3] * b[j + c + 3];
  }
  for (; c < count; c++) s0 += a[i + c] * b[j + c];
  return s0 + s1 + (s2 + s3);
}

/** The softmax of numbers, in 64 bits; -Infinity has the weight 0. */
export function softmax(scores: ArrayLike<number>): Float64Array {
  let highest = -Infinity;
  for (let i = 0; i < scores.length; i++) highest = Math.max(highest, scores[i]);
  const weights = new Float64Array(scores.length);
  let total = 0;
  for (let i = 0; i < scores.length; i++) total += weights[i] = Math.exp(scores[i] - highest);
  for (let i = 0; i < scores.length; i++) weights[i] /= total;
  return weights;
}

/** The logarithm of the softmax of logits; in 32 bits like the logits. */
export function logSoftmax(logits: Float32Array): Float32Array {
  let highest = -Infinity;
  for (const logit of logits) highest = Math.max(highest, logit);
  let total = 0;
  for (const logit of logits) total += Math.exp(logit - highest);
  const shift = highest + Math.log(total);
  return logits.map((logit) => logit - shift);
}

export function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x));
}
