// The scores of a recurrent decoder: how well a source state matches the decoder's. regard/attention/scores.py; D5.
import { Matrix, columns, linear } from "../arrays/matrix";
import type { Parameters } from "./parameters";

/** A score, in two parts: what depends on the source is computed once. */
export interface Score {
  kind: string;
  scale: number;
  /** The part that depends on the source states (n, ·) alone. */
  keys(states: Matrix): Matrix;
  /** The query as it is compared with the keys. */
  query(state: Float32Array): Float32Array;
  compare(query: Float32Array, keys: Matrix): Float64Array;
}

export function makeScore(parameters: Parameters, kind: string, name: string, queryWidth: number): Score {
  if (kind === "additive" || kind === "concat") return additive(parameters, kind, name, queryWidth);
  const bilinear = kind === "bilinear" ? parameters.matrix(`${name}.weight`) : null;
  return {
    kind,
    scale: kind === "scaled" ? 1 / Math.sqrt(queryWidth) : 1,
    keys: (states) => (bilinear ? linear(states, bilinear, null) : states),
    query: (state) => state,
    compare(query, keys) {
      return Float64Array.from({ length: keys.rows }, (_, j) => inner(query, keys.row(j)) * this.scale);
    },
  };
}

function additive(parameters: Parameters, kind: string, name: string, queryWidth: number): Score {
  const stacked = kind === "concat" ? parameters.matrix(`${name}.stacked.weight`) : null;
  const queries = stacked ? columns(stacked, 0, queryWidth) : parameters.matrix(`${name}.query.weight`);
  const keys = stacked ? columns(stacked, queryWidth, stacked.cols) : parameters.matrix(`${name}.key.weight`);
  const weight = parameters.tensor(`${name}.weight`).data;
  return {
    kind,
    scale: 1,
    keys: (states) => linear(states, keys, null),
    query: (state) => linear(new Matrix(1, state.length, state), queries, null).data,
    compare: (query, keys) =>
      Float64Array.from({ length: keys.rows }, (_, j) => {
        const key = keys.row(j);
        let sum = 0;
        for (let c = 0; c < weight.length; c++) sum += Math.tanh(query[c] + key[c]) * weight[c];
        return sum;
      }),
  };
}

function inner(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let c = 0; c < a.length; c++) sum += a[c] * b[c];
  return sum;
}
