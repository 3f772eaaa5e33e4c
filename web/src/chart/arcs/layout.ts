// The layout of the arc diagram: a line of keys above, a line of queries below, one curve for each visible weight.
import { line, curveBumpY } from "d3-shape";
import type { Grid } from "../../maths/grid";

export interface Label {
  text: string;
  x: number; // centre
  width: number;
}

export interface Arc {
  row: number;
  column: number;
  weight: number;
  path: string;
}

/** Places words side by side; returns their labels and the total width of the line. */
export function lineUp(
  texts: string[],
  measure: (text: string) => number,
  rightToLeft: boolean,
  gap: number,
): [Label[], number] {
  const widths = texts.map((text) => Math.max(measure(text), 12));
  const total = widths.reduce((sum, width) => sum + width + gap, gap);
  let at = gap;
  const labels = texts.map((text, i) => {
    const middle = at + widths[i] / 2;
    at += widths[i] + gap;
    return { text, x: rightToLeft ? total - middle : middle, width: widths[i] };
  });
  return [labels, total];
}

/** Spreads a line of labels over a larger width. */
export function spread(labels: Label[], width: number, target: number): Label[] {
  return labels.map((label) => ({ ...label, x: (label.x * target) / width }));
}

/** The arcs of the `most` largest weights that are at least `least`; the largest come last and are drawn on top. */
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
  const largest = cells.slice(0, most).reverse();
  for (const arc of largest) {
    arc.path =
      curve([
        [queries[arc.row].x, bottom],
        [keys[arc.column].x, top],
      ]) ?? "";
  }
  return largest;
}
