// How far back the gradients of a recurrent net reach: backpropagation through time. regard/look/pictures/gradients.py; C3.
import { Matrix, dot } from "../arrays/matrix";
import type { LayerRun, Recurrent, RecurrentCell, StepValues } from "../models/recurrent";
import type { Pause } from "../search/search";

/** The derivatives of all outputs of the last step with respect to a state, one row for each output. */
interface Adjoint {
  h: Matrix;
  c: Matrix;
}

/** The norms of d h_T / d x_{T-k} by k, over the last `most` tokens. */
export async function gradientNorms(net: Recurrent, inputs: Float32Array[], runs: LayerRun[], most: number, pause: Pause): Promise<number[]> {
  const cells = net.layers.map(([cell]) => cell);
  const outputs = cells.at(-1)!.hidden;
  const adjoints = cells.map(({ hidden }): Adjoint => ({ h: new Matrix(outputs, hidden), c: new Matrix(outputs, hidden) }));
  for (let o = 0; o < outputs; o++) adjoints.at(-1)!.h.row(o)[o] = 1;
  const norms: number[] = [];
  for (let t = inputs.length - 1; t >= Math.max(0, inputs.length - most); t--) {
    await pause();
    let below: Matrix | null = null; // with respect to the input of the layer above
    for (let layer = cells.length - 1; layer >= 0; layer--) {
      const steps = runs[layer].steps;
      if (below) adjoints[layer].h.data.forEach((value, i) => (adjoints[layer].h.data[i] = value + below!.data[i]));
      const before = steps[t - 1] ?? { h: new Float32Array(cells[layer].hidden), c: new Float32Array(cells[layer].hidden) };
      below = stepBack(cells[layer], steps[t], before, adjoints[layer]);
    }
    norms.push(Math.sqrt(dot(below!.data, 0, below!.data, 0, below!.data.length)));
  }
  return norms;
}

/** Moves the adjoint of a state to the state before; gives the one of the input. */
function stepBack(cell: RecurrentCell, now: StepValues, before: StepValues, adjoint: Adjoint): Matrix {
  const H = cell.hidden;
  const outputs = adjoint.h.rows;
  const gates = cell.inputWeight.rows;
  const fromInput = new Matrix(outputs, gates); // with respect to the sums inside the gates
  const fromState = cell.kind === "gru" ? new Matrix(outputs, gates) : fromInput;
  const kept = new Matrix(outputs, H); // what reaches the state before without passing a gate's sum
  const content = cell.kind === "gru" ? cell.stateProduct(before.h).subarray(2 * H) : null; // W_hn h + b_hn
  for (let o = 0; o < outputs; o++)
    for (let j = 0; j < H; j++) {
      const dh = adjoint.h.row(o)[j];
      const put = (gate: number, value: number) => (fromInput.row(o)[gate * H + j] = value);
      if (cell.kind === "rnn") put(0, dh * (1 - now.h[j] ** 2));
      else if (cell.kind === "gru") {
        const [r, z, n] = [now.r[j], now.z[j], now.n[j]];
        const dn = dh * (1 - z) * (1 - n * n);
        put(0, dn * content![j] * r * (1 - r));
        put(1, dh * (before.h[j] - n) * z * (1 - z));
        put(2, dn);
        kept.row(o)[j] = dh * z;
      } else {
        const [i, f, g, out] = [now.i[j], now.f[j], now.g[j], now.o[j]];
        const curved = Math.tanh(now.c[j]);
        const dc = adjoint.c.row(o)[j] + dh * out * (1 - curved * curved);
        put(0, dc * g * i * (1 - i));
        put(1, dc * before.c[j] * f * (1 - f));
        put(2, dc * i * (1 - g * g));
        put(3, dh * curved * out * (1 - out));
        adjoint.c.row(o)[j] = dc * f;
      }
    }
  if (cell.kind === "gru") {
    fromState.data.set(fromInput.data);
    for (let o = 0; o < outputs; o++) for (let j = 0; j < H; j++) fromState.row(o)[2 * H + j] *= now.r[j];
  }
  adjoint.h.data.set(product(fromState, cell.stateWeight, kept).data);
  return product(fromInput, cell.inputWeight, new Matrix(outputs, cell.inputWeight.cols));
}

/** x (m, q) times W (q, p), plus y (m, p). */
function product(x: Matrix, weight: Matrix, y: Matrix): Matrix {
  for (let i = 0; i < x.rows; i++) {
    const sums = Float64Array.from(y.row(i));
    for (let g = 0; g < weight.rows; g++) {
      const factor = x.data[i * x.cols + g];
      if (factor === 0) continue;
      const at = g * weight.cols;
      for (let c = 0; c < sums.length; c++) sums[c] += factor * weight.data[at + c];
    }
    y.row(i).set(sums);
  }
  return y;
}
