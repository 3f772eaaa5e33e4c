// Position schemes: vectors that are added to the embeddings (B2, B6), rotations of queries and keys (B7), and a
// penalty on the distance (B8). regard/positions.
import { Matrix } from "../arrays/matrix";
import type { StackSettings } from "../folder/config";

/** The sinusoidal vector of a position, in 64 bits; Vaswani et al. 2017, section 3.5. */
export function sinusoidal(position: number, settings: StackSettings): Float64Array {
  const { dim, position_start: start, frequency_start: first, position_base: base } = settings;
  const halves = settings.position_layout === "halves";
  const sines = Math.ceil(dim / 2);
  const out = new Float64Array(dim);
  for (let c = 0; c < sines; c++) {
    const angle = (position + start) * base ** ((-2 * (c + first)) / dim);
    const sine = halves ? c : 2 * c;
    const cosine = halves ? sines + c : 2 * c + 1;
    out[sine] = Math.sin(angle);
    if (cosine < dim) out[cosine] = Math.cos(angle);
  }
  return out;
}

/** Rotary positions: each pair of numbers of a query or key is rotated by the position times its frequency. */
export class Rotary {
  readonly turning: number; // numbers of a head that are rotated
  readonly frequencies: Float32Array;
  readonly layout: string;

  constructor({ keyWidth, rope_base, rope_fraction, rope_factor, rope_layout }: StackSettings) {
    this.turning = Math.floor(keyWidth * rope_fraction);
    this.layout = rope_layout;
    this.frequencies = Float32Array.from(
      { length: this.turning / 2 },
      (_, c) => Math.fround(1 / Math.fround(rope_base ** Math.fround((2 * c) / this.turning))) / rope_factor,
    );
  }

  /** Rotates each head of each row of x (m, heads · width) in place. */
  rotate(x: Matrix, positions: ArrayLike<number>, width: number): void {
    const half = this.turning / 2;
    const halves = this.layout === "halves";
    for (let i = 0; i < x.rows; i++) {
      const row = x.row(i);
      for (let c = 0; c < half; c++) {
        const angle = Math.fround(positions[i] * this.frequencies[c]);
        const cos = Math.cos(angle);
        const sin = Math.sin(angle);
        for (let start = 0; start < x.cols; start += width) {
          const a = start + (halves ? c : 2 * c);
          const b = start + (halves ? half + c : 2 * c + 1);
          [row[a], row[b]] = [row[a] * cos - row[b] * sin, row[b] * cos + row[a] * sin];
        }
      }
    }
  }
}

/** How fast the attention of each head falls with the distance; Press et al. 2022, section 3. */
export function alibiSlopes(heads: number): Float32Array {
  const power = 2 ** Math.floor(Math.log2(heads));
  return Float32Array.from({ length: heads }, (_, h) =>
    h < power ? 2 ** ((-8 * (h + 1)) / power) : 2 ** ((-8 * (2 * (h - power) + 1)) / (2 * power)),
  );
}
