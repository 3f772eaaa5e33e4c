// The feed-forward network of a block: two matrices with a nonlinearity between. regard/layers/feedforward.py; E2.
import { Matrix, sigmoid } from "../arrays/matrix";
import { Linear, type Parameters } from "./parameters";

type Activation = (x: number) => number;

/** The error function; Abramowitz & Stegun give series and continued fraction. Exact to about 1e-15. */
function erf(x: number): number {
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  if (z < 2.5) {
    // erf z = 2/√π Σ (-1)^n z^(2n+1) / (n! (2n+1))
    let term = z;
    let sum = z;
    for (let n = 1; Math.abs(term) > 1e-17 * sum; n++) {
      term *= (-z * z) / n;
      sum += term / (2 * n + 1);
    }
    return Math.sign(x) * sum * (2 / Math.sqrt(Math.PI));
  }
  let fraction = 0; // erfc z = exp(-z²)/√π · 1/(z + 1/2/(z + 1/(z + 3/2/(z + …))))
  for (let n = 60; n > 0; n--) fraction = n / 2 / (z + fraction);
  return Math.sign(x) * (1 - Math.exp(-z * z) / Math.sqrt(Math.PI) / (z + fraction));
}

const silu: Activation = (x) => x * sigmoid(x);
const geluTanh: Activation = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const ACTIVATIONS: Record<string, Activation> = {
  relu: (x) => Math.max(x, 0),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  "gelu-tanh": geluTanh,
  silu,
};
const GATES: Record<string, Activation> = { swiglu: silu, "geglu-tanh": geluTanh };

export class FeedForward {
  readonly up: Linear;
  readonly down: Linear;

  constructor(
    parameters: Parameters,
    name: string,
    readonly activation: string,
  ) {
    this.up = parameters.linear(`${name}.up`);
    this.down = parameters.linear(`${name}.down`);
  }

  apply(x: Matrix): Matrix {
    return this.down.apply(this.activate(this.up.apply(x)));
  }

  activate(x: Matrix): Matrix {
    const gate = GATES[this.activation];
    if (!gate) return new Matrix(x.rows, x.cols, x.data.map(ACTIVATIONS[this.activation]));
    const half = x.cols / 2;
    const out = new Matrix(x.rows, half);
    for (let i = 0; i < x.rows; i++)
      for (let c = 0; c < half; c++) out.row(i)[c] = gate(x.row(i)[c]) * x.row(i)[half + c];
    return out;
  }
}
