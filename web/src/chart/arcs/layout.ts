// Where arcs between two lines of words go: queries below, keys above, one curve for each weight that is worth it.
import { line, curveBumpY } from "d3-shape";
import type { Grid } from "../../maths/grid";

export interface Label {
  text: string;
  x: number; // its middle
  width: number;
}

export interface Arc {
  row: number;
  column: number;
  weight: number;
  path: string;
}

export const GAP = 14;

/** Words side by side, each with the room that it needs; returns their places and the width of the whole line. */
export function lineUp(texts: string[], measure: (text: string) => number, rightToLeft: boolean): [Label[], number] {
  const widths = texts.map((text) => Math.max(measure(text), 12));
  const total = widths.reduce((sum, width) => sum + width + GAP, GAP);
  let at = GAP;
  const labels = texts.map((text, i) => {
    const middle = at + widths[i] / 2;
    at += widths[i] + GAP;
    return { text, x: rightToLeft ? total - middle : middle, width: widths[i] };
  });
  return [labels, total];
}

/** The shorter line is spread over the whole width. */
export function spread(labels: Label[], own: number, all: number): Label[] {
  return labels.map((label) => ({ ...label, x: (label.x * all) / own }));
}

/** The arcs of all weights from a least one on, heaviest last so that they lie on top; at most `most`. */
export function layArcs(
  grid: Grid,
  keys: Label[],
  queries: Label[],
  top: number,
  bottom: number,
  least: number,
  most: number,
): Arc[] {
  const curve = line().curve(curveBumpY);
  const cells: Arc[] = [];
  for (let row = 0; row < grid.rows; row++) {
    for (let column = 0; column < grid.cols; column++) {
      const weight = grid.values[row * grid.cols + column];
      if (weight >= least && weight > 0) cells.push({ row, column, weight, path: "" });
    }
  }
  cells.sort((a, b) => b.weight - a.weight);
  const kept = cells.slice(0, most).reverse();
  for (const arc of kept) {
    arc.path =
      curve([
        [keys[arc.column].x, top],
        [queries[arc.row].x, bottom],
      ]) ?? "";
  }
  return kept;
}
