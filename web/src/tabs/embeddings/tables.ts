// One-hot rows times a table; A1. Numbers have two decimals, so that a sum can be followed by eye.

export interface Table {
  names: readonly string[]; // of the rows
  dim: number;
  values: Float64Array; // names.length x dim
}

export const ALPHABET = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"];
const WIDTH = 5;

/** `torch.manual_seed(123); torch.nn.Embedding(26, 5).weight`, as before training; `regard plot one-hot` draws the same. */
export const LETTERS: Table = {
  names: ALPHABET,
  dim: WIDTH,
  // prettier-ignore
  values: Float64Array.from([
      0.34, -0.18, -0.30, -0.59, 0.35,
      0.66, -0.22, -0.38, 0.77, -1.19,
      0.70, -1.41, 0.18, 1.90, 0.50,
      0.27, -0.08, -1.02, -0.17, 0.92,
      1.58, 1.30, 1.28, -0.20, 0.50,
      -1.57, 0.97, -1.15, -1.16, 0.33,
      -0.63, -2.84, -1.32, 0.18, -2.13,
      1.05, -0.39, -0.93, -0.50, -1.09,
      0.88, 1.55, 0.63, -0.18, 0.10,
      -0.09, 0.27, -0.59, 0.88, 1.62,
      -1.48, 1.13, -1.22, 1.31, 1.05,
      0.14, 2.25, -0.80, -0.28, 0.77,
      -0.66, -0.80, 0.18, 0.23, 0.51,
      0.99, -0.26, -1.08, -0.04, 1.62,
      -2.32, 1.09, 0.67, 0.69, -0.95,
      -0.08, -0.15, 0.12, 0.44, -1.45,
      0.26, -0.55, 1.00, 0.83, -0.39,
      0.49, -0.22, -1.75, -1.60, -1.08,
      0.90, -0.72, -0.60, -0.71, 0.62,
      -1.37, -2.21, -1.32, -2.09, 0.96,
      -0.03, -0.48, 0.77, 0.03, 1.99,
      1.37, -0.50, -0.28, -2.06, 0.01,
      -0.99, 0.70, -0.94, -0.47, -0.80,
      -0.82, -1.18, -0.29, -0.60, 0.60,
      -1.42, -0.22, -0.25, 1.15, -0.02,
      0.43, -0.77, -0.05, -0.73, 1.23,
  ]),
};

/** `torch.manual_seed(123); torch.nn.Embedding(4, 5).weight`, as the lecture prints rows 2, 3 and 1. */
export const PRINTED: Table = {
  names: ["0", "1", "2", "3"],
  dim: 5,
  values: Float64Array.from([
    0.3374, -0.1778, -0.3035, -0.5880, 1.5810,
    1.3010, 1.2753, -0.2010, -0.1606, -0.4015,
    0.6957, -1.8061, -1.1589, 0.3255, -0.6315,
    -2.8400, -0.7849, -1.4096, -0.4076, 0.7953,
  ]),
};

/** The one-hot rows of these indices, indices.length x rows. */
export function oneHot(indices: readonly number[], rows: number): Float64Array {
  const values = new Float64Array(indices.length * rows);
  indices.forEach((index, i) => (values[i * rows + index] = 1));
  return values;
}

/** The matrix product of one-hot rows and the table, computed as a product. */
export function multiply(left: Float64Array, { names, dim, values }: Table): Float64Array {
  const inner = names.length;
  const product = new Float64Array((left.length / inner) * dim);
  for (let i = 0; i * inner < left.length; i++)
    for (let k = 0; k < inner; k++)
      for (let c = 0; c < dim; c++) product[i * dim + c] += left[i * inner + k] * values[k * dim + c];
  return product;
}
