// Which attention weights of a trace a tab shows: a map, a layer, a head or an average, between words or subwords.
import { clamp, cutBelow, keepCells, range, takeGrid, type Choice, type Grid } from "../maths/grid";
import { mergeSpans, pieceSpans, wordSpans, type Span } from "../maths/words";
import { shownPiece } from "../text/pieces";
import { MAP_NAMES, type AttentionMap, type MapName, type Trace } from "./trace";

export const TITLES: Record<MapName, string> = {
  enc_self: "Encoder",
  dec_self: "Decoder",
  cross: "Cross",
  rnn: "Recurrent",
  pointer: "Pointer",
};

export const MEANINGS: Record<MapName, string> = {
  enc_self: "encoder self-attention: the source attends to itself",
  dec_self: "decoder self-attention: the output attends to the tokens before it",
  cross: "cross-attention: the output attends to the source",
  rnn: "recurrent attention: the output attends to the source",
  pointer: "pointer: the token of the source that the output may copy",
};

/** The titles of the axes of a map. */
export const AXIS_TITLES: Record<string, string> = { source: "source", target: "output", read: "decoder input" };

/** Weights as they are shown, with the words or subwords of their rows and columns. */
export interface Shown {
  grid: Grid;
  rows: Span[];
  cols: Span[];
  digits: number; // decimals of a read-out
}

export interface DisplayOptions {
  words: boolean;
  hide?: boolean; // special tokens and padding
  cut?: number; // smaller weights are shown as 0
}

export function mapsOf(trace: Trace): MapName[] {
  return MAP_NAMES.filter((name) => trace.maps[name]);
}

/** The map that aligns output and source; a model without one shows its self-attention. */
export function aligningMap(trace: Trace): MapName | undefined {
  const order: MapName[] = ["pointer", "cross", "rnn", "dec_self", "enc_self"];
  return order.find((name) => trace.maps[name]);
}

/**
 * Reads the choice of layer and head. "best" is the alignment of the trace, with the best head at the step that writes a
 * token as its layer and head. A trace without an alignment has the best head alone, or the mean if that is unknown.
 */
export function readChoice(trace: Trace, name: MapName, layer: string, head: string): Choice {
  const map = trace.maps[name]!;
  if (head === "best") {
    const best = name === "cross" || name === "rnn" ? trace.best_head : null;
    const aligned = best !== null && trace.alignment !== null;
    return best ? { layer: best.layer, head: best.head ?? "mean", aligned } : { layer: "all", head: "mean" };
  }
  return {
    layer: layer === "all" ? "all" : clamp(Number(layer), map.layers),
    head: head === "mean" || head === "max" ? head : clamp(Number(head), map.heads),
  };
}

/** A choice in words; empty for a model with a single head. */
export function nameChoice(map: AttentionMap, choice: Choice): string {
  if (map.layers * map.heads === 1) return "";
  if (choice.aligned) return ", the heads that align best";
  const heads =
    typeof choice.head === "number"
      ? `head ${choice.head}`
      : `${choice.head === "max" ? "maximum" : "mean"} over heads`;
  return choice.layer === "all" ? `, all layers, ${heads}` : `, layer ${choice.layer}, ${heads}`;
}

/** Arranges the weights of a map by words or subwords, with or without special tokens. */
export function arrange(trace: Trace, name: MapName, grid: Grid, options: DisplayOptions): Shown {
  const map = trace.maps[name]!;
  const spans = options.words ? wordSpans : pieceSpans;
  let [rows, cols] = [spans(trace.axes[map.query]), spans(trace.axes[map.key])];
  let shown = mergeSpans(grid, rows, cols);
  if (options.hide) {
    const visible = (side: Span[]) => range(side.length).filter((i) => !side[i].special && !side[i].pad);
    shown = keepCells(shown, visible(rows), visible(cols));
    [rows, cols] = [rows, cols].map((side) => visible(side).map((i) => side[i]));
  }
  return { grid: cutBelow(shown, options.cut ?? 0), rows, cols, digits: map.digits };
}

export function pickWeights(trace: Trace, name: MapName, choice: Choice, options: DisplayOptions): Shown {
  const grid = choice.aligned
    ? takeGrid(trace.alignment!, { layer: 0, head: 0 })
    : takeGrid(trace.maps[name]!, choice);
  return arrange(trace, name, grid, options);
}

/** The read-out of a cell. */
export function readCell({ grid, rows, cols, digits }: Shown, row: number, col: number): string {
  const weight = grid.values[row * grid.cols + col].toFixed(digits);
  return `“${shownPiece(rows[row].text)}” attends to “${shownPiece(cols[col].text)}” with weight ${weight}`;
}

/** Reads a cell from the URL, written as row.column; null if the grid has no such cell. */
export function readPin(text: string, grid: { rows: number; cols: number }): readonly [number, number] | null {
  const [row, col] = /^\d+\.\d+$/.test(text) ? text.split(".").map(Number) : [Infinity, Infinity];
  return row < grid.rows && col < grid.cols ? [row, col] : null;
}

export function writePin(cell: readonly [number, number] | null): string {
  return cell === null ? "" : cell.join(".");
}

/** The text with a capital letter at its start. */
export function cap(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
