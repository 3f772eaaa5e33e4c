// One-hot rows times a table; A1. Numbers have two decimals, so that a sum can be followed by eye.
import { normalNumbers } from "../../maths/random";

export interface Table {
  names: readonly string[]; // of the rows
  dim: number;
  values: Float64Array; // names.length x dim
}

export const ALPHABET = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"];
const WIDTH = 5;

/** A table for the alphabet, from a fixed seed, as before training. */
export const LETTERS: Table = {
  names: ALPHABET,
  dim: WIDTH,
  values: Float64Array.from({ length: ALPHABET.length * WIDTH }, ((draw) => () => Math.round(100 * draw()) / 100)(normalNumbers(7))),
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
