// The tabs of the page, in their order.
import type { ComponentType } from "preact";
import { Alignment, alignmentCode } from "./alignment/alignment";
import { Compare, compareCode } from "./compare/compare";
import { Decode, decodeCode } from "./decode/decode";
import { Embeddings } from "./embeddings/embeddings";
import { embeddingsCode } from "./embeddings/state";
import { Heads, headsCode } from "./heads/heads";
import { Inside, insideCode } from "./inside/inside";
import { Lab, labTabCode } from "./lab/lab";
import { Lecture, lectureCode } from "./lecture/lecture";
import { Positions } from "./positions/positions";
import { positionsCode } from "./positions/state";
import { RandomFeatures } from "./random_features/random_features";
import { featuresCode } from "./random_features/state";
import { Recurrent } from "./recurrent/recurrent";
import { recurrentCode } from "./recurrent/state";

export interface Tab {
  id: string;
  title: string;
  view: ComponentType;
  code: () => string; // Python code that reproduces the view
}

export const TABS: readonly Tab[] = [
  { id: "alignment", title: "Alignment", view: Alignment, code: alignmentCode },
  { id: "heads", title: "Heads", view: Heads, code: headsCode },
  { id: "inside", title: "Inside", view: Inside, code: insideCode },
  { id: "decode", title: "Decode", view: Decode, code: decodeCode },
  { id: "compare", title: "Compare", view: Compare, code: compareCode },
  { id: "embeddings", title: "Embeddings", view: Embeddings, code: embeddingsCode },
  { id: "recurrent", title: "Recurrent", view: Recurrent, code: recurrentCode },
  { id: "lab", title: "Lab", view: Lab, code: labTabCode },
  { id: "positions", title: "Positions", view: Positions, code: positionsCode },
  { id: "features", title: "Random features", view: RandomFeatures, code: featuresCode },
  { id: "lecture", title: "Lecture", view: Lecture, code: lectureCode },
];

/** The keys that open the tabs, in their order; the last one is for Lecture. */
export const TAB_KEYS = [..."1234567890l"];

export function tabById(id: string): Tab | undefined {
  return TABS.find((tab) => tab.id === id);
}
