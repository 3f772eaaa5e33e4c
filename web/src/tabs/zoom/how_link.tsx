// The question under a pinned weight, which leads into the Zoom tab.
import type { Choice } from "../../maths/grid";
import { sceneTrace } from "../../state/api";
import type { Span } from "../../maths/words";
import type { AttentionMap, MapName, Trace } from "../../state/trace";
import { openZoom } from "./place";

interface HowProps {
  trace: Trace;
  map: MapName;
  row: Span; // the pinned words or subwords
  col: Span;
  weight: number;
  layer?: number;
  head?: number;
  testid: string;
}

/** "How is 0.43 made?" for a pinned weight. A lecture scene has its own picture and asks nothing. */
export function HowLink(props: HowProps) {
  if (sceneTrace.value || props.map === "pointer") return null;
  return (
    <button
      type="button"
      class="link"
      data-testid={`${props.testid}-how`}
      title="Zoom in: from the sentence to the head, the query and the key, the score, the softmax and the sum"
      onClick={() => openZoom({ ...props, ...strongestPiece(props), model: props.trace.model.name })}
    >
      How is {props.weight.toFixed(2)} made? →
    </button>
  );
}

/** The layer and head of a choice of weights, where it is a single one. */
export function headOf({ layer, head, aligned }: Choice): { layer?: number; head?: number } {
  if (aligned) return {};
  return { layer: layer === "all" ? undefined : layer, head: typeof head === "number" ? head : undefined };
}

/** Of the subwords of two words, the pair with the largest weight, in one head or on average. */
function strongestPiece({ trace, map, row, col, layer, head }: HowProps): { row: number; col: number } {
  const attention = trace.maps[map]!;
  let best = { row: row.start, col: col.start, weight: -1 };
  for (let i = row.start; i < row.end; i++) {
    for (let j = col.start; j < col.end; j++) {
      const weight = meanWeight(attention, i, j, layer, head);
      if (weight > best.weight) best = { row: i, col: j, weight };
    }
  }
  return { row: best.row, col: best.col };
}

/** The weight of a cell in one head, or its mean over heads and layers. */
export function meanWeight(map: AttentionMap, row: number, col: number, layer?: number, head?: number): number {
  let [sum, count] = [0, 0];
  for (let l = 0; l < map.layers; l++) {
    for (let h = 0; h < map.heads; h++) {
      if ((layer ?? l) !== l || (head ?? h) !== h) continue;
      sum += map.weights[((l * map.heads + h) * map.rows + row) * map.cols + col];
      count++;
    }
  }
  return count ? sum / count : 0;
}
