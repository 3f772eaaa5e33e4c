// Where the parts of a matrix go: room for the labels first, the cells get the rest. All in CSS pixels.
import { labelSize, textWidth } from "../text_size";

export interface Layout {
  width: number;
  height: number;
  left: number;
  top: number;
  cellWidth: number;
  cellHeight: number;
  cellsWidth: number;
  cellsHeight: number;
  rowLabels: { place: number; text: string; y: number }[];
  colLabels: { place: number; text: string; x: number }[];
  turned: 0 | 45 | 90; // by how many degrees the column labels are turned
  rowTitle: { x: number; y: number } | null;
  colTitle: { x: number; y: number } | null;
  numbers: boolean; // whether the cells have room for their numbers
}

interface Wanted {
  rows: readonly string[];
  cols: readonly string[];
  rowTitle?: string;
  colTitle?: string;
  maxCell?: number;
  stretch?: boolean; // cells may be wider than high, as in tables whose sides mean different things
}

const LEGEND = 40; // height of the colour scale below the cells
const MOST_NUMBERS = 160;

export function layout(wanted: Wanted, available: number, presenting: boolean): Layout {
  const size = labelSize(presenting);
  const line = Math.round(size * 1.35);
  const titleRoom = line + 4;
  const { rows, cols } = wanted;
  const widest = (labels: readonly string[]) => labels.reduce((most, text) => Math.max(most, textWidth(text, size)), 0);
  const rowRoom = Math.min(widest(rows), available * 0.42);
  const left = Math.ceil(rowRoom) + 8 + (wanted.rowTitle ? titleRoom : 0);
  const most = wanted.maxCell ?? (presenting ? 64 : 48);
  const colRoom = widest(cols);
  // Slanted labels lean out over the right edge; a guess of the slant decides how much is left for the cells.
  const first = Math.min(most, (available - left - 2) / cols.length);
  const turned = colRoom + 8 <= first ? 0 : first >= line * 1.1 ? 45 : 90;
  const lean = turned === 45 ? Math.min(colRoom * 0.71, available * 0.2) : 0;
  const room = Math.max(0.2, Math.min(most, (available - left - lean - 2) / Math.max(1, cols.length)));
  const cellHeight = Math.min(room, (presenting ? 760 : 640) / rows.length); // no taller than a screen
  const cellWidth = wanted.stretch ? room : cellHeight;
  const up = turned === 0 ? line : turned === 45 ? colRoom * 0.71 + line * 0.6 : colRoom;
  const top = Math.ceil(up) + 10 + (wanted.colTitle ? titleRoom : 0);
  const cellsWidth = cellWidth * cols.length;
  const cellsHeight = cellHeight * rows.length;
  const every = (step: number, length: number) => Math.max(1, niceStep(step, length));
  const rowStep = every(line / cellHeight, rows.length);
  const colStep = every((turned === 0 ? colRoom + 8 : line) / cellWidth, cols.length);
  return {
    width: Math.ceil(Math.max(left + cellsWidth + lean, Math.min(available, left + 124)) + 2),
    height: Math.ceil(top + cellsHeight + LEGEND + (presenting ? 8 : 0)),
    left,
    top,
    cellWidth,
    cellHeight,
    cellsWidth,
    cellsHeight,
    turned,
    rowLabels: rows.flatMap((text, place) =>
      place % rowStep ? [] : [{ place, text: shortened(text, rowRoom, size), y: top + (place + 0.5) * cellHeight }],
    ),
    colLabels: cols.flatMap((text, place) =>
      place % colStep ? [] : [{ place, text, x: left + (place + 0.5) * cellWidth }],
    ),
    rowTitle: wanted.rowTitle ? { x: size, y: top + cellsHeight / 2 } : null,
    colTitle: wanted.colTitle ? { x: left + cellsWidth / 2, y: size + 1 } : null,
    numbers: rows.length * cols.length <= MOST_NUMBERS && cellWidth >= size * 2.7,
  };
}

/** 1 where everything fits, else a round number of places between two labels. */
function niceStep(least: number, length: number): number {
  return [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500].find((step) => step >= least) ?? length;
}

function shortened(text: string, room: number, size: number): string {
  if (textWidth(text, size) <= room + 1) return text;
  let kept = text;
  while (kept && textWidth(`${kept}…`, size) > room) kept = kept.slice(0, -1);
  return `${kept}…`;
}
