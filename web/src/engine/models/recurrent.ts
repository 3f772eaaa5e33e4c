// Recurrent layers: RNN, GRU and LSTM, in one or both directions. regard/layers/cells.py, regard/layers/recurrent.py; C1.
import { Matrix, dot, sigmoid } from "../arrays/matrix";
import type { Parameters } from "./parameters";

export type Cell = "rnn" | "gru" | "lstm";

/** The state of one layer in one direction: h, and of an LSTM c. */
export interface CellState {
  h: Float32Array;
  c: Float32Array | null;
}

/** The gates and the new state of one step, by their letters in the equations. */
export type StepValues = Record<string, Float32Array>;

/** The letters of what a cell computes. */
export const QUANTITIES: Record<Cell, string[]> = {
  lstm: ["i", "f", "g", "o", "c", "h"],
  gru: ["r", "z", "n", "h"],
  rnn: ["h"],
};

/** One layer in one direction. */
export class RecurrentCell {
  readonly hidden: number;
  readonly inputWeight: Matrix;
  readonly stateWeight: Matrix;
  private readonly inputBias: Float32Array | null;
  private readonly stateBias: Float32Array | null;

  constructor(
    parameters: Parameters,
    readonly kind: Cell,
    name: string,
    suffix: string,
  ) {
    this.inputWeight = parameters.matrix(`${name}.weight_ih_${suffix}`);
    this.stateWeight = parameters.matrix(`${name}.weight_hh_${suffix}`);
    this.inputBias = parameters.vector(`${name}.bias_ih_${suffix}`);
    this.stateBias = parameters.vector(`${name}.bias_hh_${suffix}`);
    this.hidden = this.stateWeight.cols;
  }

  zero(): CellState {
    const h = new Float32Array(this.hidden);
    return { h, c: this.kind === "lstm" ? h : null };
  }

  /** The products of the state with its weights, one for each gate. */
  stateProduct(h: Float32Array): Float64Array {
    return product(this.stateWeight, h, this.stateBias);
  }

  /** The gates and the next state. */
  step(x: Float32Array, { h, c }: CellState): StepValues {
    const fromInput = product(this.inputWeight, x, this.inputBias);
    const fromState = this.stateProduct(h);
    const H = this.hidden;
    const gate = (number: number, f: (x: number) => number) =>
      Float32Array.from({ length: H }, (_, j) => f(fromInput[number * H + j] + fromState[number * H + j]));
    if (this.kind === "rnn") return { h: gate(0, Math.tanh) };
    if (this.kind === "gru") {
      const r = gate(0, sigmoid);
      const z = gate(1, sigmoid);
      const n = r.map((value, j) => Math.tanh(fromInput[2 * H + j] + value * fromState[2 * H + j]));
      return { r, z, n, h: n.map((value, j) => (1 - z[j]) * value + z[j] * h[j]) };
    }
    const [i, f, g, o] = [gate(0, sigmoid), gate(1, sigmoid), gate(2, Math.tanh), gate(3, sigmoid)];
    const next = f.map((value, j) => value * c![j] + i[j] * g[j]);
    return { i, f, g, o, c: next, h: next.map((value, j) => o[j] * Math.tanh(value)) };
  }
}

function product(weight: Matrix, x: Float32Array, bias: Float32Array | null): Float64Array {
  const out = new Float64Array(weight.rows);
  for (let o = 0; o < weight.rows; o++) out[o] = dot(weight.data, o * weight.cols, x, 0, weight.cols) + (bias ? bias[o] : 0);
  return out;
}

export function stateOf(values: StepValues): CellState {
  return { h: values.h, c: values.c ?? null };
}

/** What one layer computed along a text, in one direction; entry t belongs to token t. */
export interface LayerRun {
  layer: number;
  backwards: boolean;
  steps: StepValues[];
}

/** Recurrent layers on top of each other. */
export class Recurrent {
  readonly layers: RecurrentCell[][]; // by depth and direction

  constructor(parameters: Parameters, name: string, kind: Cell, depth: number, bidirectional: boolean) {
    const directions = bidirectional ? ["", "_reverse"] : [""];
    this.layers = Array.from({ length: depth }, (_, layer) =>
      directions.map((suffix) => new RecurrentCell(parameters, kind, name, `l${layer}${suffix}`)),
    );
  }

  /** All states along a text, from zero. */
  run(inputs: Float32Array[]): LayerRun[] {
    const runs: LayerRun[] = [];
    this.layers.forEach((directions, layer) => {
      const ran = directions.map((cell, d) => ({ layer, backwards: d === 1, steps: along(cell, inputs, d === 1) }));
      runs.push(...ran);
      inputs = inputs.map((_, t) => joined(ran.map(({ steps }) => steps[t].h)));
    });
    return runs;
  }

  /** One step of all layers, which read in one direction: the output of the last one and the new states. */
  step(x: Float32Array, states: CellState[]): { output: Float32Array; states: CellState[] } {
    const next = this.layers.map(([cell], layer) => {
      const state = stateOf(cell.step(x, states[layer]));
      x = state.h;
      return state;
    });
    return { output: x, states: next };
  }
}

function along(cell: RecurrentCell, inputs: Float32Array[], backwards: boolean): StepValues[] {
  const steps: StepValues[] = [];
  let state = cell.zero();
  for (let i = 0; i < inputs.length; i++) {
    const t = backwards ? inputs.length - 1 - i : i;
    steps[t] = cell.step(inputs[t], state);
    state = stateOf(steps[t]);
  }
  return steps;
}

export function joined(parts: Float32Array[]): Float32Array {
  const out = new Float32Array(parts.reduce((total, { length }) => total + length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
