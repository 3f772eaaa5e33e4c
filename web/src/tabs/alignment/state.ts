// The settings of the Alignment tab.
import { sceneTrace } from "../../state/api";
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

/** Arcs or a matrix. A lecture scene shows the matrix unless it says otherwise. */
export function chosenView(): string {
  return view.value === "matrix" || view.value === "arcs" ? view.value : sceneTrace.value ? "matrix" : "arcs";
}

export function chooseView(next: string): void {
  view.value = next;
}

/** Unpins everything: with other rows and columns, a pin would point at another cell. */
export function unpin(): void {
  for (const pin of pins) pin.value = "";
}
