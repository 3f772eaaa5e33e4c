// The layout of a matrix in CSS pixels: labels first, the cells get the remaining space.
import { labelSize, shortened, textWidth } from "../text_size";

export interface Layout {
  width: number;
  height: number;
  left: number;
  top: number;
  cellWidth: number;
  cellHeight: number;
  cellsWidth: number;
  cellsHeight: number;
  rowLabels: { index: number; text: string; y: number }[];
  colLabels: { index: number; text: string; x: number }[];
  rotation: 0 | 45 | 90; // of the column labels, in degrees
  rowTitle: { x: number; y: number } | null;
  colTitle: { x: number; y: number } | null;
  numbers: boolean; // whether the cells are large enough for numbers
}

interface LayoutInput {
  rows: readonly string[];
  cols: readonly string[];
  rowTitle?: string;
  colTitle?: string;
  maxCell?: number;
  stretch?: boolean; // cells may be wider than they are high
  minRow?: number; // the least height of a row, if all rows fit on a screen with it
}

const LEGEND_HEIGHT = 40; // of the colour legend below the cells
const MAX_NUMBERS = 160;
const MAX_ROW_LABEL = 18; // widths of a letter: longer labels are shortened
const MAX_COLUMN_LABEL = 11;

export function layout(input: LayoutInput, available: number, presenting: boolean): Layout {
  const size = labelSize(presenting);
  const line = Math.round(size * 1.35);
  const titleRoom = line + 4;
  const { rows, cols } = input;
  const widest = (labels: readonly string[]) => labels.reduce((most, text) => Math.max(most, textWidth(text, size)), 0);
  const rowRoom = Math.min(widest(rows), available * 0.42, MAX_ROW_LABEL * size);
  const left = Math.ceil(rowRoom) + 8 + (input.rowTitle ? titleRoom : 0);
  const most = input.maxCell ?? (presenting ? 64 : 48);
  const colRoom = Math.min(widest(cols), MAX_COLUMN_LABEL * size);
  // Slanted labels extend over the right edge; a first guess of the cell size decides about the slant.
  const firstGuess = Math.min(most, (available - left - 2) / cols.length);
  const rotation = colRoom + 8 <= firstGuess ? 0 : firstGuess >= line * 1.1 ? 45 : 90;
  const lean = rotation === 45 ? Math.min(colRoom * 0.71, available * 0.2) : 0;
  const room = Math.max(0.2, Math.min(most, (available - left - lean - 2) / Math.max(1, cols.length)));
  const screen = (presenting ? 760 : 640) / rows.length; // no higher than a screen
  const cellHeight = Math.min(screen, Math.max(room, input.minRow ?? 0));
  const cellWidth = input.stretch ? room : cellHeight;
  const up = rotation === 0 ? line : rotation === 45 ? colRoom * 0.71 + line * 0.6 : colRoom;
  const top = Math.ceil(up) + 10 + (input.colTitle ? titleRoom : 0);
  const cellsWidth = cellWidth * cols.length;
  const cellsHeight = cellHeight * rows.length;
  const every = (step: number, length: number) => Math.max(1, niceStep(step, length));
  const rowStep = every(line / cellHeight, rows.length);
  const colStep = every((rotation === 0 ? colRoom + 8 : line) / cellWidth, cols.length);
  return {
    width: Math.ceil(Math.max(left + cellsWidth + lean, Math.min(available, left + 124)) + 2),
    height: Math.ceil(top + cellsHeight + LEGEND_HEIGHT + (presenting ? 8 : 0)),
    left,
    top,
    cellWidth,
    cellHeight,
    cellsWidth,
    cellsHeight,
    rotation,
    rowLabels: rows.flatMap((text, index) =>
      index % rowStep ? [] : [{ index, text: shortened(text, rowRoom, size), y: top + (index + 0.5) * cellHeight }],
    ),
    colLabels: cols.flatMap((text, index) =>
      index % colStep ? [] : [{ index, text: shortened(text, colRoom, size), x: left + (index + 0.5) * cellWidth }],
    ),
    rowTitle: input.rowTitle ? { x: size, y: top + cellsHeight / 2 } : null,
    colTitle: input.colTitle ? { x: left + cellsWidth / 2, y: size + 1 } : null,
    numbers: rows.length * cols.length <= MAX_NUMBERS && cellWidth >= size * 2.7,
  };
}

/** The distance between two labels: 1 if all fit, otherwise a round number. */
function niceStep(least: number, length: number): number {
  return [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500].find((step) => step >= least) ?? length;
}
