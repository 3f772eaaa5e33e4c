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
import { zoomCode } from "./zoom/code";
import { Zoom } from "./zoom/zoom";

export interface Tab {
  id: string;
  key: string; // opens the tab
  title: () => string;
  about: string; // what one sees in it
  view: ComponentType;
  code: () => string; // Python code that reproduces the view
  hidden?: () => boolean; // whether there is nothing to show in it
}

function entry(
  key: string,
  id: string,
  title: string,
  about: string,
  view: ComponentType,
  code: () => string,
): Tab {
  return { key, id, title: () => title, about, view, code };
}

export const TABS: readonly Tab[] = [
  { key: "i", id: "input", title: inputTitle, about: "The input of a model of images, series or sound, and where it attends", view: Input, code: inputCode, hidden: () => !hasInputs() },
  entry("1", "alignment", "Alignment", "Which source words the model attends to for each word it writes", Alignment, alignmentCode),
  entry("z", "zoom", "Zoom", "One weight, from the sentence down to the products and up to the sum", Zoom, zoomCode),
  entry("2", "heads", "Heads", "All attention heads at once, one in large, and the output without some of them", Heads, headsCode),
  entry("3", "inside", "Inside", "One token on its way through a block, with every number", Inside, insideCode),
  entry("4", "decode", "Decode", "How the next token is chosen: greedy, sampling, beam search", Decode, decodeCode),
  entry("5", "compare", "Compare", "Two heads, texts or models on the same scale", Compare, compareCode),
  entry("6", "embeddings", "Embeddings", "How words become vectors, and which are close", Embeddings, embeddingsCode),
  entry("7", "recurrent", "Recurrent", "Gates and states of a recurrent network, step by step", Recurrent, recurrentCode),
  entry("8", "lab", "Lab", "Attention on matrices that you can edit", Lab, labTabCode),
  entry("9", "positions", "Positions", "How positions are encoded, and what two of them have in common", Positions, positionsCode),
  entry("0", "features", "Random features", "Random features that make attention linear in the length", RandomFeatures, featuresCode),
  entry("l", "lecture", "Lecture", "Questions to guess, with the view that answers each", Lecture, lectureCode),
];

export function tabById(id: string): Tab | undefined {
  return TABS.find((tab) => tab.id === id);
}
