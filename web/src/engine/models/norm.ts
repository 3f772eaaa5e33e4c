// Normalization over the numbers of one token: LayerNorm and RMSNorm. regard/layers/normalization.py; E1.
import { Matrix } from "../arrays/matrix";
import type { Parameters } from "./parameters";

export class Norm {
  private constructor(
    readonly name: string,
    readonly kind: "layer" | "rms",
    readonly weight: Float32Array,
    readonly bias: Float32Array | null,
    readonly eps: number,
  ) {}

  static read(parameters: Parameters, name: string, kind: string, eps: number): Norm {
    const weight = parameters.tensor(`${name}.weight`).data;
    return new Norm(name, kind === "rms" ? "rms" : "layer", weight, parameters.vector(`${name}.bias`), eps);
  }

  apply(x: Matrix): Matrix {
    const out = new Matrix(x.rows, x.cols);
    for (let i = 0; i < x.rows; i++) this.applyRow(x.row(i), out.row(i));
    return out;
  }

  private applyRow(x: Float32Array, out: Float32Array): void {
    const width = x.length;
    let mean = 0;
    if (this.kind === "layer") {
      for (const value of x) mean += value;
      mean /= width;
    }
    let square = 0;
    for (const value of x) square += (value - mean) ** 2;
    const scale = 1 / Math.sqrt(square / width + this.eps);
    for (let c = 0; c < width; c++) out[c] = (x[c] - mean) * scale * this.weight[c] + (this.bias ? this.bias[c] : 0);
  }
}
