// Which weights of a trace a tab shows: a map, a layer, a head or a mix of heads, between words or pieces.
import { clamp, cutBelow, keepCells, range, takeGrid, type Choice, type Grid } from "../maths/grid";
import { mergeSpans, pieceSpans, wordSpans, type Span } from "../maths/words";
import { MAP_NAMES, type AttentionMap, type MapName, type Trace } from "./trace";

export const TITLES: Record<MapName, string> = {
  enc_self: "Encoder",
  dec_self: "Decoder",
  cross: "Cross",
  rnn: "Recurrent",
};

export const MEANINGS: Record<MapName, string> = {
  enc_self: "the source looks at itself",
  dec_self: "the output looks at what was read before it",
  cross: "the output looks at the source",
  rnn: "the output looks at the source",
};

/** Weights as they are shown, with what stands at their rows and columns. */
export interface Shown {
  grid: Grid;
  rows: Span[];
  cols: Span[];
}

export interface How {
  words: boolean;
  hide?: boolean; // special tokens and padding
  cut?: number; // weights below it are shown as 0
}

export function mapsOf(trace: Trace): MapName[] {
  return MAP_NAMES.filter((name) => trace.maps[name]);
}

/** The map that aligns two texts, or where there is none the one that looks at the text itself. */
export function aligningMap(trace: Trace): MapName | undefined {
  const order: MapName[] = ["cross", "rnn", "dec_self", "enc_self"];
  return order.find((name) => trace.maps[name]);
}

/** "best" is the head that aligned best in training; where nobody looked for one, the mean of all. */
export function readChoice(trace: Trace, name: MapName, layer: string, head: string): Choice {
  const map = trace.maps[name]!;
  if (head === "best") {
    const best = name === "cross" || name === "rnn" ? trace.best_head : null;
    return best ? { layer: best.layer, head: best.head ?? "mean" } : { layer: "all", head: "mean" };
  }
  return {
    layer: layer === "all" ? "all" : clamp(Number(layer), map.layers),
    head: head === "mean" || head === "max" ? head : clamp(Number(head), map.heads),
  };
}

/** A choice in words; of a model with one head there is nothing to say. */
export function nameChoice(map: AttentionMap, choice: Choice): string {
  if (map.layers * map.heads === 1) return "";
  const heads =
    typeof choice.head === "number"
      ? `head ${choice.head}`
      : `${choice.head === "max" ? "maximum" : "mean"} of the heads`;
  return choice.layer === "all" ? `, ${heads} of all layers` : `, layer ${choice.layer}, ${heads}`;
}

/** A grid of a map between words or pieces, with or without special tokens. */
export function arrange(trace: Trace, name: MapName, grid: Grid, how: How): Shown {
  const map = trace.maps[name]!;
  const spans = how.words ? wordSpans : pieceSpans;
  let [rows, cols] = [spans(trace.axes[map.query]), spans(trace.axes[map.key])];
  let shown = mergeSpans(grid, rows, cols);
  if (how.hide) {
    const kept = (side: Span[]) => range(side.length).filter((i) => !side[i].special && !side[i].pad);
    shown = keepCells(shown, kept(rows), kept(cols));
    [rows, cols] = [rows, cols].map((side) => kept(side).map((i) => side[i]));
  }
  return { grid: cutBelow(shown, how.cut ?? 0), rows, cols };
}

export function pickWeights(trace: Trace, name: MapName, choice: Choice, how: How): Shown {
  return arrange(trace, name, takeGrid(trace.maps[name]!, choice), how);
}

/** What a cell of weights says. */
export function readCell({ grid, rows, cols }: Shown, row: number, col: number): string {
  return `“${rows[row].text}” looks at “${cols[col].text}” with ${grid.values[row * grid.cols + col].toFixed(4)}`;
}

/** A place of a grid as the URL has it, row.column; null where the grid has no such place. */
export function readPin(text: string, grid: { rows: number; cols: number }): readonly [number, number] | null {
  const [row, col] = /^\d+\.\d+$/.test(text) ? text.split(".").map(Number) : [Infinity, Infinity];
  return row < grid.rows && col < grid.cols ? [row, col] : null;
}

export function writePin(cell: readonly [number, number] | null): string {
  return cell === null ? "" : cell.join(".");
}
