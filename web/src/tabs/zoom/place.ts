// Which weight the Zoom tab takes apart, and how far it has zoomed in.
import { served } from "../../state/api";
import { model as shownModel, trace as shownTrace } from "../../state/runs";
import type { MapName } from "../../state/trace";
import { field, openTab } from "../../state/url";

export const map = field<string>("map", "");
export const layer = field("layer", -1); // -1: the layer and head with the largest weight
export const head = field("head", -1);
export const row = field("row", -1); // the query; -1: the one whose largest weight is largest
export const col = field("col", -1); // the key; -1: the one with the largest weight
export const level = field("level", 0);

export const LEVELS = ["Sentence", "Head", "Query and key", "Dot product", "Softmax", "Weighted sum"] as const;

export interface Place {
  map: MapName;
  row: number; // indices of tokens
  col: number;
  layer?: number;
  head?: number;
  model?: string; // if it is not the model that the page shows
  level?: number;
}

/** Opens the Zoom tab on a weight. */
export function openZoom(place: Place): void {
  openTab("zoom");
  map.value = place.map;
  row.value = place.row;
  col.value = place.col;
  layer.value = place.layer ?? -1;
  head.value = place.head ?? -1;
  level.value = place.level ?? 0;
  if (place.model && served.value?.models.some(({ name }) => name === place.model)) {
    shownModel.value = place.model;
    shownTrace.value = "";
  }
}
