// Where everything of the Zoom tab is at each level. The same words, strips and numbers move from level to level.

export interface Spot {
  left: number;
  top: number;
  width: number;
  height: number;
  opacity: number;
}

export interface Stage {
  height: number;
  keyWord: (j: number) => Spot;
  queryWord: (i: number) => Spot;
  queryStrip: Spot;
  keyStrip: (j: number) => Spot;
  products: Spot;
  step: (j: number, step: number) => Spot; // a number on the way from the score to the weight
  valueStrip: (j: number) => Spot;
  sum: Spot;
  arcs: number; // opacity
  chosen: number; // the key
}

interface StageInput {
  level: number;
  width: number;
  queries: number;
  keys: number;
  row: number;
  col: number;
  steps: number;
  weight: (j: number) => number;
}

const LINE = 30; // height of a word
const TOP = 88; // of the first key, where keys are rows
const ARCS_HEIGHT = 300;
const STRIP = 36; // height of a strip of the dot product

export function layStage(input: StageInput): Stage {
  const { level, width, keys, row, col, steps } = input;
  const words = Math.min(150, width * 0.26); // the column of the words
  const left = words + 14;
  const room = width - left;
  const rowHeight = Math.max(18, Math.min(32, 330 / keys));
  const below = TOP + keys * rowHeight;
  const inLine = level < 2;
  const height = inLine ? ARCS_HEIGHT : level === 3 ? 300 : below + (level === 5 ? 64 : 16);
  const spot = (x: number, y: number, w: number, h: number, opacity = 1): Spot => ({
    left: x, top: y, width: w, height: h, opacity,
  });
  const inRow = (i: number, count: number, y: number, opacity: number) =>
    spot((i * width) / count, y, width / count, LINE, opacity);
  const keyTop = (j: number) => TOP + j * rowHeight;
  const shown = (j: number) => (level === 3 ? (j === col ? 1 : 0) : 1);
  const stepWidth = Math.min(230, room / Math.max(1, steps));
  const valuesLeft = left + 84;
  return {
    height,
    keyWord: (j) =>
      inLine
        ? inRow(j, keys, 6, level === 0 || j === col ? 1 : 0.75)
        : level === 3 && j === col
          ? spot(0, 100, words, STRIP)
          : spot(0, keyTop(j), words, rowHeight, shown(j)),
    queryWord: (i) =>
      inLine
        ? inRow(i, input.queries, ARCS_HEIGHT - LINE - 6, level === 0 || i === row ? 1 : 0.35)
        : spot(0, level === 3 ? 36 : 28, words, level === 3 ? STRIP : LINE, i === row ? 1 : 0),
    queryStrip: inLine
      ? spot(((row + 0.5) * width) / input.queries, ARCS_HEIGHT - LINE, 0, 8, 0)
      : spot(left, level === 3 ? 36 : 30, room, level === 3 ? STRIP : 24, level < 4 ? 1 : 0),
    keyStrip: (j) =>
      inLine
        ? spot(((j + 0.5) * width) / keys, 20, 0, 8, 0)
        : level === 3 && j === col
          ? spot(left, 100, room, STRIP)
          : level > 3
            ? spot(left, keyTop(j) + 3, 2, rowHeight - 6, 0)
            : spot(left, keyTop(j) + 3, room, rowHeight - 6, shown(j)),
    products: spot(left, level < 3 ? 110 : level === 3 ? 176 : keyTop(col), level > 3 ? 40 : room, level === 3 ? STRIP : 12, level === 3 ? 1 : 0),
    step: (j, k) => {
      const last = k === steps - 1;
      if (level === 5 && last) return spot(left, keyTop(j), 76, rowHeight);
      const x = left + (level === 5 ? 0 : k * stepWidth);
      return spot(x, keyTop(j), stepWidth - 8, rowHeight, level === 4 ? 1 : 0);
    },
    valueStrip: (j) =>
      level === 5
        ? spot(valuesLeft, keyTop(j) + 3, width - valuesLeft, rowHeight - 6, 0.12 + 0.88 * input.weight(j))
        : spot(width, keyTop(j) + 3, 0, rowHeight - 6, 0),
    sum: level === 5 ? spot(valuesLeft, below + 18, width - valuesLeft, 30) : spot(valuesLeft, below - 20, width - valuesLeft, 4, 0),
    arcs: inLine ? 1 : 0,
    chosen: col,
  };
}
