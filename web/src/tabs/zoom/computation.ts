// The computation of one attention weight and of the output of its head, taken from the boxes of the Inside tab.
import { range } from "../../maths/grid";
import { calculate, type Calculation, type Numbers } from "../inside/arithmetic";
import type { Box } from "../inside/box";

/** A step from the score to the weight: a number for each key. */
export interface ScoreStep {
  title: string;
  how: string;
  values: ArrayLike<number>; // NaN where masked
}

export interface Computation {
  keys: string[];
  operands: [Vector, Vectors] | null; // what is multiplied: a vector, and one vector for each key; null if it is not shown
  query: Vector | null; // of a sum inside the score: what is added before it is multiplied
  scores: ScoreStep[]; // from the product to the weight
  values: Vectors;
  sum: Vector;
  product: (key: number, parameter: (name: string) => Numbers) => Calculation;
  parameter: string | null; // a parameter that the product needs
}

export interface Vector {
  title: string;
  values: ArrayLike<number>;
}

export interface Vectors {
  title: string;
  rows: ArrayLike<number>[];
}

/** Reads the computation of a part (self or cross) from the boxes of a block; null if the part is not there. */
export function readComputation(boxes: Box[], part: string): Computation | null {
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const weights = byId.get(`${part}.weights`);
  const sum = byId.get(`${part}.sum`);
  if (!weights || !sum) return null;
  const chain = [weights];
  while (chain[0].rule.op !== "dot" && chain[0].rule.of?.length) {
    const next = byId.get(chain[0].rule.of[0]);
    if (!next) return null;
    chain.unshift(next);
  }
  const score = chain[0];
  const [left, right] = score.rule.of!.map((id) => byId.get(id)!);
  const values = byId.get(sum.rule.of![1]);
  if (!values || score.rule.op !== "dot") return null;
  const additive = right === undefined;
  const query = byId.get(`${part}.q`) ?? null;
  return {
    keys: weights.rows ?? range(weights.numbers.values.length).map(String),
    operands: additive
      ? [{ title: "w", values: [] }, { title: "tanh(q + k)", rows: rowsOf(left) }]
      : [{ title: "query", values: left.numbers.values }, { title: "key", rows: rowsOf(right) }],
    query: additive && query ? { title: "query", values: query.numbers.values } : null,
    scores: chain.map((box) => ({ title: STEP_TITLES[box.rule.op] ?? box.title, how: box.how, values: box.numbers.values })),
    values: { title: values.title, rows: rowsOf(values) },
    sum: { title: sum.title, values: sum.numbers.values },
    product: (key, parameter) =>
      calculate(score.rule, score.numbers, key, (id) => byId.get(id)!.numbers, parameter),
    parameter: score.rule.weight ?? null,
  };
}

const STEP_TITLES: Record<string, string> = {
  dot: "score",
  scale: "scaled",
  mask: "masked",
  softmax: "weight",
  add: "with positions",
};

function rowsOf(box: Box): ArrayLike<number>[] {
  const [count, width] = box.shape;
  const values = box.numbers.values as Float64Array;
  return range(count).map((i) => values.subarray(i * width, (i + 1) * width));
}
