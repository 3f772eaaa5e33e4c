// A grid of weights, rows by columns, taken from an attention map: a head, or a mean or maximum over heads.
import type { AttentionMap } from "../state/trace";

export interface Grid {
  rows: number;
  cols: number;
  values: Float32Array; // in row-major order
  mask: Uint8Array | null; // 1 where a query may attend; null: everywhere
}

/** Which weights of a map: a head of a layer, or the mean or maximum over heads, of a layer or of all layers. */
export interface Choice {
  layer: number | "all";
  head: number | "mean" | "max";
  aligned?: boolean; // the alignment of the trace instead: the mean of several heads
}

/** The weights of a choice. */
export function takeGrid(map: AttentionMap, choice: Choice): Grid {
  const { layers, heads, rows, cols, mask } = map;
  const size = rows * cols;
  const layerList = choice.layer === "all" ? range(layers) : [choice.layer];
  const headList = typeof choice.head === "number" ? [choice.head] : range(heads);
  const values = new Float32Array(size);
  for (const layer of layerList) {
    for (const head of headList) {
      const start = (layer * heads + head) * size;
      for (let i = 0; i < size; i++) {
        const weight = map.weights[start + i];
        if (choice.head === "max") values[i] = Math.max(values[i], weight);
        else values[i] += weight / (layerList.length * headList.length);
      }
    }
  }
  return { rows, cols, values, mask };
}

/** The grid restricted to some of its rows and columns. */
export function keepCells(grid: Grid, rows: number[], cols: number[]): Grid {
  const values = new Float32Array(rows.length * cols.length);
  const mask = grid.mask === null ? null : new Uint8Array(values.length);
  rows.forEach((row, i) =>
    cols.forEach((column, j) => {
      values[i * cols.length + j] = grid.values[row * grid.cols + column];
      if (mask !== null) mask[i * cols.length + j] = grid.mask![row * grid.cols + column];
    }),
  );
  return { rows: rows.length, cols: cols.length, values, mask };
}

/** Sets weights below `least` to 0. */
export function cutBelow(grid: Grid, least: number): Grid {
  return least <= 0 ? grid : { ...grid, values: grid.values.map((weight) => (weight < least ? 0 : weight)) };
}

/** a - b, cell by cell. */
export function difference(a: Grid, b: Grid): Grid {
  return { ...a, values: a.values.map((weight, i) => weight - b.values[i]) };
}

/** The nearest valid index of a list of this length. */
export function clamp(index: number, length: number): number {
  return Math.min(Math.max(Math.trunc(index) || 0, 0), Math.max(length - 1, 0));
}

export function range(length: number): number[] {
  return Array.from({ length }, (_, i) => i);
}
