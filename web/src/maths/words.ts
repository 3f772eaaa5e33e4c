// Merges subwords into words, as regard/look/trace/words.py does: mean over the rows of a word, sum over its columns.
import type { Axis, Token } from "../state/trace";
import type { Grid } from "./grid";

export interface Span {
  text: string;
  start: number; // index of its first subword
  end: number; // index after its last subword
  special: boolean;
  pad: boolean;
}

/** A span for each subword. */
export function pieceSpans(axis: Axis): Span[] {
  return axis.tokens.map((token, i) => spanOf(token, token.text, i, i + 1));
}

/** A span for each word, and for each token that belongs to no word. */
export function wordSpans(axis: Axis): Span[] {
  const spans: Span[] = [];
  let open: number | null = null;
  axis.tokens.forEach((token, i) => {
    const word = token.word;
    if (word !== null && word === open) spans[spans.length - 1].end = i + 1;
    else spans.push(spanOf(token, word === null ? token.text : axis.words[word], i, i + 1));
    open = word;
  });
  return spans;
}

function spanOf(token: Token, text: string, start: number, end: number): Span {
  return { text, start, end, special: token.special, pad: token.pad };
}

/** Merges a grid into spans; the rows still sum to one. */
export function mergeSpans(grid: Grid, queries: Span[], keys: Span[]): Grid {
  const [m, n] = [queries.length, keys.length];
  if (m === grid.rows && n === grid.cols) return grid;
  const values = new Float32Array(m * n);
  const mask = grid.mask === null ? null : new Uint8Array(m * n);
  queries.forEach((query, i) =>
    keys.forEach((key, j) => {
      let sum = 0;
      for (let row = query.start; row < query.end; row++) {
        for (let column = key.start; column < key.end; column++) {
          const at = row * grid.cols + column;
          sum += grid.values[at];
          if (mask !== null && grid.mask![at]) mask[i * n + j] = 1;
        }
      }
      values[i * n + j] = sum / (query.end - query.start);
    }),
  );
  return { rows: m, cols: n, values, mask };
}
