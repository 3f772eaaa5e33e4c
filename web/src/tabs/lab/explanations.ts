// The calculation of a cell of the Lab in text form.
import { equals, factor, fixed, short } from "../../text/numbers";
import { dot, hidden, product, scaleOf, type LabInput, type LabResult } from "./attention";
import type { StageName } from "./state";

/** a1·b1 + a2·b2 + … */
function sum(a: number[], b: number[]): string {
  return a.map((value, i) => `${factor(value)}·${factor(b[i])}`).join(" + ");
}

function vector(values: number[]): string {
  return `(${values.map((value) => short(value)).join(", ")})`;
}

/** The lines that explain cell (i, j) of a stage; the last line ends with the result. */
export function explain(stage: StageName, i: number, j: number, input: LabInput, result: LabResult): string[] {
  if (stage === "raw") return explainScore(i, j, input, result.raw[i][j]);
  if (stage === "scaled") return explainScale(input, result.raw[i][j], result.scaled[i][j]);
  if (stage === "masked") return explainMask(i, j, result);
  if (stage === "weights") return explainSoftmax(j, input.temperature, result.masked[i], result.weights[i]);
  const column = input.v.map((row) => row[j]);
  return [`${sum(result.weights[i], column)} ${equals(result.out[i][j])} ${short(result.out[i][j])}`];
}

function explainScore(i: number, j: number, input: LabInput, score: number): string[] {
  const [q, k] = [input.q[i], input.k[j]];
  const end = `${equals(score)} ${short(score)}`;
  if (input.score === "general") {
    const projected = product([q], input.w)[0];
    return [`q W = ${vector(projected)}`, `${sum(projected, k)} ${end}`];
  }
  if (input.score === "additive") {
    const [fromQuery, fromKey] = [input.wq.map((row) => dot(row, q)), input.wk.map((row) => dot(row, k))];
    return [
      `W_q q + W_k k = ${vector(fromQuery)} + ${vector(fromKey)} = ${vector(fromQuery.map((value, r) => value + fromKey[r]))}`,
      `tanh(…) = ${vector(hidden(input, q, k))}`,
      `${sum(input.w[0], hidden(input, q, k))} ${end}`,
    ];
  }
  return [`${sum(q, k)} ${end}`];
}

function explainScale(input: LabInput, raw: number, scaled: number): string[] {
  if (scaleOf(input) === 1) return [`not scaled: ${short(scaled)}`];
  return [`${factor(raw)} / √${input.k[0].length} ${equals(scaled)} ${short(scaled)}`];
}

function explainMask(i: number, j: number, result: LabResult): string[] {
  const value = result.masked[i][j];
  return [value === null ? `masked: ${short(result.scaled[i][j])} becomes −∞` : `not masked: ${short(value)} is unchanged`];
}

function explainSoftmax(j: number, temperature: number, scores: (number | null)[], weights: number[]): string[] {
  const seen = scores.filter((score): score is number => score !== null);
  if (!seen.length) return ["All scores of this row are masked, so all weights are 0"];
  if (scores[j] === null) return [`e^(−∞) = 0, so the weight is 0`];
  const power = (score: number) =>
    temperature === 1 ? `e^${factor(score)}` : `e^(${short(score)}/${short(temperature)})`;
  const value = (score: number) => Math.exp(score / temperature);
  const score = scores[j];
  return [
    `${power(score)} / (${seen.map(power).join(" + ")})`,
    `${short(value(score))} / (${seen.map((other) => short(value(other))).join(" + ")}) ${equals(weights[j])} ${fixed(weights[j])}`,
  ];
}

/** The rows and columns that a cell is computed from; they are highlighted. */
export function inputsOf(stage: StageName, i: number, j: number): { matrix: string; row?: number; col?: number }[] {
  switch (stage) {
    case "raw":
      return [
        { matrix: "q", row: i },
        { matrix: "k", row: j },
      ];
    case "scaled":
      return [{ matrix: "raw", row: i, col: j }];
    case "masked":
      return [{ matrix: "scaled", row: i, col: j }];
    case "weights":
      return [{ matrix: "masked", row: i }];
    case "out":
      return [
        { matrix: "weights", row: i },
        { matrix: "v", col: j },
      ];
  }
}
