// The tabs of the page, in their order.
import type { ComponentType } from "preact";
import { Alignment, alignmentCode } from "./alignment/alignment";
import { Compare, compareCode } from "./compare/compare";
import { Decode, decodeCode } from "./decode/decode";
import { Heads, headsCode } from "./heads/heads";
import { Inside, insideCode } from "./inside/inside";
import { Lab, labTabCode } from "./lab/lab";
import { Lecture, lectureCode } from "./lecture/lecture";
import { Positions } from "./positions/positions";
import { positionsCode } from "./positions/state";
import { RandomFeatures } from "./random_features/random_features";
import { featuresCode } from "./random_features/state";

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
  { id: "lab", title: "Lab", view: Lab, code: labTabCode },
  { id: "positions", title: "Positions", view: Positions, code: positionsCode },
  { id: "features", title: "Random features", view: RandomFeatures, code: featuresCode },
  { id: "lecture", title: "Lecture", view: Lecture, code: lectureCode },
];

export function tabById(id: string): Tab | undefined {
  return TABS.find((tab) => tab.id === id);
}
