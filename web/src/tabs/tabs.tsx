// The tabs of the page, in their order.
import type { ComponentType } from "preact";
import { Alignment, alignmentCode } from "./alignment/alignment";
import { Compare, compareCode } from "./compare/compare";
import { Decode, decodeCode } from "./decode/decode";
import { Embeddings } from "./embeddings/embeddings";
import { embeddingsCode } from "./embeddings/state";
import { Heads, headsCode } from "./heads/heads";
import { Input } from "./input/input";
import { hasInputs, inputCode, inputTitle } from "./input/state";
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
  key: string; // opens the tab
  title: () => string;
  view: ComponentType;
  code: () => string; // Python code that reproduces the view
  hidden?: () => boolean; // whether there is nothing to show in it
}

function entry(key: string, id: string, title: string, view: ComponentType, code: () => string): Tab {
  return { key, id, title: () => title, view, code };
}

export const TABS: readonly Tab[] = [
  { key: "i", id: "input", title: inputTitle, view: Input, code: inputCode, hidden: () => !hasInputs() },
  entry("1", "alignment", "Alignment", Alignment, alignmentCode),
  entry("2", "heads", "Heads", Heads, headsCode),
  entry("3", "inside", "Inside", Inside, insideCode),
  entry("4", "decode", "Decode", Decode, decodeCode),
  entry("5", "compare", "Compare", Compare, compareCode),
  entry("6", "embeddings", "Embeddings", Embeddings, embeddingsCode),
  entry("7", "recurrent", "Recurrent", Recurrent, recurrentCode),
  entry("8", "lab", "Lab", Lab, labTabCode),
  entry("9", "positions", "Positions", Positions, positionsCode),
  entry("0", "features", "Random features", RandomFeatures, featuresCode),
  entry("l", "lecture", "Lecture", Lecture, lectureCode),
];

export function tabById(id: string): Tab | undefined {
  return TABS.find((tab) => tab.id === id);
}
