// The parameters of a model by name, as its modules ask for them.
import { asMatrix, linear, type Matrix, type Tensor } from "../arrays/matrix";
import { RequestError } from "../errors";

export class Parameters {
  constructor(readonly tensors: Map<string, Tensor>) {}

  has(name: string): boolean {
    return this.tensors.has(name);
  }

  tensor(name: string): Tensor {
    const tensor = this.tensors.get(name);
    if (!tensor) throw new RequestError(`the weight ${name} is missing`);
    return tensor;
  }

  matrix(name: string): Matrix {
    return asMatrix(this.tensor(name));
  }

  vector(name: string): Float32Array | null {
    return this.tensors.get(name)?.data ?? null;
  }

  linear(name: string): Linear {
    return new Linear(`${name}.weight`, this.matrix(`${name}.weight`), this.vector(`${name}.bias`), `${name}.bias`);
  }
}

/** x W^T + b. */
export class Linear {
  constructor(
    readonly weightName: string,
    readonly weight: Matrix,
    readonly bias: Float32Array | null,
    readonly biasName: string,
  ) {}

  apply(x: Matrix, start = 0, end = this.weight.rows): Matrix {
    return linear(x, this.weight, this.bias, start, end);
  }
}
