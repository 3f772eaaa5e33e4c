// The settings of the Alignment tab.
import { sceneTrace } from "../../state/api";
import type { Trace } from "../../state/trace";
import { field } from "../../state/url";

export const layer = field<string>("layer", "all");
export const head = field<string>("head", "best");
export const level = field<string>("level", "word");
export const hide = field("hide", false);
export const stretch = field("stretch", false); // the colour scale ends at the largest weight instead of 1
export const cut = field("cut", 0);
export const beside = field<string>("beside", "");
export const more = field("more", false); // whether the options are open
export const pins = [field<string>("pin", ""), field<string>("pin2", "")];
const view = field<string>("view", "");

const MAX_ARC_TOKENS = 60; // on a side: more words are easier to read as a matrix

/** Arcs or a matrix. If the address says nothing, a lecture scene and a long text show the matrix. */
export function chosenView(trace: Trace | null): string {
  if (view.value === "matrix" || view.value === "arcs") return view.value;
  const long = Object.values(trace?.axes ?? {}).some(({ tokens }) => tokens.length > MAX_ARC_TOKENS);
  return sceneTrace.value || long ? "matrix" : "arcs";
}

export function chooseView(next: string): void {
  view.value = next;
}

/** Unpins everything: with other rows and columns, a pin would point at another cell. */
export function unpin(): void {
  for (const pin of pins) pin.value = "";
}
