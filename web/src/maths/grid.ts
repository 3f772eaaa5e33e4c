// One picture of weights, rows by cols, taken from a map of a trace: a head, a mean, a maximum, words or pieces.
import type { AttentionMap } from "../state/trace";

export interface Grid {
  rows: number;
  cols: number;
  values: Float32Array; // row by row
  mask: Uint8Array | null; // 1 where a query may look; null: everywhere
}

/** Which weights of a map: a layer's head, or a mix of all heads of a layer or of all layers. */
export interface Choice {
  layer: number | "all";
  head: number | "mean" | "max";
}

/** The weights that a choice asks for. */
export function takeGrid(map: AttentionMap, choice: Choice): Grid {
  const { layers, heads, rows, cols, mask } = map;
  const size = rows * cols;
  const each = choice.layer === "all" ? range(layers) : [choice.layer];
  const sides = typeof choice.head === "number" ? [choice.head] : range(heads);
  const values = new Float32Array(size);
  for (const layer of each) {
    for (const head of sides) {
      const start = (layer * heads + head) * size;
      for (let i = 0; i < size; i++) {
        const weight = map.weights[start + i];
        if (choice.head === "max") values[i] = Math.max(values[i], weight);
        else values[i] += weight / (each.length * sides.length);
      }
    }
  }
  return { rows, cols, values, mask };
}

/** The grid without some of its rows and cols. */
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

/** Weights below a least one become 0. */
export function cutBelow(grid: Grid, least: number): Grid {
  return least <= 0 ? grid : { ...grid, values: grid.values.map((weight) => (weight < least ? 0 : weight)) };
}

/** a - b, cell by cell. */
export function difference(a: Grid, b: Grid): Grid {
  return { ...a, values: a.values.map((weight, i) => weight - b.values[i]) };
}

/** The place among so many that a number from the URL means; the nearest where there is no such place. */
export function clamp(place: number, length: number): number {
  return Math.min(Math.max(Math.trunc(place) || 0, 0), Math.max(length - 1, 0));
}

export function range(length: number): number[] {
  return Array.from({ length }, (_, i) => i);
}
