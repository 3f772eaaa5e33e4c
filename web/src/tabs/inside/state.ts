// What the Inside tab shows: a block, a token, a head, and the number whose calculation is open.
import { model as shownModel } from "../../state/runs";
import { field, openTab } from "../../state/url";

export const stack = field<string>("stack", "");
export const layer = field("layer", 0);
export const token = field("token", 0);
export const head = field("head", 0);
export const cell = field<string>("cell", ""); // the number whose calculation is shown, such as self.q:3

/** Goes back to the first layer, token and head: another text or stack has others. */
export function resetPlace(): void {
  layer.value = 0;
  token.value = 0;
  head.value = 0;
  cell.value = "";
}

/** Opens the Inside tab at a place of a model. */
export function openInside(place: {
  model: string;
  stack: string;
  layer: number;
  token: number;
  head: number;
  cell: string;
}): void {
  openTab("inside");
  shownModel.value = place.model;
  stack.value = place.stack;
  layer.value = place.layer;
  token.value = place.token;
  head.value = place.head;
  cell.value = place.cell;
}
